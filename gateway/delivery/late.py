"""Owns what is said about an answer that goes out late (pure)."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from agent.mail import OutboxItem
from gateway import texts

LATE_AFTER_SECONDS = 24 * 3600.0
FIRST_DAY = 1_577_836_800.0
"""The first of 2020."""


def late_note(item: OutboxItem, now: float, zone: tzinfo = UTC) -> str | None:
    """The line that has to stand before this answer; None while it is young.

    An answer from the future (the clock was set back) is young, and so is one from before there
    was this program: the machine did not know the time yet.
    """
    if item.created_at < FIRST_DAY:
        return None
    if now - item.created_at <= LATE_AFTER_SECONDS:
        return None
    written = datetime.fromtimestamp(item.created_at, zone)
    return texts.late(written.strftime("%Y-%m-%d %H:%M %Z").strip())
