"""Owns the Protocol of mail: what came in, what is owed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.mail import (
    Cursor,
    InboxItem,
    InboxRecord,
    OutboxDraft,
    OutboxItem,
    OutboxPart,
    PartDraft,
    Receipt,
    SendState,
)


class Mailbox(Protocol):
    """What came in and what is owed. Same guarantees as `agent.store_ports.SessionStore`."""

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        """Store an inbound message once; the cursor moves in the same transaction.

        A repeat, by (platform, bot, kind, update) within a week or by (platform, bot, chat,
        message, kind), stores nothing and gives the first row's id; an empty ``message_id`` is no
        message's. Cursors only move forward. The receipt tells where the chat is today.
        """
        ...

    async def revise(self, record: InboxRecord) -> bool:
        """Let a waiting message say what it says after an edit: its text and its payload.

        Found by (platform, bot, chat, message, kind). False: it does not wait (any more), so it
        stays as it was read. An edit that is older than the one it shows already (by its
        ``update_id``) changes nothing.
        """
        ...

    async def move_chat(
        self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
    ) -> bool:
        """A chat has got another id: routes, waiting messages and what is owed follow.

        One transaction. What came to the new id before it was known to be the old one's heir is
        kept: where both ids lead to a conversation, the old one's goes on under the key, and the
        other stays in ``/sessions``. Numbers of messages and of threads mean nothing in the new
        chat: they are dropped, and so is the old chat's cursor.

        From now on the old id means the new one in whatever the store is asked or given: a key, a
        message, an answer. Nothing leads to the old id any more, however late it comes.

        False: nothing was done. This was known already; or the old id has moved elsewhere before,
        or would come back to itself: what was said first stays.
        """
        ...

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        """Old id → id of today, also over several moves."""
        ...

    async def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        """Does a conversation, a waiting message or an owed answer lead to this chat?"""
        ...

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        """Keep an update that could not be read, so that it does not block those behind it."""
        ...

    async def open_inbox(self) -> list[InboxItem]:
        """Everything in state ``new``, oldest first."""
        ...

    async def newest_items(self, platform: str, bot_id: str, *, among: int) -> list[InboxItem]:
        """What this bot was sent of the newest ``among`` rows, in any state, oldest first."""
        ...

    async def inbox_items(self, inbox_ids: Sequence[int]) -> list[InboxItem]:
        """These rows in any state, by id: where an interrupted turn's answer goes, and to whom.

        Unknown ids are left out.
        """
        ...

    async def answer_inbox(
        self, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        """Mark as answered and owe these answers: for whatever needs no turn.

        Nothing is owed, and nothing given back, if all of these rows were answered before: so that
        a call whose outcome is unknown can be repeated.
        """
        ...

    async def owe(self, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
        """Owe an answer that belongs to no inbound message."""
        ...

    async def await_restart(
        self, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        """As `answer_inbox`, for a row that asks for a restart: its chat waits for the next start.

        One transaction, so that the row can not ask again whatever happens to this process.

        Raises:
            StoreError: there is no such row.
        """
        ...

    async def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        """Owe this to each chat that waits for a start, once; from then on none waits."""
        ...

    async def owed(self) -> list[OutboxItem]:
        """Everything in state ``planned``, ``sending`` or ``unknown``, oldest first, with parts."""
        ...

    async def plan_parts(
        self, outbox_id: int, parts: Sequence[PartDraft]
    ) -> tuple[OutboxPart, ...]:
        """Store the parts, once: if there are some already, those are given back unchanged.

        An answer that is over (sent, also as nothing at all, or failed) gets none any more.

        Raises:
            StoreError: there is no such answer.
        """
        ...

    async def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        """Store what became of a part. ``sending`` counts an attempt.

        The item follows its parts: sent when all are, failed when one has failed, unknown when one
        is unknown and none is left to send.

        Raises:
            StoreError: there is no such part.
        """
        ...

    async def fail_outbox(self, outbox_id: int, error: str) -> None:
        """Give up on an answer and on its parts that are not sent.

        Raises:
            StoreError: there is no such answer.
        """
        ...

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        """Channel id → newest stored message id."""
        ...

    async def set_cursor(self, cursor: Cursor) -> None:
        """Move a cursor forward without a message (its channel's messages are of no interest)."""
        ...
