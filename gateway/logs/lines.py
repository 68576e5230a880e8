"""Owns what a line of the log looks like; whatever is in it, it stays one line of ours (pure)."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from gateway.logs.redaction import Redactor
from gateway.logs.work import work_at_hand

PRIORITY: Mapping[str, int] = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
MOST_CHARS = 16_000
"""Of a message, of an error with its stack, of a field: more would be cut by whoever collects it,
in the middle of something."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_DATE = "%Y-%m-%dT%H:%M:%SZ"
# What moves the cursor, ends a line somewhere, turns the order of letters, or is no text at all.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_INDENT = "\n    "


class LineFormatter(logging.Formatter):
    """``plain``: for eyes. ``json``: an object in a line. ``journal``: with priorities in front."""

    def __init__(self, layout: str, redact: Redactor) -> None:
        super().__init__(datefmt=_DATE)
        self._layout = layout
        self._redact = redact
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        if self._layout == "json":
            return self._as_json(record)
        text = self.text(record)
        if self._layout == "journal":  # one priority per line, or a stack trace loses its own
            priority = PRIORITY.get(record.levelname, 6)
            lines = f"{_name(record)}: {text}".split("\n")
            return "\n".join(f"<{priority}>{line}" for line in lines)
        when = self.formatTime(record, self.datefmt)
        return f"{when} {record.levelname:<7} {_name(record)}: {text}"

    def text(self, record: logging.LogRecord) -> str:
        """What the record says, its fields behind it. Further lines of it are indented.

        So nothing that somebody wrote can look like a line of its own.
        """
        said = " ".join(
            [
                cut(self._redact(message_of(record))),
                *(f"{_one_line(k)}={self._plain(v)}" for k, v in fields_of(record).items()),
            ]
        )
        stack = self.stack(record)
        # Once more as a whole: a secret may have come together only here.
        whole = self._redact(f"{said}\n{stack}" if stack else said)
        return tame(whole).replace("\n", _INDENT)

    def stack(self, record: logging.LogRecord) -> str:
        """The error and where it came from; "": there is none."""
        found = [self.formatException(record.exc_info)] if record.exc_info else []
        found += [str(record.stack_info)] if record.stack_info else []
        return cut(self._redact("\n".join(found)))

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """The ids and numbers as text, without secrets."""
        return {
            name: tame(cut(self._redact(_text(value)))) for name, value in fields_of(record).items()
        }

    def _as_json(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": cut(self._redact(message_of(record))),
            **{name: self._bounded(value) for name, value in fields_of(record).items()},
        }
        stack = self.stack(record)
        if stack:
            line["exception"] = stack
        try:
            text = json.dumps(line, ensure_ascii=False, default=_text)
        except (TypeError, ValueError, RecursionError):  # keys of a dict, a circle
            plain = {str(k): cut(self._redact(_text(v))) for k, v in line.items()}
            text = json.dumps(plain, ensure_ascii=False)
        return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", self._redact(text))

    # Without secrets before it is cut: half a secret would not be found any more.

    def _bounded(self, value: Any) -> Any:
        if isinstance(value, bool | int | float) or value is None:
            return value
        text = _text(value)
        if isinstance(value, str) or len(text) > MOST_CHARS:
            return cut(self._redact(text))
        return value

    def _plain(self, value: Any) -> str:
        text = cut(self._redact(_text(value)))
        if text.isprintable() and not any(c in text for c in ' "='):
            return text
        return json.dumps(text, ensure_ascii=False)


def message_of(record: logging.LogRecord) -> str:
    """Its words; where they can not be put together, that is said, and what they were made of."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - arguments of others, with code of others
        return f"{_text(record.msg)} [its arguments do not fit: {type(error).__name__}]"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What stands on a line beside its words."""
    fields = {k: v for k, v in vars(record).items() if k not in _STANDARD}
    return {**work_at_hand(), **fields}


def tame(text: str) -> str:
    """Visible, where it would do something; line ends and tabs stay."""
    return _ODD.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _one_line(text: str) -> str:
    return tame(text).replace("\n", "\\n")


def _name(record: logging.LogRecord) -> str:
    return _one_line(record.name)


def cut(text: str) -> str:
    """No longer than a line may be; what is missing is said."""
    if len(text) <= MOST_CHARS:
        return text
    half = MOST_CHARS // 2
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters left out …] {text[-half:]}"


def _text(value: Any) -> str:
    try:
        return f"{value:.3f}" if isinstance(value, float) else str(value)
    except Exception as error:  # noqa: BLE001 - code of others
        return f"[{type(value).__name__}: {type(error).__name__}]"
