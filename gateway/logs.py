"""Owns the log: its format, the ids on every line, and that no secret is ever on one."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TextIO

from gateway.log_flood import FloodGate

_WORK: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "work", default=MappingProxyType({})
)

_PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_NOISY = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "telegram",
    "discord",
    "anthropic",
    "aiosqlite",
)
"""Third parties that print request lines (with a token in them) or every statement."""


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """Put these ids on every line that is logged inside, in tasks that start there as well."""
    token = _WORK.set({**_WORK.get(), **ids})
    try:
        yield
    finally:
        _WORK.reset(token)


class Redactor:
    """Replaces known secrets in finished lines: whatever a library puts there, it is found."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first, in case one contains another.
        self._secrets = sorted({s for s in secrets if len(s) >= 6}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "[secret]")
        return text


class _Formatter(logging.Formatter):
    def __init__(self, style: str, redact: Redactor) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%SZ")
        self._layout = style
        self._redact = redact
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if self._layout == "json":
            line: dict[str, Any] = {
                "time": self.formatTime(record, self.datefmt),
                "level": record.levelname,
                "logger": record.name,
                "message": record.getMessage(),
                **fields,
            }
            if record.exc_info:
                line["exception"] = self.formatException(record.exc_info)
            return self._redact(json.dumps(line, ensure_ascii=False, default=str))
        text = " ".join([record.getMessage(), *(f"{k}={_plain(v)}" for k, v in fields.items())])
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        text = self._redact(text)
        if self._layout == "journal":  # one priority per line, or a stack trace loses its own
            priority = _PRIORITY.get(record.levelname, 6)
            lines = f"{record.name}: {text}".splitlines()
            return "\n".join(f"<{priority}>{line}" for line in lines)
        when = self.formatTime(record, self.datefmt)
        return f"{when} {record.levelname:<7} {record.name}: {text}"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {k: v for k, v in vars(record).items() if k not in _STANDARD}
    return {**_WORK.get(), **fields}


def _plain(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text.isprintable() else text


def set_up(
    *,
    level: str,
    style: str,
    secrets: Iterable[str],
    env: Mapping[str, str],
    stream: TextIO | None = None,
) -> None:
    """Log to standard error. ``style``: ``auto``, ``plain`` or ``json``."""
    if style == "auto":
        style = "journal" if env.get("JOURNAL_STREAM") else "plain"
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Formatter(style, Redactor(secrets)))
    handler.addFilter(FloodGate())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    logging.captureWarnings(True)
