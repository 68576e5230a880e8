"""Owns what the in-memory store holds of conversations, and the changes that are more than one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.errors import SessionNotFound, StaleTurn
from agent.ledger import RequestEntry
from agent.messages import Draft, Entry, Keep, Message, Row, wire_message, without_thinking
from agent.ports import Clock, IdSource
from agent.sessions import (
    CompressionState,
    Conversation,
    EndReason,
    Session,
    SessionPrefix,
)
from storage.codec import clean, encode
from storage.memory_records import OPEN_STATES, KeptList, Segment, Turn
from storage.places import key_of_today
from storage.titles import next_title


class MemoryTables:
    """Conversations, their sessions, rows and turns. The counterpart of the tables in SQL."""

    def __init__(self, clock: Clock, ids: IdSource, estimate: Callable[[Message], int]) -> None:
        self._clock = clock
        self._ids = ids
        self._estimate = estimate
        self.conversations: dict[str, Conversation] = {}
        self.routes: dict[str, str] = {}
        self.segments: dict[str, Segment] = {}
        self.turns: dict[str, Turn] = {}
        self.prepared: dict[str, KeptList] = {}
        """By session."""
        self.steered: set[int] = set()
        """Originals that came into a turn, and began none."""
        self.moved: dict[tuple[str, str, str], str] = {}
        """Platform, bot, old chat → the chat's id of today."""
        self.requests: list[tuple[float, RequestEntry]] = []
        """When each was entered, in order; owners are never None."""
        self.newest_row_id = 0

    # who is who

    def segment(self, session_id: str) -> Segment:
        if session_id not in self.segments:
            raise SessionNotFound(session_id)
        return self.segments[session_id]

    def conversation(self, conversation_id: str) -> Conversation:
        if conversation_id not in self.conversations:
            raise SessionNotFound(conversation_id)
        return self.conversations[conversation_id]

    def today(self, platform: str, bot_id: str, chat_id: str) -> str:
        """The chat's id of today."""
        return self.moved.get((platform, bot_id, chat_id), chat_id)

    def conversation_for_key(self, session_key: str) -> Conversation | None:
        conversation_id = self.routes.get(key_of_today(session_key, self.today))
        return None if conversation_id is None else self.conversations[conversation_id]

    def tip_of(self, conversation_id: str) -> Segment:
        return self.segments[self.conversation(conversation_id).tip_session_id]

    def segments_of(self, conversation_id: str) -> list[Segment]:
        return [s for s in self.segments.values() if s.session.conversation_id == conversation_id]

    def is_live_tip(self, session: Session) -> bool:
        tip = self.conversations[session.conversation_id].tip_session_id
        return session.ended_at is None and tip == session.id

    def covered(self, segment: Segment, revision: int, row_id: int) -> int | None:
        """How many rows a plan has seen; None if something moved since it was made."""
        if not self.is_live_tip(segment.session) or segment.session.revision != revision:
            return None
        places = [place for place, row in enumerate(segment.rows) if row.id == row_id]
        return places[0] + 1 if places else None

    def at_work(self, conversation_id: str) -> bool:
        """Is a turn of the conversation running?"""
        return any(
            turn.state == "running" and turn.ticket.conversation_id == conversation_id
            for turn in self.turns.values()
        )

    def require_rest(self, conversation_id: str, *, but_of_key: str = "") -> None:
        """Refuse while a turn of the conversation is not over (other than this key's)."""
        for turn in self.turns.values():
            here = turn.ticket.conversation_id == conversation_id
            if here and turn.session_key != but_of_key and turn.state in OPEN_STATES:
                raise StaleTurn(f"{turn.ticket.turn_id} is not over")

    # sessions

    def new_conversation(
        self,
        session_key: str,
        owner: str,
        prefix: SessionPrefix,
        *,
        forked_from: Session | None = None,
        title: str | None = None,
    ) -> Segment:
        session_key = key_of_today(session_key, self.today)
        conversation_id, session_id = self._ids.new("c"), self._ids.new("s")
        now = self._clock.now()
        self.conversations[conversation_id] = Conversation(
            conversation_id, owner, session_key, session_id, now
        )
        self.routes[session_key] = conversation_id
        segment = self._new_segment(session_id, conversation_id, prefix, forked_from)
        if forked_from is not None:
            compression = forked_from.compression
            segment.session = replace(
                segment.session, link="branch", title=title, compression=compression
            )
        return segment

    def _new_segment(
        self,
        session_id: str,
        conversation_id: str,
        prefix: SessionPrefix,
        parent: Session | None = None,
    ) -> Segment:
        prefix = replace(copy.deepcopy(prefix), system_prompt=clean(prefix.system_prompt))
        segment = Segment(
            Session(
                id=session_id,
                conversation_id=conversation_id,
                parent_session_id=None if parent is None else parent.id,
                link=None if parent is None else "continuation",
                revision=0,
                prefix=prefix,
                title=None,
                started_at=self._clock.now(),
                ended_at=None,
                end_reason=None,
                message_count=0,
                anchor=None,
                compression=CompressionState(),
            )
        )
        self.segments[session_id] = segment
        return segment

    def continue_in_child(
        self,
        parent: Segment,
        end_reason: EndReason,
        entries: Sequence[Entry],
        known: Mapping[int, Row],
        compression: CompressionState,
        *,
        prefix: SessionPrefix | None = None,
        manifest: dict[str, Any] | None = None,
    ) -> Segment:
        """Close a live tip and go on in a child that holds these entries."""
        session = parent.session
        title = session.title
        if end_reason == "compression":
            others = [s.session.title for s in self.segments_of(session.conversation_id)]
            title = next_title(title, others)
        child = self._new_segment(
            self._ids.new("s"), session.conversation_id, prefix or session.prefix, session
        )
        child.session = replace(
            child.session,
            title=title,
            compression=compression,
            manifest=copy.deepcopy(manifest),
        )
        self.fill(child, entries, known)
        parent.session = replace(session, ended_at=self._clock.now(), end_reason=end_reason)
        conversation = self.conversations[session.conversation_id]
        self.conversations[conversation.id] = replace(conversation, tip_session_id=child.session.id)
        self.prepared.pop(session.id, None)
        return child

    def fill(self, child: Segment, entries: Sequence[Entry], known: Mapping[int, Row]) -> None:
        """Put the list of a session that was just made."""
        for entry in entries:
            if isinstance(entry, Keep):
                self._copy(child, known[entry.row_id], with_thinking=entry.with_thinking)
            else:
                self.append(child, (entry,))
        child.carried_row_id = self.newest_row_id
        child.session = replace(child.session, message_count=len(child.rows))

    # rows

    def tokens(self, message: Message) -> int:
        """By the estimate that rows are stored with."""
        return self._estimate(message)

    def append(self, segment: Segment, drafts: Iterable[Draft]) -> list[Row]:
        """Put messages at the end of the list."""
        stored = []
        for draft in drafts:
            message, wire = copy.deepcopy(encode(draft)[1:])
            self.newest_row_id += 1
            segment.last_seq += 1
            row = Row(
                id=self.newest_row_id,
                session_id=segment.session.id,
                seq=segment.last_seq,
                message=message,
                created_at=self._clock.now(),
                wire_content=wire,
                kind=draft.kind,
                origin_id=draft.origin_id,
            )
            stored.append(replace(row, tokens=self._estimate(wire_message(row))))
        segment.rows.extend(stored)
        segment.session = replace(segment.session, message_count=len(segment.rows))
        return stored

    def _copy(self, segment: Segment, row: Row, *, with_thinking: bool = False) -> None:
        self.newest_row_id += 1
        segment.last_seq += 1
        bare = row.message if with_thinking else without_thinking(row.message)
        copied = replace(
            row,
            id=self.newest_row_id,
            session_id=segment.session.id,
            seq=segment.last_seq,
            message=bare,
            origin_id=row.root_id,
        )
        if bare is not row.message:
            copied = replace(copied, tokens=self._estimate(wire_message(copied)))
        segment.rows.append(copied)

    def replace_list(self, segment: Segment, entries: Sequence[Entry]) -> None:
        """Make the session's list these entries, as a new revision."""
        old, segment.rows = segment.rows, []
        known = {row.id: row for row in old}
        changed = False
        for place, entry in enumerate(entries):
            row = known.get(entry.row_id) if isinstance(entry, Keep) else None
            changed = changed or place >= len(old) or row is not old[place]
            if row is None:
                assert isinstance(entry, Draft)
                self.append(segment, (entry,))
            elif not changed:
                segment.rows.append(row)
            elif _stays_valid(entry) or without_thinking(row.message) is row.message:
                segment.last_seq += 1
                segment.rows.append(replace(row, seq=segment.last_seq))
            else:
                self._copy(segment, row)
        kept = {row.id for row in segment.rows}
        segment.replaced.extend(row for row in old if row.id not in kept)
        self.new_revision(segment)

    def new_revision(self, segment: Segment) -> None:
        """The list has become another one: what was measured for the old one is void."""
        segment.session = replace(
            segment.session,
            revision=segment.session.revision + 1,
            message_count=len(segment.rows),
            anchor=None,
        )
        self.prepared.pop(segment.session.id, None)

    def taken_back(self, conversation_id: str) -> set[int]:
        """The originals that an undo took away in this conversation."""
        segments = self.segments_of(conversation_id)
        return {row.root_id for segment in segments for row in segment.taken_back}


def _stays_valid(entry: Entry) -> bool:
    return isinstance(entry, Keep) and entry.with_thinking
