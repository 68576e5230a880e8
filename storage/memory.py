"""Owns the in-memory store: the same contract in plain Python, for tests and for plugin authors.

No method waits for anything, so each runs whole: that is its transaction. Whatever may raise is
decided before the first change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agent.errors import SessionEnded, SessionNotFound, StaleTurn
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
from agent.messages import Draft, Entry, Keep, Message, Row, wire_message, without_thinking
from agent.model_metadata import estimate_message_tokens
from agent.ports import Appended, Clock, IdSource, Usage
from agent.sessions import (
    ChangeResult,
    CompressionState,
    Conversation,
    EndReason,
    Hit,
    InterruptedTurn,
    LoadedSession,
    RewriteRequest,
    SearchScope,
    Session,
    SessionInfo,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
    UsageAnchor,
)
from storage.codec import clean, encode
from storage.memory_mailbox import MemoryMailbox
from storage.repair import (
    DELIBERATE_ENDS,
    check_plan,
    plan_repair,
    repaired_in_memory,
)
from storage.segment import Term, indexable_text, query_terms, snippet, weigh
from storage.titles import next_title
from storage.turns import address_of_key

TurnState = Literal["running", "interrupted", "crashed", "done", "failed", "stopped"]
_OPEN: tuple[TurnState, ...] = ("running", "interrupted", "crashed")


@dataclass(slots=True)
class _Segment:
    """A session with everything ever stored in it."""

    session: Session
    rows: list[Row] = field(default_factory=list)
    """The list, in order."""
    replaced: list[Row] = field(default_factory=list)
    last_seq: int = 0


@dataclass(slots=True)
class _Turn:
    ticket: TurnTicket
    session_key: str
    owner: str
    started_at: float
    state: TurnState = "running"
    crashes: int = 0
    crash_row_id: int = 0


@dataclass(slots=True)
class _Lease:
    holder: str
    expires_at: float


class MemoryStore:
    """`agent.ports.Store` that is gone when the process is."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        *,
        estimate: Callable[[Message], int] = estimate_message_tokens,
        set_aside_notice: str = "This message was set aside after repeated crashes.",
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._estimate = estimate
        self._set_aside_notice = set_aside_notice
        self._identity = ids.new("store")
        self._conversations: dict[str, Conversation] = {}
        self._routes: dict[str, str] = {}
        self._segments: dict[str, _Segment] = {}
        self._turns: dict[str, _Turn] = {}
        self._leases: dict[str, _Lease] = {}
        self._mail = MemoryMailbox()
        self._newest_row_id = 0

    # conversations

    async def conversation_for_key(self, session_key: str) -> Conversation | None:
        conversation_id = self._routes.get(session_key)
        return None if conversation_id is None else self._conversations[conversation_id]

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return self._conversations.get(conversation_id)

    async def start_conversation(
        self,
        session_key: str,
        owner: str,
        prefix: SessionPrefix,
        *,
        end_reason: EndReason = "reset",
    ) -> Session:
        old = await self.conversation_for_key(session_key)
        if old is not None:
            tip = self._segments[old.tip_session_id]
            if tip.session.ended_at is None:
                tip.session = replace(
                    tip.session, ended_at=self._clock.now(), end_reason=end_reason
                )
        return self._new_conversation(session_key, owner, prefix).session

    def _new_conversation(self, session_key: str, owner: str, prefix: SessionPrefix) -> _Segment:
        conversation_id, session_id = self._ids.new("c"), self._ids.new("s")
        now = self._clock.now()
        self._conversations[conversation_id] = Conversation(
            conversation_id, owner, session_key, session_id, now
        )
        self._routes[session_key] = conversation_id
        return self._new_segment(session_id, conversation_id, prefix)

    def _new_segment(
        self,
        session_id: str,
        conversation_id: str,
        prefix: SessionPrefix,
        parent: Session | None = None,
        compression: CompressionState | None = None,
    ) -> _Segment:
        prefix = replace(copy.deepcopy(prefix), system_prompt=clean(prefix.system_prompt))
        segment = _Segment(
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
                compression=compression or CompressionState(),
            )
        )
        self._segments[session_id] = segment
        return segment

    # sessions

    async def session(self, session_id: str) -> Session:
        return self._segment(session_id).session

    def _segment(self, session_id: str) -> _Segment:
        if session_id not in self._segments:
            raise SessionNotFound(session_id)
        return self._segments[session_id]

    async def tip(self, session_id: str) -> Session:
        return (await self.lineage(session_id))[-1]

    async def lineage(self, session_id: str) -> list[Session]:
        chain = [self._segment(session_id).session]
        while chain[0].link == "continuation" and chain[0].parent_session_id is not None:
            chain.insert(0, self._segments[chain[0].parent_session_id].session)
        while (child := self._child_of(chain[-1].id)) is not None:
            chain.append(child)
        return chain

    def _child_of(self, session_id: str) -> Session | None:
        for segment in self._segments.values():
            session = segment.session
            if session.parent_session_id == session_id and session.link == "continuation":
                return session
        return None

    def _is_live_tip(self, session: Session) -> bool:
        tip = self._conversations[session.conversation_id].tip_session_id
        return session.ended_at is None and tip == session.id

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        return self._load(self._segment(session_id), ticket)

    def _load(self, segment: _Segment, ticket: TurnTicket | None) -> LoadedSession:
        repair = plan_repair(segment.rows)
        session = segment.session
        others = any(
            turn.state == "running"
            and turn.ticket.conversation_id == session.conversation_id
            and (ticket is None or turn.ticket.turn_id != ticket.turn_id)
            for turn in self._turns.values()
        )
        if repair is not None and (session.ended_at is not None or others):
            return LoadedSession(
                segment.session, tuple(_own(repaired_in_memory(segment.rows, repair)))
            )
        if repair is not None and repair.is_append:
            self._append(segment, repair.stubs)
        elif repair is not None:
            self._replace_list(segment, repair.entries)
        return LoadedSession(segment.session, tuple(_own(segment.rows)))

    async def split(self, request: SplitRequest) -> ChangeResult:
        parent = self._segment(request.parent_id)
        if request.conversation_id not in self._conversations:
            raise SessionNotFound(request.conversation_id)
        tip_id = self._conversations[request.conversation_id].tip_session_id
        covered = self._covered(parent, request.expected_revision, request.covered_row_id)
        if covered is None or tip_id != parent.session.id:
            return ChangeResult(False, self._segments[tip_id].session)
        later = parent.rows[covered:]
        check_plan(request.entries, [row.id for row in parent.rows[:covered]], later=len(later))
        titles = [session.title for session in await self.lineage(parent.session.id)]
        child = self._new_segment(
            self._ids.new("s"),
            parent.session.conversation_id,
            request.prefix or parent.session.prefix,
            parent.session,
            request.compression,
        )
        title = next_title(parent.session.title, titles)
        child.session = replace(
            child.session, title=title, manifest=copy.deepcopy(request.manifest)
        )
        known = {row.id: row for row in parent.rows}
        for entry in [*request.entries, *(Keep(row.id) for row in later)]:
            if isinstance(entry, Keep):
                self._copy(child, known[entry.row_id])
            else:
                self._append(child, (entry,))
        child.session = replace(child.session, message_count=len(child.rows))
        parent.session = replace(
            parent.session, ended_at=self._clock.now(), end_reason=request.end_reason
        )
        self._move_tip(child.session)
        if request.lease_holder is not None:
            await self.release_lease(request.conversation_id, request.lease_holder)
        return ChangeResult(True, child.session)

    def _covered(self, segment: _Segment, revision: int, row_id: int) -> int | None:
        if not self._is_live_tip(segment.session) or segment.session.revision != revision:
            return None
        places = [place for place, row in enumerate(segment.rows) if row.id == row_id]
        return places[0] + 1 if places else None

    def _move_tip(self, session: Session) -> None:
        conversation = self._conversations[session.conversation_id]
        self._conversations[conversation.id] = replace(conversation, tip_session_id=session.id)

    async def rewrite(self, request: RewriteRequest) -> ChangeResult:
        target = self._segment(request.session_id)
        covered = self._covered(target, request.expected_revision, request.covered_row_id)
        if covered is None:
            conversation = self._conversations[target.session.conversation_id]
            return ChangeResult(False, self._segments[conversation.tip_session_id].session)
        later = target.rows[covered:]
        check_plan(request.entries, [row.id for row in target.rows[:covered]], later=len(later))
        self._replace_list(target, [*request.entries, *(Keep(row.id) for row in later)])
        if request.compression is not None:
            target.session = replace(target.session, compression=request.compression)
        if request.manifest is not None:
            target.session = replace(target.session, manifest=copy.deepcopy(request.manifest))
        return ChangeResult(True, target.session)

    def _replace_list(self, segment: _Segment, entries: Sequence[Entry]) -> None:
        old, segment.rows = segment.rows, []
        known = {row.id: row for row in old}
        changed = False
        for place, entry in enumerate(entries):
            row = known.get(entry.row_id) if isinstance(entry, Keep) else None
            changed = changed or place >= len(old) or row is not old[place]
            if row is None:
                assert isinstance(entry, Draft)
                self._append(segment, (entry,))
            elif not changed:
                segment.rows.append(row)
            elif without_thinking(row.message) is row.message:
                segment.last_seq += 1
                segment.rows.append(replace(row, seq=segment.last_seq))
            else:
                self._copy(segment, row)
        kept = {row.id for row in segment.rows}
        segment.replaced.extend(row for row in old if row.id not in kept)
        segment.session = replace(
            segment.session,
            revision=segment.session.revision + 1,
            message_count=len(segment.rows),
            anchor=None,
        )

    async def set_compression(self, session_id: str, state: CompressionState) -> None:
        segment = self._segments.get(session_id)
        if segment is not None and segment.session.ended_at is None:
            segment.session = replace(segment.session, compression=state)

    async def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        if conversation_id not in self._conversations:
            raise SessionNotFound(conversation_id)
        now = self._clock.now()
        lease = self._leases.get(conversation_id)
        foreign = None if lease is None or lease.holder == holder else lease
        if foreign is not None and now < foreign.expires_at <= now + ttl_seconds:
            return False
        self._leases[conversation_id] = _Lease(holder, now + ttl_seconds)
        return True

    async def release_lease(self, conversation_id: str, holder: str) -> None:
        lease = self._leases.get(conversation_id)
        if lease is not None and lease.holder == holder:
            del self._leases[conversation_id]

    # rows

    def _append(self, segment: _Segment, drafts: Iterable[Draft]) -> list[Row]:
        stored = []
        for draft in drafts:
            message, wire = copy.deepcopy(encode(draft)[1:])
            self._newest_row_id += 1
            segment.last_seq += 1
            row = Row(
                id=self._newest_row_id,
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

    def _copy(self, segment: _Segment, row: Row) -> None:
        self._newest_row_id += 1
        segment.last_seq += 1
        bare = without_thinking(row.message)
        copied = replace(
            row,
            id=self._newest_row_id,
            session_id=segment.session.id,
            seq=segment.last_seq,
            message=bare,
            origin_id=row.root_id,
        )
        if bare is not row.message:
            copied = replace(copied, tokens=self._estimate(wire_message(copied)))
        segment.rows.append(copied)

    # turns

    async def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        for inbox_id in opening.inbox_ids:
            turn = self._turns.get(self._mail.turn_of(inbox_id) or "")
            if turn is not None and turn.state in _OPEN:
                turn.state = "running"
                return turn.ticket
        if opening.inbox_ids and self._mail.all_answered(opening.inbox_ids):
            raise StaleTurn("these messages were answered before")
        tip = await self._live_tip(opening)
        repair = plan_repair(_end_of_list(tip.rows))
        if repair is not None and repair.is_append:
            self._append(tip, repair.stubs)
        (row,) = self._append(tip, (opening.message,))
        ticket = TurnTicket(self._ids.new("t"), tip.session.conversation_id, tip.session.id, row.id)
        self._turns[ticket.turn_id] = _Turn(
            ticket, opening.session_key, opening.owner, self._clock.now()
        )
        self._mail.claim(opening.inbox_ids, ticket.turn_id)
        return ticket

    async def _live_tip(self, opening: TurnOpening) -> _Segment:
        conversation = await self.conversation_for_key(opening.session_key)
        if conversation is not None:
            tip = self._segments[conversation.tip_session_id]
            if tip.session.ended_at is None:
                return tip
            if tip.session.end_reason not in DELIBERATE_ENDS:
                tip.session = replace(tip.session, ended_at=None, end_reason=None)
                return tip
        return self._new_conversation(opening.session_key, opening.owner, opening.prefix)

    async def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        self._running(ticket)
        return Appended(tuple(_own(self._append_live(ticket, session_id, messages, anchor_usage))))

    def _running(self, ticket: TurnTicket) -> _Turn:
        turn = self._turns.get(ticket.turn_id)
        if turn is None or turn.state != "running":
            raise StaleTurn(ticket.turn_id)
        return turn

    def _append_live(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        usage: Usage | None,
    ) -> list[Row]:
        segment = self._segments.get(session_id)
        if (
            segment is None
            or segment.session.conversation_id != ticket.conversation_id
            or not self._is_live_tip(segment.session)
        ):
            raise SessionEnded(session_id)
        stored = self._append(segment, messages)
        if stored and usage is not None and usage.prompt_tokens > 0:
            anchor = UsageAnchor(usage.prompt_tokens, usage.output_tokens, stored[0].id)
            segment.session = replace(segment.session, anchor=anchor)
        return stored

    async def finish_turn(
        self,
        ticket: TurnTicket,
        session_id: str,
        outcome: TurnOutcome,
        *,
        final: Draft | None = None,
        anchor_usage: Usage | None = None,
        outbox: Sequence[OutboxDraft] = (),
    ) -> tuple[OutboxItem, ...]:
        turn = self._running(ticket)
        if final is not None:
            self._append_live(ticket, session_id, (final,), anchor_usage)
        items = self._mail.owe(outbox, ticket.conversation_id, self._clock.now())
        self._mail.answer(self._mail.ids_of_turn(ticket.turn_id))
        turn.state = outcome
        return items

    async def interrupt_turn(self, ticket: TurnTicket) -> None:
        turn = self._turns.get(ticket.turn_id)
        if turn is not None and turn.state == "running":
            turn.state = "interrupted"

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        self._leases.clear()
        recovered = []
        for turn in self._turns.values():
            if turn.state not in _OPEN:
                continue
            if turn.state == "running":
                turn.crashes = 1 if self._progressed(turn) else turn.crashes + 1
                turn.crash_row_id = self._newest_row_id
                turn.state = "crashed"
            orderly = turn.state == "interrupted"
            inbox_ids = self._mail.ids_of_turn(turn.ticket.turn_id)
            if not orderly and turn.crashes >= crash_limit:
                self._set_aside(turn, inbox_ids)
                continue
            recovered.append(
                InterruptedTurn(
                    turn.ticket,
                    turn.session_key,
                    turn.owner,
                    inbox_ids,
                    turn.started_at,
                    turn.crashes,
                    orderly,
                )
            )
        return recovered

    def _progressed(self, turn: _Turn) -> bool:
        mark = max(turn.crash_row_id, turn.ticket.user_row_id)
        return any(
            row.id > mark
            and row.kind is None
            and row.origin_id is None
            and row.message["role"] in ("assistant", "tool")
            for segment in self._segments.values()
            if segment.session.conversation_id == turn.ticket.conversation_id
            for row in [*segment.rows, *segment.replaced]
        )

    def _set_aside(self, turn: _Turn, inbox_ids: tuple[int, ...]) -> None:
        turn.state = "failed"
        self._mail.answer(inbox_ids)
        address = self._mail.address_of(inbox_ids) or address_of_key(turn.session_key)
        if address is not None:
            notice = OutboxDraft(address, self._set_aside_notice, "notice")
            self._mail.owe((notice,), turn.ticket.conversation_id, self._clock.now())

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        turn = self._turns.get(ticket.turn_id)
        if turn is None or turn.state not in _OPEN:
            raise StaleTurn(ticket.turn_id)
        turn.state = "running"
        tip = self._segments[self._conversations[ticket.conversation_id].tip_session_id]
        if tip.session.ended_at is not None and tip.session.end_reason not in DELIBERATE_ENDS:
            tip.session = replace(tip.session, ended_at=None, end_reason=None)
        return self._load(tip, ticket)

    # mailbox

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        return self._mail.accept(record, cursor)

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        self._mail.quarantine(platform, bot_id, update_id, raw, reason)

    async def open_inbox(self) -> list[InboxItem]:
        return self._mail.open_inbox()

    async def inbox_items(self, inbox_ids: Sequence[int]) -> list[InboxItem]:
        return self._mail.inbox_items(inbox_ids)

    async def answer_inbox(
        self, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        if self._mail.all_answered(inbox_ids):
            return ()
        self._mail.answer(inbox_ids)
        return self._mail.owe(outbox, None, self._clock.now())

    async def owe(self, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
        (item,) = self._mail.owe((draft,), conversation_id, self._clock.now())
        return item

    async def owed(self) -> list[OutboxItem]:
        return self._mail.owed()

    async def plan_parts(
        self, outbox_id: int, parts: Sequence[PartDraft]
    ) -> tuple[OutboxPart, ...]:
        return self._mail.plan_parts(outbox_id, parts)

    async def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        self._mail.mark_part(part_id, state, platform_message_id, error)

    async def fail_outbox(self, outbox_id: int, error: str) -> None:
        self._mail.fail_outbox(outbox_id, error)

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        return self._mail.cursors(platform, bot_id)

    async def set_cursor(self, cursor: Cursor) -> None:
        self._mail.set_cursor(cursor)

    # archive

    async def search(self, query: str, scope: SearchScope, *, limit: int = 10) -> list[Hit]:
        query = clean(query)
        terms = query_terms(query) or [Term("", query.strip().lower())]
        if limit <= 0 or not query.strip():
            return []
        found: list[tuple[Row, str]] = []
        for row in self._originals(scope):
            text = indexable_text(row.message, row.kind, row.origin_id) or ""
            if any(term.needle in text.lower() for term in terms):
                found.append((row, text))
        found.sort(key=lambda pair: pair[0].id)
        shares = weigh([text for _, text in found], terms)
        hits = [
            Hit(
                row.id,
                row.session_id,
                row.message["role"],
                snippet(text, terms),
                share * (1 + 0.3 * place / len(found)),
                row.created_at,
            )
            for place, ((row, text), share) in enumerate(zip(found, shares, strict=True))
        ]
        return sorted(hits, key=lambda hit: (-hit.score, -hit.message_id))[:limit]

    def _originals(self, scope: SearchScope) -> Iterable[Row]:
        for segment in self._segments.values():
            conversation = self._conversations[segment.session.conversation_id]
            if scope.conversation_id not in (None, conversation.id):
                continue
            if scope.owner not in (None, conversation.owner):
                continue
            for row in [*segment.rows, *segment.replaced]:
                if row.origin_id is None and row.kind is None:
                    yield row

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        for session_id in self._segments:
            rows = await self.all_rows(session_id)
            if all(row.id != message_id for row in rows):
                continue
            originals = [row for row in rows if row.origin_id is None and row.kind is None]
            earlier = [row for row in originals if row.id < message_id]
            later = [row for row in originals if row.id > message_id]
            middle = [row for row in rows if row.id == message_id]
            return [
                *earlier[max(0, len(earlier) - max(0, before)) :],
                *middle,
                *later[: max(0, after)],
            ]
        return []

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        for session_id, segment in self._segments.items():
            if any(row.id == message_id for row in await self.all_rows(session_id)):
                return self._conversations[segment.session.conversation_id]
        return None

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        found = [
            self._info(segment)
            for segment in reversed(self._segments.values())
            if conversation_id in (None, segment.session.conversation_id)
        ]
        return found[: max(0, limit)]

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        return [self._info(self._segments[i]) for i in session_ids if i in self._segments]

    def _info(self, segment: _Segment) -> SessionInfo:
        session = segment.session
        return SessionInfo(
            id=session.id,
            conversation_id=session.conversation_id,
            parent_session_id=session.parent_session_id,
            link=session.link,
            source=session.prefix.source,
            model=session.prefix.model,
            title=session.title,
            started_at=session.started_at,
            ended_at=session.ended_at,
            end_reason=session.end_reason,
            message_count=session.message_count,
            tokens=sum(row.tokens for row in segment.rows),
        )

    async def active_rows(self, session_id: str) -> list[Row]:
        return _own(self._segment(session_id).rows)

    async def identity(self) -> str:
        return self._identity

    async def all_rows(self, session_id: str) -> list[Row]:
        segment = self._segments.get(session_id)
        if segment is None:
            return []
        return _own(sorted([*segment.rows, *segment.replaced], key=lambda row: row.id))

    # life

    async def close(self) -> None:
        """Nothing is held."""


def _own(rows: Iterable[Row]) -> list[Row]:
    """Rows that the caller may do anything with."""
    return [
        replace(
            row, message=copy.deepcopy(row.message), wire_content=copy.deepcopy(row.wire_content)
        )
        for row in rows
    ]


def _end_of_list(rows: Sequence[Row]) -> Sequence[Row]:
    """The last row that is no tool result, and the results behind it."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place].message["role"] != "tool":
            return rows[place:]
    return ()
