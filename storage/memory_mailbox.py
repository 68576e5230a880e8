"""Owns the mailbox of the in-memory store: plain lists and dictionaries."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.errors import StoreError
from agent.mail import (
    Address,
    Cursor,
    InboxItem,
    InboxRecord,
    InboxState,
    OutboxDraft,
    OutboxItem,
    OutboxPart,
    PartDraft,
    Receipt,
    SendState,
)
from storage.codec import clean, clean_json
from storage.extras import extras_of, with_extras
from storage.inbox import DEDUPE_SECONDS
from storage.places import Today, address_of_today, record_of_today
from storage.repair import OVER, is_newer, is_older_edit, state_of_item


class MemoryMailbox:
    """Inbox, outbox and cursors. No method waits, so each is a transaction."""

    def __init__(self, today: Today) -> None:
        self._today = today
        self._inbox: dict[int, InboxItem] = {}
        self._turn_of: dict[int, str] = {}
        self._by_message: dict[tuple[str, ...], int] = {}
        self._by_update: dict[tuple[str | None, ...], int] = {}
        self._edits: dict[int, str] = {}
        """The update of the newest edit that a row shows."""
        self._quarantine: list[tuple[str, str, str, str, str]] = []
        self._quarantined_at: dict[tuple[str, str, str], float] = {}
        self._outbox: dict[int, OutboxItem] = {}
        self._cursors: dict[tuple[str, str], dict[str, str]] = {}
        self._restarts_awaited: list[int] = []
        self._next_inbox_id = 1
        self._next_part_id = 1

    # inbox

    def accept(self, record: InboxRecord, cursor: Cursor | None) -> Receipt:
        record = record_of_today(record, self._today)
        repeat = self._repeat_of(record)
        if cursor is not None:
            self.set_cursor(cursor)
        if repeat is not None:
            return Receipt(repeat, False, record)
        inbox_id = self._take_inbox_id()
        payload = copy.deepcopy(clean_json(record.payload))
        stored = replace(record, text=clean(record.text), payload=payload)
        self._inbox[inbox_id] = InboxItem(inbox_id, stored, "new")
        if record.message_id:
            self._by_message[_message(record)] = inbox_id
        if record.update_id is not None:
            self._by_update[_update(record)] = inbox_id
        return Receipt(inbox_id, True, record)

    def _repeat_of(self, record: InboxRecord) -> int | None:
        update = _update(record)
        same_message = self._by_message.get(_message(record))
        same_update = self._by_update.get(update)
        if same_update is not None:
            known = self._inbox[same_update]
            if abs(known.record.received_at - record.received_at) > DEDUPE_SECONDS:
                del self._by_update[update]
                forgotten = replace(known.record, update_id=None)
                self._inbox[same_update] = replace(known, record=forgotten)
                same_update = None
        return min((i for i in (same_message, same_update) if i is not None), default=None)

    def revise(self, record: InboxRecord) -> bool:
        inbox_id = self._by_message.get(_message(record))
        item = None if inbox_id is None else self._inbox[inbox_id]
        if item is None or item.state != "new":
            return False
        if is_older_edit(record.update_id, self._edits.get(item.id)):
            return True
        payload = copy.deepcopy(clean_json(record.payload))
        shown = replace(item.record, text=clean(record.text), payload=payload)
        self._inbox[item.id] = replace(item, record=shown)
        if record.update_id is not None:
            self._edits[item.id] = record.update_id
        return True

    def move(self, old_keys: Mapping[str, str], old: Address, heir: str) -> None:
        """What waits, what is being answered and what is owed follows its chat.

        ``old``: the chat as it was; ``old_keys``: its session keys → what they have become.
        """
        for item in list(self._inbox.values()):
            key = old_keys.get(item.record.session_key)
            if key is not None and item.state in ("new", "claimed"):
                self._by_message.pop(_message(item.record), None)
                address = Address(old.platform, old.bot_id, heir)
                record = replace(item.record, address=address, message_id="", session_key=key)
                self._inbox[item.id] = replace(item, record=record)
        for owed in self.owed():
            if _chat(owed.draft.address) == _chat(old):
                address = Address(old.platform, old.bot_id, heir)
                draft = replace(owed.draft, address=address, edits_message_id=None)
                parts = tuple(
                    replace(part, platform_message_id=None, payload=_without_edits(part.payload))
                    for part in owed.parts
                )
                self._outbox[owed.id] = replace(owed, draft=draft, parts=parts)
        self._cursors.get((old.platform, old.bot_id), {}).pop(old.chat_id, None)

    def state_of(self, inbox_id: int) -> InboxState | None:
        """What has become of a row; None: there is none."""
        item = self._inbox.get(inbox_id)
        return None if item is None else item.state

    def newest_of_turn(self, turn_id: str) -> InboxRecord | None:
        """The newest message that a turn answers."""
        newest = max((i for i, turn in self._turn_of.items() if turn == turn_id), default=None)
        return None if newest is None else self._inbox[newest].record

    # forgetting

    @property
    def newest_id(self) -> int:
        """Of all that came in."""
        return self._next_inbox_id - 1

    def count_of(self, owner: str) -> int:
        """Messages and commands of a person, the wish to be forgotten not counted."""
        said = [record.text.lower() for record in self._records_of(owner)]
        wishes = [text.startswith("/forget") and " me" in text for text in said]
        return sum(bool(text) and not wish for text, wish in zip(said, wishes, strict=True))

    def titled(self, owner: str, session_key: str) -> bool:
        """Has this person given a conversation of this key a name?"""
        return any(
            r.kind == "command" and r.session_key == session_key and r.text.startswith("/title")
            for r in self._records_of(owner)
        )

    def clear_answers(self, owner: str, own: set[str], said_by_jobs: Iterable[OutboxDraft]) -> None:
        """Answers to a person lose their words; those that are still owed go out no more."""
        mine = self._records_of(owner)
        direct = {_chat(r.address) for r in mine if r.payload.get("chat_kind") == "direct"}
        below = {(*_chat(r.address), r.message_id) for r in mine}
        jobs = [(_chat(draft.address), draft.text) for draft in said_by_jobs]
        for item in list(self._outbox.values()):
            to, text = item.draft.address, item.draft.text
            chat = _chat(to)
            answers = chat in direct or (*chat, to.reply_to_message_id) in below
            by_job = any(chat == place and words in text for place, words in jobs)
            if answers or by_job or item.conversation_id in own:
                self._outbox[item.id] = _without_words(item)

    def forget_person(self, owner: str, upto: int, now: float) -> None:
        """What somebody sent goes; for a week an empty row stays, by which a repeat is known."""
        for item in [i for i in self._inbox.values() if i.record.owner == owner and i.id <= upto]:
            old = item.record.received_at < now - DEDUPE_SECONDS
            if old and item.state == "answered" and item.id not in self._restarts_awaited:
                self._drop(item)
            else:
                self._inbox[item.id] = replace(item, record=_emptied(item.record), state="answered")
        platform, _, user_id = owner.partition(":")
        for n, (where, bot_id, update_id, raw, reason) in enumerate(self._quarantine):
            if where == platform and user_id in raw + reason:
                self._quarantine[n] = (where, bot_id, update_id, "", "erased")

    def drop_conversation(self, conversation_id: str, turn_ids: Iterable[str], now: float) -> None:
        """It is deleted: its answers, and what it was told, but for what tells repeats."""
        newest = max(self._outbox, default=0)
        for owed in [i for i in self._outbox.values() if i.conversation_id == conversation_id]:
            if owed.id == newest:
                self._outbox[owed.id] = replace(_without_words(owed), conversation_id=None)
            else:
                del self._outbox[owed.id]
        for turn_id in turn_ids:
            for inbox_id in self.ids_of_turn(turn_id):
                item = self._inbox[inbox_id]
                if item.record.received_at < now - DEDUPE_SECONDS and item.id != self.newest_id:
                    self._drop(item)
                else:
                    record = replace(_emptied(item.record), owner=item.record.owner)
                    self._inbox[inbox_id] = replace(item, record=record)
                    del self._turn_of[inbox_id]

    def clear_old(self, before: float, now: float) -> None:
        """Mail of no conversation that is older than this."""
        before, newest = min(before, now - DEDUPE_SECONDS), max(self._outbox, default=0)
        for owed in list(self._outbox.values()):
            alone = owed.conversation_id is None and owed.id != newest
            if alone and owed.state in OVER and owed.created_at < before:
                del self._outbox[owed.id]
        for item in list(self._inbox.values()):
            over = item.state in ("answered", "quarantined") and item.id not in self._turn_of
            kept = item.id == self.newest_id or item.id in self._restarts_awaited
            if over and not kept and item.record.received_at < before:
                self._drop(item)

    def _records_of(self, owner: str) -> list[InboxRecord]:
        return [i.record for i in self._inbox.values() if i.record.owner == owner]

    def _drop(self, item: InboxItem) -> None:
        del self._inbox[item.id]
        self._turn_of.pop(item.id, None)
        self._by_message.pop(_message(item.record), None)
        self._by_update.pop(_update(item.record), None)

    def keys(self) -> set[str]:
        """The session keys of everything that is not answered."""
        return {
            item.record.session_key
            for item in self._inbox.values()
            if item.state in ("new", "claimed")
        }

    def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str, now: float
    ) -> None:
        place = (platform, bot_id, update_id)
        known_at = self._quarantined_at.get(place)
        if known_at is None or abs(known_at - now) > DEDUPE_SECONDS:
            self._quarantined_at[place] = now
            self._quarantine.append((*place, clean(raw), clean(reason)))
            self._take_inbox_id()

    def _take_inbox_id(self) -> int:
        self._next_inbox_id += 1
        return self._next_inbox_id - 1

    def open_inbox(self) -> list[InboxItem]:
        return [item for item in self._inbox.values() if item.state == "new"]

    def newest_items(self, platform: str, bot_id: str, among: int) -> list[InboxItem]:
        newer = [item for item in self._inbox.values() if item.id >= self._next_inbox_id - among]
        bot = (platform, bot_id)
        return [i for i in newer if (i.record.address.platform, i.record.address.bot_id) == bot]

    def inbox_items(self, inbox_ids: Iterable[int]) -> list[InboxItem]:
        return [self._inbox[i] for i in sorted(set(inbox_ids)) if i in self._inbox]

    def claim(self, inbox_ids: Iterable[int], turn_id: str) -> None:
        for inbox_id in inbox_ids:
            if self._state(inbox_id) == "new":
                self._set_state(inbox_id, "claimed")
                self._turn_of[inbox_id] = turn_id

    def turn_of(self, inbox_id: int) -> str | None:
        """The turn that claimed this row."""
        return self._turn_of.get(inbox_id)

    def all_waiting(self, inbox_ids: Sequence[int]) -> bool:
        return bool(inbox_ids) and all(self._state(i) == "new" for i in inbox_ids)

    def ids_of_turn(self, turn_id: str) -> tuple[int, ...]:
        return tuple(sorted(i for i, turn in self._turn_of.items() if turn == turn_id))

    def all_answered(self, inbox_ids: Sequence[int]) -> bool:
        states = [state for i in inbox_ids if (state := self._state(i)) is not None]
        return bool(states) and set(states) == {"answered"}

    def address_of(self, inbox_ids: Sequence[int]) -> Address | None:
        if not inbox_ids:
            return None
        record = self._inbox[inbox_ids[-1]].record
        return replace(record.address, reply_to_message_id=record.message_id or None)

    def answer(self, inbox_ids: Iterable[int]) -> None:
        for inbox_id in inbox_ids:
            if self._state(inbox_id) in ("new", "claimed"):
                self._set_state(inbox_id, "answered")

    # restarts

    def await_restart(self, inbox_id: int) -> None:
        self._restarts_awaited.append(inbox_id)

    def take_restarts(self) -> list[Address]:
        """The chats that wait for a start, each once; none waits any more."""
        rows, self._restarts_awaited = self._restarts_awaited, []
        places = {replace(self._inbox[i].record.address, reply_to_message_id=None) for i in rows}
        return sorted(places, key=lambda p: (p.platform, p.bot_id, p.chat_id, p.thread_id or ""))

    def _state(self, inbox_id: int) -> InboxState | None:
        item = self._inbox.get(inbox_id)
        return None if item is None else item.state

    def _set_state(self, inbox_id: int, state: InboxState) -> None:
        self._inbox[inbox_id] = replace(self._inbox[inbox_id], state=state)

    # outbox

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

    def plan_parts(self, outbox_id: int, drafts: Sequence[PartDraft]) -> tuple[OutboxPart, ...]:
        item = self._item(outbox_id)
        if item.parts or item.state in OVER:
            return item.parts
        first = self._next_part_id
        self._next_part_id += len(drafts)
        parts = tuple(
            OutboxPart(first + n, outbox_id, n, "planned", copy.deepcopy(clean_json(draft.payload)))
            for n, draft in enumerate(drafts)
        )
        state = item.state if parts else state_of_item(())
        self._outbox[outbox_id] = replace(item, parts=parts, state=state)
        return parts

    def mark_part(
        self,
        part_id: int,
        state: SendState,
        platform_message_id: str | None,
        error: str | None,
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

    # cursors

    def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        return dict(self._cursors.get((platform, bot_id), {}))

    def set_cursor(self, cursor: Cursor) -> None:
        if self._today(cursor.platform, cursor.bot_id, cursor.channel_id) != cursor.channel_id:
            return
        channels = self._cursors.setdefault((cursor.platform, cursor.bot_id), {})
        current = channels.get(cursor.channel_id)
        if current is None or is_newer(cursor.message_id, current):
            channels[cursor.channel_id] = cursor.message_id


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


def _emptied(record: InboxRecord) -> InboxRecord:
    """What tells a repeat, and no more."""
    address = replace(record.address, reply_to_message_id=None)
    return replace(record, address=address, text="", payload={}, owner="", session_key="")


def _message(record: InboxRecord) -> tuple[str, ...]:
    return (*_chat(record.address), record.message_id, record.kind)


def _update(record: InboxRecord) -> tuple[str | None, ...]:
    return record.address.platform, record.address.bot_id, record.kind, record.update_id


def _chat(address: Address) -> tuple[str, str, str]:
    return address.platform, address.bot_id, address.chat_id
