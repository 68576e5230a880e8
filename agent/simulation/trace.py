"""Owns traces: a conversation as gaps, kinds and sizes, without a word of it. Reading, writing.

The format is for people too; `docs/trace-format.md` describes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, cast, get_args

from agent.errors import PosthouseError

FORMAT = 1
EventKind = Literal["user", "text", "call", "result"]
"""A person's message; what the assistant says; a tool call of the assistant; its result."""

MAX_EVENTS = 1_000_000
MAX_EVENT_TOKENS = 2_000_000
"""More than any window takes: such a number is a mistake."""
MAX_GAP_SECONDS = 10 * 366 * 86_400.0
MAX_LINE_CHARS = 4096
MAX_ABOUT_CHARS = 300
USUAL_PREFIX_TOKENS = 4000
USUAL_MAX_TOKENS = 8192
BUNDLED = ("daily", "coding", "group")
"""Traces that come along; `scripts/make_traces.py` explains and makes them."""

_NUMBERS = {
    "window_tokens": (1000, 10_000_000),
    "prefix_tokens": (0, 1_000_000),
    "max_tokens": (1, 1_000_000),
    "events": (0, MAX_EVENTS),
}
_REQUIRED = ("posthouse_trace", "model", "events")
_KNOWN = (*_REQUIRED, "window_tokens", "prefix_tokens", "max_tokens", "job", "about")


class TraceError(PosthouseError):
    """Something that is no trace; the text says in which line, and why."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        super().__init__(f"{name}:{line}: {problem}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was said or done."""

    gap_seconds: float
    """Since the event before it."""
    kind: EventKind
    tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A conversation without its words."""

    model: str
    events: tuple[Event, ...]
    window_tokens: int | None = None
    """None: what the model's name says."""
    prefix_tokens: int = USUAL_PREFIX_TOKENS
    """System prompt and tools, in front of every request."""
    max_tokens: int = USUAL_MAX_TOKENS
    """Of an answer."""
    job: bool = False
    """Nobody talks here, a schedule does."""
    about: str = ""

    @property
    def seconds(self) -> float:
        """From the first event to the last."""
        return math.fsum(event.gap_seconds for event in self.events[1:])


# --- reading ------------------------------------------------------------------------------------


def bundled(name: str) -> Trace:
    """One of the traces that come along."""
    text = files("agent.simulation").joinpath("traces", f"{name}.jsonl").read_text("utf-8")
    return read_trace(text.splitlines(), f"{name}.jsonl")


def read_trace(lines: Iterable[str], name: str) -> Trace:
    """A trace from its lines.

    Args:
        lines: Of the file, the header first.
        name: For error messages.

    Raises:
        TraceError: A line is not what it should be, or lines are missing.
    """
    numbered = _lines(lines, name)
    try:
        at, first = next(numbered)
    except StopIteration:
        raise TraceError(name, 1, "the file is empty") from None
    header = _header(first, name, at)
    events: list[Event] = []
    open_calls = 0
    for at, value in numbered:
        if len(events) == header["events"]:
            raise TraceError(name, at, f"the header promises {header['events']} events, no more")
        event = _event(value, name, at)
        match event.kind:
            case "call":
                open_calls += 1
            case "result":
                open_calls -= 1
            case _:
                open_calls = 0
        if open_calls < 0:
            raise TraceError(name, at, "a result without a call before it")
        events.append(event)
    if len(events) < header["events"]:
        promised, found = header["events"], len(events)
        raise TraceError(
            name, at, f"the file ends after {found} of {promised} events: it is cut off"
        )
    return Trace(
        events=tuple(events),
        model=header["model"],
        window_tokens=header.get("window_tokens"),
        prefix_tokens=header.get("prefix_tokens", USUAL_PREFIX_TOKENS),
        max_tokens=header.get("max_tokens", USUAL_MAX_TOKENS),
        job=header.get("job", False),
        about=header.get("about", ""),
    )


