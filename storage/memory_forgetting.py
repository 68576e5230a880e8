"""Owns forgetting and retention in memory, over the tables of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from agent.brought import anew, split
from agent.forgetting import (
    Cleared,
    ClearedConversation,
    ForgetRequest,
    Holdings,
    tombstone_of,
)
from agent.mail import Address, OutboxDraft, OutboxItem
from agent.messages import Draft, Keep, Row, wire_message, without_thinking
from agent.sessions import CompressionState, Conversation
from storage.codec import clean
from storage.forgotten import Begun, Choice, Known, choose
from storage.memory_jobs import MemoryJobs
from storage.memory_mailbox import MemoryMailbox
from storage.memory_notes import MemoryNotes
from storage.memory_pairings import MemoryPairings
from storage.memory_records import OPEN_STATES, Segment, Turn
from storage.memory_tables import MemoryTables
from storage.segment import UNINDEXED_TOOLS
from storage.silent import Heard, to_clear


class MemoryForgetting:
    """The counterpart of `storage.forgetting` and `storage.retention`; it knows of no files."""

    def __init__(
        self,
        tables: MemoryTables,
        mail: MemoryMailbox,
        notes: MemoryNotes,
        pairings: MemoryPairings,
        jobs: MemoryJobs,
        now: Callable[[], float],
    ) -> None:
        self._tables = tables
        self._mail = mail
        self._notes = notes
        self._pairings = pairings
        self._jobs = jobs
        self._now = now
        self._marks: dict[str, ForgetRequest] = {}
        self._cleared: dict[str, ClearedConversation] = {}

    # the wish

    def begin(
        self, owner: str, *, inbox_id: int | None = None, answer_to: Address | None = None
    ) -> ForgetRequest:
        owner = clean(owner)
        if inbox_id is not None:
            self._mail.answer((inbox_id,))
        newest = self._mail.newest_id if inbox_id is None else inbox_id
        return self._marks.setdefault(owner, ForgetRequest(owner, newest, answer_to))

    def marks(self) -> list[ForgetRequest]:
        return [request for _, request in sorted(self._marks.items())]

    def finish(self, owner: str, owed: Sequence[OutboxDraft] = ()) -> tuple[OutboxItem, ...]:
        struck = self._marks.pop(clean(owner), None)
        return () if struck is None else self._mail.owe(owed, None, self._now())

    # what is held

    def holdings(self, owner: str) -> Holdings:
        owner = clean(owner)
        own, choice = self._own(owner), self._choice(owner)
        ids = (*(c.id for c in own), *sorted(choice.first))
        keys = {self._tables.conversations[one].session_key for one in ids}
        keys |= {t.session_key for t in self._turns(owner) if t.state in OPEN_STATES}
        said = [row for c in own for row in self._rows(c.id)]
        return Holdings(
            messages=len(choice.originals)
            + sum(row.origin_id is None and row.kind is None for row in said),
            conversations=len(own),
            shared=len(choice.shared),
            notes=self._notes.count_of(owner),
            jobs=self._jobs.count_of(owner),
            mail=self._mail.count_of(owner),
            keys=tuple(sorted(keys - {""})),
            conversation_ids=ids,
        )

    def sessions_of(self, conversation_ids: Sequence[str]) -> tuple[str, ...]:
        segments = (s for one in conversation_ids for s in self._tables.segments_of(one))
        return tuple(sorted(segment.session.id for segment in segments))

    def _own(self, owner: str) -> list[Conversation]:
        return [
            c for c in self._tables.conversations.values() if c.owner == owner and self._alone(c)
        ]

    def _alone(self, conversation: Conversation) -> bool:
        if not conversation.session_key.endswith(",null]"):
            return True
        others = any(
            turn.owner != conversation.owner
            for turn in self._tables.turns.values()
            if turn.ticket.conversation_id == conversation.id
        )
        segments = self._tables.segments_of(conversation.id)
        return not others and all(s.session.link != "branch" for s in segments)

    def _turns(self, owner: str) -> list[Turn]:
        return [turn for turn in self._tables.turns.values() if turn.owner == owner]

    def _choice(self, owner: str) -> Choice:
        own = {c.id for c in self._own(owner)}
        turns = [
            Begun(t.ticket.conversation_id, t.ticket.user_row_id, t.owner)
            for t in self._tables.turns.values()
            if t.ticket.conversation_id not in own
        ]
        around = self._around(
            owner, {turn.conversation_id for turn in turns if turn.owner == owner}
        )
        known = [
            row
            for one in self._tables.conversations
            if one not in own
            for row in self._known(one, covers=one in around)
        ]
        theirs = {row.id for one in own for row in self._rows(one)}
        return choose(owner, turns, known, theirs)

    def _known(self, conversation_id: str, *, covers: bool) -> Iterator[Known]:
        for segment in self._tables.segments_of(conversation_id):
            inside = [
                (max(each.row_ids, default=0), each.carried_row_id)
                for each in segment.replaced_lists
            ]
            for row in _everything(segment):
                carried = row.id <= segment.carried_row_id
                made = carried or any(low < row.id <= high for low, high in inside)
                made = made or row.message.get("name") in UNINDEXED_TOOLS
                origin = row.origin_id
                made = origin is None and made
                rides = covers and bool(split(row.wire_content)[0])
                yield Known(row.id, conversation_id, row.kind, origin, made, rides)

    def _rows(self, conversation_id: str) -> Iterator[Row]:
        for segment in self._tables.segments_of(conversation_id):
            yield from _everything(segment)

    # erasing

    def erase(self, owner: str) -> ForgetRequest:
        owner = clean(owner)
        request = self._marks.get(owner)
        if request is None:
            raise LookupError(f"nobody asked to forget {owner}")
        if request.erased is not None:
            return request
        erased, own, choice = self.holdings(owner), self._own(owner), self._choice(owner)
        turns = self._turns(owner)
        self._mail.clear_answers(owner, {c.id for c in own}, self._jobs.said_for(owner))
        for one in choice.shared:
            conversation = self._tables.conversations[one]
            if conversation.owner == owner or self._mail.titled(owner, conversation.session_key):
                self._untitle(one)
        for one, first in choice.first.items():
            self._silence(one, choice.row_ids)
            self._uncover(one, choice.rides)
            self._go_on_behind(one, first, choice.row_ids | choice.rides)
        for conversation in own:
            self._empty_out(conversation)
        for turn in turns:
            if turn.state in OPEN_STATES:
                self._mail.answer(self._mail.ids_of_turn(turn.ticket.turn_id))
                turn.state, turn.preview = "stopped", None
            turn.owner = turn.session_key = ""
        self._mail.forget_person(owner, request.upto_inbox_id, self._now())
        self._notes.forget_person(owner)
        self._jobs.forget_person(owner)
        self._pairings.forget_person(*owner.partition(":")[::2])
        self._marks[owner] = request = request.gone(erased, ())
        return request

    def _silence(self, conversation_id: str, gone: frozenset[int] | None) -> None:
        """``gone``: these rows; None: all."""
        for segment in self._tables.segments_of(conversation_id):
            for rows in (segment.rows, segment.replaced, segment.taken_back):
                rows[:] = [
                    self._silenced(row) if gone is None or row.id in gone else row for row in rows
                ]

    def _around(self, owner: str, touched: set[str]) -> set[str]:
        """Conversations at the places of these, and of this person's notes."""
        every = self._tables.conversations
        keys = {every[one].session_key for one in touched} | self._notes.places_of(owner)
        return {c.id for c in every.values() if c.session_key in keys - {""}}

    def _uncover(self, conversation_id: str, rides: frozenset[int]) -> None:
        """Take off what rode in messages of others."""
        for segment in self._tables.segments_of(conversation_id):
            for rows in (segment.rows, segment.replaced, segment.taken_back):
                for n, row in enumerate(rows):
                    if row.id in rides:
                        bare = anew(Draft(row.message, row.wire_content), "").wire_content
                        less = replace(row, wire_content=bare)
                        tokens = self._tables.tokens(wire_message(less))
                        rows[n] = replace(less, tokens=tokens)

    def _silenced(self, row: Row) -> Row:
        bare = replace(row, message=tombstone_of(row.message, row.kind), wire_content=None)
        return replace(bare, tokens=self._tables.tokens(wire_message(bare)))

    def _untitle(self, conversation_id: str) -> None:
        for segment in self._tables.segments_of(conversation_id):
            segment.session = replace(segment.session, title=None)

    def _void(self, segment: Segment) -> None:
        segment.session = replace(segment.session, manifest=None, anchor=None)
        self._tables.prepared.pop(segment.session.id, None)

    def _go_on_behind(self, conversation_id: str, first: int, gone: frozenset[int]) -> None:
        segments = self._tables.segments_of(conversation_id)
        since = next(n for n, s in enumerate(segments) if first in {r.id for r in _everything(s)})
        for segment in segments[since:]:
            self._void(segment)
        tip = self._tables.tip_of(conversation_id)
        changed = [n for n, row in enumerate(tip.rows) if row.id in gone]
        if not changed:
            return
        if tip.session.ended_at is None:
            entries = [Keep(row.id) for row in tip.rows]
            known = {row.id: row for row in tip.rows}
            state = tip.session.compression
            self._tables.continue_in_child(tip, "switch", entries, known, state)
            return
        tip.rows[changed[0] :] = [
            replace(row, message=without_thinking(row.message)) for row in tip.rows[changed[0] :]
        ]
        self._tables.new_revision(tip)

    def _empty_out(self, conversation: Conversation) -> None:
        self._silence(conversation.id, None)
        self._untitle(conversation.id)
        for segment in self._tables.segments_of(conversation.id):
            self._void(segment)
            segment.session = replace(segment.session, compression=CompressionState())
        tip = self._tables.tip_of(conversation.id)
        self._tables.new_revision(tip)
        if tip.session.ended_at is None:
            tip.session = replace(tip.session, ended_at=self._now(), end_reason="reset")
        self._unroute(conversation.id)
        self._tables.conversations[conversation.id] = replace(
            conversation, owner="", session_key=""
        )

    def _unroute(self, conversation_id: str) -> None:
        for key, led_to in list(self._tables.routes.items()):
            if led_to == conversation_id:
                del self._tables.routes[key]

    # retention

    def clear_silent(self, before: float, *, conversations: int = 20) -> Cleared:
        heard = [self._heard(one) for one in self._tables.conversations.values()]
        chosen, more = to_clear(heard, list(self._forks()), before, conversations)
        rows = [row for one in chosen for row in self._rows(one)]
        for one in chosen:
            ids = tuple(sorted(s.session.id for s in self._tables.segments_of(one)))
            self._cleared[one] = ClearedConversation(one, ids)
            self._delete(one)
        if not more:
            self._mail.clear_old(before, self._now())
        return Cleared(len(chosen), len(rows), sum(map(_text_bytes, rows)), more)

    def cleared(self, *, limit: int = 100) -> list[ClearedConversation]:
        return [self._cleared[one] for one in sorted(self._cleared)[:limit]]

    def strike_cleared(self, conversation_ids: Sequence[str]) -> None:
        for one in conversation_ids:
            self._cleared.pop(one, None)

    def _heard(self, conversation: Conversation) -> Heard:
        tip = self._tables.tip_of(conversation.id)
        newest = tip.rows[-1].created_at if tip.rows else 0.0
        busy = any(
            turn.state in OPEN_STATES and turn.ticket.conversation_id == conversation.id
            for turn in self._tables.turns.values()
        )
        last_of_all = any(
            row.id == self._tables.newest_row_id for row in self._rows(conversation.id)
        )
        leads_here = self._tables.routes.get(conversation.session_key) == conversation.id
        asked = self._mail.newest_command_at(conversation.session_key) if leads_here else 0.0
        at = max(conversation.created_at, tip.session.started_at, newest, asked)
        return Heard(conversation.id, at, busy or last_of_all)

    def _forks(self) -> Iterator[tuple[str, str]]:
        for segment in self._tables.segments.values():
            session = segment.session
            if session.link == "branch" and session.parent_session_id is not None:
                parent = self._tables.segments[session.parent_session_id].session
                yield session.conversation_id, parent.conversation_id

    def _delete(self, conversation_id: str) -> None:
        tables = self._tables
        turns = [
            turn_id
            for turn_id, turn in tables.turns.items()
            if turn.ticket.conversation_id == conversation_id
        ]
        self._mail.drop_conversation(conversation_id, turns, self._now())
        for turn_id in turns:
            del tables.turns[turn_id]
        tables.steered -= {row.id for row in self._rows(conversation_id)}
        tables.requests = [
            (at, replace(e, conversation_id=None) if e.conversation_id == conversation_id else e)
            for at, e in tables.requests
        ]
        self._unroute(conversation_id)
        for segment in tables.segments_of(conversation_id):
            tables.prepared.pop(segment.session.id, None)
            del tables.segments[segment.session.id]
        del tables.conversations[conversation_id]


def _everything(segment: Segment) -> list[Row]:
    return [*segment.rows, *segment.replaced, *segment.taken_back]


def _text_bytes(row: Row) -> int:
    return len(str(row.message["content"] or "").encode())
