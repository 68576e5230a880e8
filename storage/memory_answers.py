"""Owns what the in-memory store answers a command with, in the transaction that does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.errors import StaleTurn, StoreError
from agent.lineages import Answering, Undone
from agent.mail import OutboxDraft, OutboxItem
from storage.memory_lineages import MemoryLineages
from storage.memory_mailbox import MemoryMailbox
from storage.memory_tables import MemoryTables
from storage.undoing import has_summary, is_rest, turns_in


class MemoryAnswers:
    """Mail that comes with its answer."""

    def __init__(
        self,
        tables: MemoryTables,
        lineages: MemoryLineages,
        mail: MemoryMailbox,
        now: Callable[[], float],
    ) -> None:
        self._tables = tables
        self._lineages = lineages
        self._mail = mail
        self._now = now

    def answer_inbox(
        self, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        if self._mail.all_answered(inbox_ids):
            return ()
        self._mail.answer(inbox_ids)
        return self._mail.owe(outbox, None, self._now())

    def await_restart(
        self, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        if not self._mail.inbox_items((inbox_id,)):
            raise StoreError(f"there is no row {inbox_id} that could ask for a restart")
        if self._mail.all_answered((inbox_id,)):
            return ()
        items = self.answer_inbox((inbox_id,), outbox)
        self._mail.await_restart(inbox_id)
        return items

    def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        drafts = [OutboxDraft(place, text, "notice") for place in self._mail.take_restarts()]
        return self._mail.owe(drafts, None, self._now())

    def owe(self, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
        (item,) = self._mail.owe((draft,), conversation_id, self._now())
        return item

    def undo(
        self, conversation_id: str, turns: int = 1, *, answering: Answering | None = None
    ) -> Undone:
        tip = self._tables.tip_of(conversation_id)
        if answering is not None and self._mail.all_answered((answering.inbox_id,)):
            raise StaleTurn("this command was answered before")
        self._tables.require_rest(conversation_id)
        removed = self._lineages.take_back(tip, turns) if tip.session.ended_at is None else ()
        steered = self._tables.steered
        undone = Undone(
            tip.session,
            removed,
            has_summary(tip.rows),
            turns_in(removed, steered),
            is_rest(removed, steered),
        )
        if answering is None:
            return undone
        self._mail.answer((answering.inbox_id,))
        owed = self._mail.owe((answering.words(undone),), None, self._now())
        return replace(undone, owed=owed)
