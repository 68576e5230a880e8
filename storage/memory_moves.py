"""Owns a chat's move to another id in the in-memory store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.mail import Address
from storage.memory_jobs import MemoryJobs
from storage.memory_mailbox import MemoryMailbox
from storage.memory_notes import MemoryNotes
from storage.memory_records import OPEN_STATES
from storage.memory_tables import MemoryTables
from storage.places import keys_of_chat, moved_keys


class MemoryMoves:
    """Over the tables, the mail, the notes and the jobs, which all name chats."""

    def __init__(
        self, tables: MemoryTables, mail: MemoryMailbox, notes: MemoryNotes, jobs: MemoryJobs
    ) -> None:
        self._tables = tables
        self._mail = mail
        self._notes = notes
        self._jobs = jobs

    def move_chat(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> bool:
        heir = self._note(platform, bot_id, old_chat_id, new_chat_id)
        if heir is None:
            return False
        bounds = keys_of_chat(platform, bot_id, old_chat_id)
        keys = {*self._keys(), *self._mail.keys(), *self._notes.places(), *self._jobs.places()}
        moved = moved_keys((k for k in keys if bounds[0] <= k < bounds[1]), heir)
        self._forget_previews(platform, bot_id, old_chat_id)
        self._move_keys(moved)
        self._notes.move(moved)
        self._jobs.move(moved, heir)
        self._mail.move(moved, Address(platform, bot_id, old_chat_id), heir)
        return True

    def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        chat_id = self._tables.today(platform, bot_id, chat_id)
        bounds = keys_of_chat(platform, bot_id, chat_id)
        talked = {c.session_key for c in self._tables.conversations.values()}
        waiting = {item.record.session_key for item in self._mail.open_inbox()}
        owed = {item.draft.address for item in self._mail.owed()}
        return any(bounds[0] <= key < bounds[1] for key in talked | waiting) or any(
            (to.platform, to.bot_id, to.chat_id) == (platform, bot_id, chat_id) for to in owed
        )

    def _forget_previews(self, platform: str, bot_id: str, chat_id: str) -> None:
        for turn in self._tables.turns.values():
            if turn.preview is not None:
                at = turn.preview[0]
                if (at.platform, at.bot_id, at.chat_id) == (platform, bot_id, chat_id):
                    turn.preview = None

    def _note(self, platform: str, bot_id: str, old: str, new: str) -> str | None:
        """Remember the move and give back the id of today; None: there is nothing to do."""
        known, heir = (
            self._tables.today(platform, bot_id, old),
            self._tables.today(platform, bot_id, new),
        )
        if known == heir or known != old:
            return None
        for place, led_to in self._tables.moved.items():
            if place[:2] == (platform, bot_id) and led_to == old:
                self._tables.moved[place] = heir
        self._tables.moved[platform, bot_id, old] = heir
        return heir

    def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        return {p[2]: heir for p, heir in self._tables.moved.items() if p[:2] == (platform, bot_id)}

    def _keys(self) -> set[str]:
        """The session keys of conversations and of turns that are not over."""
        turns = {
            turn.session_key for turn in self._tables.turns.values() if turn.state in OPEN_STATES
        }
        return (
            turns
            | {c.session_key for c in self._tables.conversations.values()}
            | set(self._tables.routes)
        )

    def _move_keys(self, moved: Mapping[str, str]) -> None:
        """Conversations, routes and turns go on under other keys; the first one has the way."""
        led: set[str] = set()
        for old_key, key in moved.items():
            for conversation in list(self._tables.conversations.values()):
                if conversation.session_key == old_key:
                    changed = replace(conversation, session_key=key)
                    self._tables.conversations[conversation.id] = changed
            for turn in self._tables.turns.values():
                if turn.session_key == old_key and turn.state in OPEN_STATES:
                    turn.session_key = key
            gone = self._tables.routes.pop(old_key, None)
            if gone is not None and key not in led:
                led.add(key)
                self._tables.routes[key] = gone
