"""Owns the mailbox of the in-memory store: plain lists and dictionaries."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.mail import (
    Address,
    Cursor,
    InboxItem,
    InboxRecord,
    InboxState,
    OutboxDraft,
    OutboxItem,
    Receipt,
)
from storage.codec import clean, clean_json
from storage.inbox import DEDUPE_SECONDS
from storage.memory_outbox import MemoryOutbox, chat_of
from storage.places import Today, record_of_today
from storage.repair import is_newer, is_older_edit


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
        self.out = MemoryOutbox(today)
        self._cursors: dict[tuple[str, str], dict[str, str]] = {}
        self._restarts_awaited: list[int] = []
        self._next_inbox_id = 1

    # inbox

    def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
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

    def newest_command_at(self, session_key: str) -> float:
        """When the last command came in from there; 0.0: there is none."""
        records = (item.record for item in self._inbox.values())
        mine = (one for one in records if one.session_key == session_key)
        return max((one.received_at for one in mine if one.kind == "command"), default=0.0)

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
        self.out.move(old, heir)
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
        direct = {chat_of(r.address) for r in mine if r.payload.get("chat_kind") == "direct"}
        below = {(*chat_of(r.address), r.message_id) for r in mine}
        jobs = [(chat_of(draft.address), draft.text) for draft in said_by_jobs]

        def is_theirs(item: OutboxItem) -> bool:
            to, text = item.draft.address, item.draft.text
            chat = chat_of(to)
            answers = chat in direct or (*chat, to.reply_to_message_id) in below
            by_job = any(chat == place and words in text for place, words in jobs)
            return answers or by_job or item.conversation_id in own

        self.out.clear(is_theirs)

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
        self.out.drop_conversation(conversation_id)
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
        before = min(before, now - DEDUPE_SECONDS)
        self.out.clear_old(before)
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

    def newest_items(self, platform: str, bot_id: str, *, among: int) -> list[InboxItem]:
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
        return self.out.owe(drafts, conversation_id, now)

    def owed(self) -> list[OutboxItem]:
        return self.out.owed()

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


def _emptied(record: InboxRecord) -> InboxRecord:
    """What tells a repeat, and no more."""
    address = replace(record.address, reply_to_message_id=None)
    return replace(record, address=address, text="", payload={}, owner="", session_key="")


def _message(record: InboxRecord) -> tuple[str, ...]:
    return (*chat_of(record.address), record.message_id, record.kind)


def _update(record: InboxRecord) -> tuple[str | None, ...]:
    return record.address.platform, record.address.bot_id, record.kind, record.update_id
