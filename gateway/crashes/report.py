"""Owns what a crash report says (pure): where it happened, never what anybody wrote.

The words of an error, and what variables held, are left out: both may quote a message. The log has
the words, at its own risk; a report is made to be handed on.
"""

from __future__ import annotations

import platform
import sqlite3
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, TracebackType

MOST_FRAMES = 40
MOST_ERRORS = 8
MOST_CHARS = 64_000
TITLE = "posthouse crash report"
NOTE = (
    "No message, no variable and no secret is in this file. The words of the error are in the log "
    "of that time; `posthouse doctor` says where that is."
)


def of_error(error: BaseException) -> str:
    """The error, what caused it, and the way to each."""
    lines: list[str] = []
    for how, each in _chain(error):
        lines.append(f"{how}{_named(each)}")
        lines += _frames(each.__traceback__)
    return "\n".join(lines)


def of_threads(frames: Mapping[int, FrameType], names: Mapping[int, str]) -> str:
    """What every thread is doing, the main one first: a report has an end."""
    lines: list[str] = []
    main = threading.main_thread().ident
    for number, frame in sorted(frames.items(), key=lambda each: each[0] != main):
        lines.append(f"thread {names.get(number, str(number))}")
        lines += _shown(traceback.extract_stack(frame)[-MOST_FRAMES:])
    return "\n".join(lines)


def stack_of(frame: FrameType) -> str:
    """What one thread is doing."""
    return "\n".join(_shown(traceback.extract_stack(frame)[-MOST_FRAMES:]))


def signature(error: BaseException) -> str:
    """The same for the same fault."""
    places = traceback.extract_tb(error.__traceback__)
    where = f"{places[-1].filename}:{places[-1].lineno}" if places else ""
    return f"{_type(error)} {where}"


def text_of(what: str, facts: Iterable[tuple[str, str]], body: str) -> str:
    """The whole file."""
    about = [
        *facts,
        ("python", platform.python_version()),
        ("sqlite", sqlite3.sqlite_version),
        ("system", platform.platform(terse=True)),
    ]
    head = [TITLE, f"what: {what}", *(f"{name}: {value}" for name, value in about)]
    return "\n".join([*head, "", NOTE, "", body])[:MOST_CHARS] + "\n"


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    seen: set[int] = set()
    waiting: list[tuple[str, BaseException]] = [("", error)]
    while waiting and len(seen) < MOST_ERRORS:
        how, each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield how, each
        if each.__cause__ is not None:
            waiting.append(("caused by ", each.__cause__))
        elif each.__context__ is not None and not each.__suppress_context__:
            waiting.append(("while handling ", each.__context__))
        if isinstance(each, BaseExceptionGroup):
            waiting += [("in it ", one) for one in each.exceptions]


def _type(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _named(error: BaseException) -> str:
    # The system's own words about a number are nobody else's.
    number = getattr(error, "errno", None) if isinstance(error, OSError) else None
    return f"{_type(error)} [{number}]" if isinstance(number, int) else _type(error)


def _frames(found: TracebackType | None) -> list[str]:
    places = traceback.extract_tb(found)
    if len(places) <= MOST_FRAMES:
        return _shown(places)
    half = MOST_FRAMES // 2
    left_out = f"  … {len(places) - 2 * half} frames left out …"
    return [*_shown(places[:half]), left_out, *_shown(places[-half:])]


def _shown(places: Iterable[traceback.FrameSummary]) -> list[str]:
    return [f"  {p.filename}:{p.lineno} in {p.name}" for p in places]