def _lines(lines: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    """The JSON values of the lines that are not blank, each with its number."""
    for at, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_CHARS:
            raise TraceError(name, at, f"longer than {MAX_LINE_CHARS} characters")
        text = line.strip().removeprefix("\ufeff")
        if not text:
            continue
        try:
            yield at, json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as exc:
            raise TraceError(name, at, f"no JSON ({_why(exc)})") from None


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _why(exc: Exception) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg}, column {exc.colno}"
    return "too deep" if isinstance(exc, RecursionError) else str(exc)[:80]


def _header(value: Any, name: str, at: int) -> dict[str, Any]:
    if not isinstance(value, dict) or "posthouse_trace" not in value:
        raise TraceError(name, at, 'no trace: the first line must be {"posthouse_trace": 1, …}')
    version = value["posthouse_trace"]
    if not _is_whole(version) or version != FORMAT:
        raise TraceError(name, at, f"a trace of format {_shown(version)}; this is format {FORMAT}")
    for key in _REQUIRED:
        if key not in value:
            raise TraceError(name, at, f"the header has no {key}")
    for key in value:
        if key not in _KNOWN:
            raise TraceError(name, at, f"the header knows no {_shown(key)}")
    for key, (least, most) in _NUMBERS.items():
        if key in value and not (_is_whole(value[key]) and least <= value[key] <= most):
            wanted = f"a whole number from {least} to {most}"
            raise TraceError(name, at, f"{key} must be {wanted}, not {_shown(value[key])}")
    if not isinstance(value["model"], str) or not value["model"].strip():
        raise TraceError(name, at, "model must be a name")
    if not isinstance(value.get("job", False), bool):
        raise TraceError(name, at, "job must be true or false")
    about = value.get("about", "")
    if not isinstance(about, str) or len(about) > MAX_ABOUT_CHARS:
        raise TraceError(name, at, f"about must be a text of at most {MAX_ABOUT_CHARS} characters")
    return value


def _event(value: Any, name: str, at: int) -> Event:
    if not isinstance(value, list) or len(value) != 3:
        raise TraceError(name, at, "an event is [gap in seconds, kind, tokens]")
    gap, kind, tokens = value
    if isinstance(gap, bool) or not isinstance(gap, int | float):
        raise TraceError(name, at, f"the gap must be a number of seconds, not {_shown(gap)}")
    if not 0 <= gap <= MAX_GAP_SECONDS:
        problem = "negative" if gap < 0 else "longer than ten years"
        raise TraceError(name, at, f"the gap is {problem}: {_shown(gap)}")
    if kind not in get_args(EventKind):
        kinds = ", ".join(get_args(EventKind))
        raise TraceError(name, at, f"unknown kind {_shown(kind)}; there are {kinds}")
    if not _is_whole(tokens) or not 1 <= tokens <= MAX_EVENT_TOKENS:
        raise TraceError(
            name,
            at,
            f"tokens must be a whole number from 1 to {MAX_EVENT_TOKENS}, not {_shown(tokens)}",
        )
    return Event(float(gap), cast(EventKind, kind), tokens)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """What somebody wrote, short and safe to print."""
    return json.dumps(value, default=str)[:40]


# --- writing ------------------------------------------------------------------------------------


def write_trace(trace: Trace) -> Iterator[str]:
    """The lines of a trace, each with its line end."""
    header: dict[str, Any] = {"posthouse_trace": FORMAT, "model": trace.model}
    if trace.window_tokens is not None:
        header["window_tokens"] = trace.window_tokens
    header |= {"prefix_tokens": trace.prefix_tokens, "max_tokens": trace.max_tokens}
    if trace.job:
        header["job"] = True
    if trace.about:
        header["about"] = trace.about
    header["events"] = len(trace.events)
    yield json.dumps(header, ensure_ascii=False) + "\n"
    for event in trace.events:
        gap = round(event.gap_seconds, 1)
        shown = int(gap) if gap == int(gap) else gap
        yield json.dumps([shown, event.kind, event.tokens]) + "\n"
