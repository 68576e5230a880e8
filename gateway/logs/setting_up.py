"""Owns the root of the log: one handler, behind which no secret passes, and whom it listens to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from gateway.logs.flood import FloodGate
from gateway.logs.journal import SOCKET, JournalLines, is_journal
from gateway.logs.lines import LineFormatter
from gateway.logs.redaction import Redactor, named_like_secrets
from gateway.logs.streaming import StreamLines

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


_in_force = Redactor(())


def redacted(text: str) -> str:
    """Without the secrets that the log knows: for other ways out of this process."""
    return _in_force(text)


def set_up(
    *,
    level: str,
    style: str,
    secrets: Iterable[str],
    env: Mapping[str, str],
    stream: TextIO | None = None,
) -> Redactor:
    """Log to standard error, or to the journal; gives back what takes the secrets out.

    ``style``: ``plain``, ``json``, ``journal`` (its own protocol; where it takes nothing, lines
    with priorities), or ``auto``: ``journal`` where standard error is the journal's, else plain.
    """
    global _in_force
    redact = _in_force = Redactor([*secrets, *named_like_secrets(env)])
    handler = _handler(style, redact, env, stream)
    handler.addFilter(FloodGate())
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, StreamLines | logging.StreamHandler):  # others' lines, or ours of before
            root.removeHandler(old)
        if isinstance(old, StreamLines):
            old.close()
    root.addHandler(handler)
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    logging.captureWarnings(True)
    # Handlers of others would print what they could not put together, with its arguments.
    logging.raiseExceptions = False
    return redact


def _handler(
    style: str, redact: Redactor, env: Mapping[str, str], stream: TextIO | None
) -> logging.Handler:
    given = stream is not None
    stream = stream if given else sys.stderr
    if style == "auto":
        style = "journal" if is_journal(env, stream) else "plain"
    if style == "journal" and not given and SOCKET.exists():
        return JournalLines(stream, redact)
    lines = StreamLines(stream)
    lines.setFormatter(LineFormatter(style, redact))
    return lines
