"""Owns small wordings that several answers share: times, shares, other people's words. Pure."""

from __future__ import annotations

import unicodedata

from agent.counting import counted
from agent.redact import redact_sensitive_text

SHOWN_CHARS = 60
_JOINER = "\u200d"  # holds the parts of an emoji together


def shown(text: str, chars: int = SHOWN_CHARS) -> str:
    """Somebody's words for a line of a list: one line, no secret, nothing invisible, not long."""
    seen = "".join(ch for ch in text if ch == _JOINER or _is_seen(ch))
    # In this order: a secret with something invisible in it is one again without it, and half a
    # secret is not known as one.
    line = " ".join(redact_sensitive_text(seen).split())
    return line if len(line) <= chars else f"{line[: chars - 1].rstrip(' ' + _JOINER)}…"


def _is_seen(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs")


def ago(seconds: float) -> str:
    """How long since; a clock that was set back makes it "just now"."""
    for length, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= length:
            return f"{counted(int(seconds // length), name)} ago"
    return "just now"


def duration(seconds: float) -> str:
    """How long something took."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def percent(tokens: int, whole: int) -> str:
    """A share in percent: one digit behind the point below ten, never 0 for something."""
    if tokens <= 0 or whole <= 0:
        return "0 %"
    share = 100 * tokens / whole
    if share < 0.1:
        return "under 0.1 %"
    return f"{share:.1f} %" if share < 9.95 else f"{share:.0f} %"
