"""Owns what is owed in the in-memory store: answers and their parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from agent.errors import StoreError
from agent.mail import (
    Address,
    OutboxDraft,
    OutboxItem,
    OutboxPart,
    PartDraft,
    SendState,
)
from storage.codec import clean, clean_json
from storage.extras import extras_of, with_extras
from storage.places import Today, address_of_today
from storage.repair import OVER, state_of_item


class MemoryOutbox:
    """The counterpart of `storage.outbox`."""

    def __init__(self, today: Today) -> None:
        self._today = today
        self._outbox: dict[int, OutboxItem] = {}
        self._next_part_id = 1

    def owe(
        self, drafts: Iterable[OutboxDraft], conversation_id: str | None, now: float
    ) -> tuple[OutboxItem, ...]:
        items = []
        for draft in drafts:
            address = address_of_today(draft.address, self._today)
            plain = replace(draft, address=address, text=clean(draft.text))
            stored = with_extras(plain, clean_json(extras_of(draft)))
            number = max(self._outbox, default=0) + 1
            item = OutboxItem(number, conversation_id, stored, "planned", now)
            self._outbox[item.id] = item
            items.append(item)
        return tuple(items)

    def owed(self) -> list[OutboxItem]:
        return [
            item
            for item in self._outbox.values()
            if item.state in ("planned", "sending", "unknown")
        ]

    def plan_parts(self, outbox_id: int, parts: Sequence[PartDraft]) -> tuple[OutboxPart, ...]:
        item = self._item(outbox_id)
        if item.parts or item.state in OVER:
            return item.parts
        first = self._next_part_id
        self._next_part_id += len(parts)
        planned = tuple(
            OutboxPart(first + n, outbox_id, n, "planned", copy.deepcopy(clean_json(draft.payload)))
            for n, draft in enumerate(parts)
        )
        state = item.state if planned else state_of_item(())
        self._outbox[outbox_id] = replace(item, parts=planned, state=state)
        return planned

    def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        item = next(
            (i for i in self._outbox.values() if any(p.id == part_id for p in i.parts)), None
        )
        if item is None:
            raise StoreError(f"there is no outbox part {part_id}")
        parts = tuple(
            replace(
                part,
                state=state,
                attempts=part.attempts + (state == "sending"),
                platform_message_id=platform_message_id or part.platform_message_id,
            )
            if part.id == part_id
            else part
            for part in item.parts
        )
        self._outbox[item.id] = replace(
            item,
            parts=parts,
            state=state_of_item([part.state for part in parts]),
            error=item.error if error is None else clean(error),
        )

    def fail_outbox(self, outbox_id: int, error: str) -> None:
        item = self._item(outbox_id)
        parts = tuple(
            part if part.state == "sent" else replace(part, state="failed") for part in item.parts
        )
        self._outbox[outbox_id] = replace(item, parts=parts, state="failed", error=clean(error))

    def _item(self, outbox_id: int) -> OutboxItem:
        if outbox_id not in self._outbox:
            raise StoreError(f"there is no outbox item {outbox_id}")
        return self._outbox[outbox_id]

    def move(self, old: Address, heir: str) -> None:
        """What is owed to a chat goes where it is by now."""
        for owed in self.owed():
            if chat_of(owed.draft.address) == chat_of(old):
                address = Address(old.platform, old.bot_id, heir)
                draft = replace(owed.draft, address=address, edits_message_id=None)
                parts = tuple(
                    replace(part, platform_message_id=None, payload=_without_edits(part.payload))
                    for part in owed.parts
                )
                self._outbox[owed.id] = replace(owed, draft=draft, parts=parts)

    def clear(self, is_theirs: Callable[[OutboxItem], bool]) -> None:
        """These lose their words; those that are still owed go out no more."""
        for item in list(self._outbox.values()):
            if is_theirs(item):
                self._outbox[item.id] = _without_words(item)

    def drop_conversation(self, conversation_id: str) -> None:
        """It is deleted, and its answers; no number is given anew."""
        for owed in [i for i in self._outbox.values() if i.conversation_id == conversation_id]:
            if owed.id == max(self._outbox):
                self._outbox[owed.id] = replace(_without_words(owed), conversation_id=None)
            else:
                del self._outbox[owed.id]

    def clear_old(self, before: float) -> None:
        """Answers of no conversation that are older than this, and over."""
        newest = max(self._outbox, default=0)
        for owed in list(self._outbox.values()):
            alone = owed.conversation_id is None and owed.id != newest
            if alone and owed.state in OVER and owed.created_at < before:
                del self._outbox[owed.id]


def chat_of(address: Address) -> tuple[str, str, str]:
    """Which chat this is."""
    return address.platform, address.bot_id, address.chat_id


def _without_edits(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key != "edits"}


def _without_words(item: OutboxItem) -> OutboxItem:
    address = replace(item.draft.address, reply_to_message_id=None)
    over: dict[SendState, SendState] = {"sent": "sent"}
    return replace(
        item,
        draft=OutboxDraft(address, "", item.draft.kind),
        state=over.get(item.state, "failed"),
        parts=tuple(replace(p, payload={}, state=over.get(p.state, "failed")) for p in item.parts),
        error=None,
    )
