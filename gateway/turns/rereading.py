"""Owns the second look at rows that have waited."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.errors import StoreError
from agent.mail import InboxItem
from agent.mail_ports import Mailbox

log = logging.getLogger(__name__)


async def as_they_are(mailbox: Mailbox, items: Sequence[InboxItem]) -> Sequence[InboxItem]:
    """The rows by now: they may have been edited, their chat may have moved.

    Those that do not wait any more are left out. If the store does not answer, they stay as they
    came: whoever goes on will wait for it, and say so.
    """
    try:
        found = await mailbox.inbox_items([item.id for item in items])
    except StoreError:
        log.warning("waiting rows not read again", exc_info=True)
        return tuple(items)
    return tuple(item for item in found if item.state == "new")
