"""Owns what the rows of a turn say, as the one message that the model gets (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.jobs.nouns import is_scheduled
from agent.mail import InboxItem
from agent.messages import Draft
from gateway.intake.records import is_shared
from gateway.intake.wording import scheduled_draft, user_draft
from gateway.lanes.joining import joined_text


def said(items: Sequence[InboxItem]) -> Draft:
    """The message of these rows: one, or the pieces of one, in order. Its files are not in it."""
    first = items[0].record
    quoted = first.payload.get("quoted_text")
    forwarded = first.payload.get("forwarded_from")
    if is_scheduled(first):
        return scheduled_draft(first)
    return user_draft(
        joined_text(items),
        sender_id=str(first.payload.get("sender_id") or ""),
        sender_name=str(first.payload.get("sender_name") or ""),
        signed=is_shared(first),
        quoted_text=quoted if isinstance(quoted, str) else None,
        forwarded_from=forwarded if isinstance(forwarded, str) else None,
    )
