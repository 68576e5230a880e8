"""Owns the in-memory store: the same contract in plain Python, for tests and for plugin authors.

No method waits for anything, so each runs whole: that is its transaction. Whatever may raise is
decided before the first change.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from agent.errors import SessionEnded, SessionNotFound, StaleTurn
from agent.ledger import LedgerLine, LedgerScope, RequestEntry
from agent.lineages import (
    Answering,
    ConversationInfo,
    UncompressRequest,
    Undone,
    UsageTotals,
)
from agent.mail import (
    Address,
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
from agent.messages import Draft, Keep, Message, Row
from agent.model_metadata import estimate_message_tokens
from agent.pairings import Approval, PairingBook, PairingRequest
from agent.ports import Clock, IdSource, Usage
from agent.prepared import Prepared
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
from agent.store_ports import Appended
from storage.codec import clean
from storage.memory_ledger import MemoryLedger
from storage.memory_lineages import MemoryLineages
from storage.memory_mailbox import MemoryMailbox
from storage.memory_pairings import MemoryPairings
from storage.memory_prepared import MemoryShelf
from storage.memory_tables import OPEN_STATES, MemoryTables, ReplacedList, Segment, Turn, own
from storage.places import key_of_today, keys_of_chat, moved_keys
from storage.recovery import address_of_key
from storage.repair import (
    DELIBERATE_ENDS,
    check_plan,
    plan_repair,
    repaired_in_memory,
)
from storage.search.question import read_question
from storage.search.ranking import Candidate, best_first, rarity_among
from storage.search.snippet import snippet
from storage.segment import folded, indexable_text
from storage.undoing import has_summary, said_by_person, turns_in


@dataclass(slots=True)
class _Lease:
    holder: str
    expires_at: float


class MemoryStore:
    """`agent.store_ports.Store` that is gone when the process is."""

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
        self._set_aside_notice = set_aside_notice
        self._identity = ids.new("store")
        self._tables = MemoryTables(clock, ids, estimate)
        self._lineages = MemoryLineages(self._tables)
        self._ledger = MemoryLedger(self._tables, clock.now)
        self._shelf = MemoryShelf(self._tables, clock.now)
        self._pairings = MemoryPairings(clock.now)
        self._leases: dict[str, _Lease] = {}
        self._mail = MemoryMailbox(self._tables.today)

    # conversations

    async def conversation_for_key(self, session_key: str) -> Conversation | None:
        return self._tables.conversation_for_key(session_key)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return self._tables.conversations.get(conversation_id)

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
            tip = self._tables.segments[old.tip_session_id]
            if tip.session.ended_at is None:
                tip.session = replace(
                    tip.session, ended_at=self._clock.now(), end_reason=end_reason
                )
            self._tables.prepared.pop(tip.session.id, None)
        return self._tables.new_conversation(session_key, owner, prefix).session

    # sessions

    async def session(self, session_id: str) -> Session:
        return self._tables.segment(session_id).session

    async def tip(self, session_id: str) -> Session:
        return self._tables.tip_of(self._tables.segment(session_id).session.conversation_id).session

    async def lineage(self, session_id: str) -> list[Session]:
        chain = [self._tables.segment(session_id).session]
        while chain[0].link == "continuation" and chain[0].parent_session_id is not None:
            chain.insert(0, self._tables.segments[chain[0].parent_session_id].session)
        while (child := self._child_of(chain[-1].id)) is not None:
            chain.append(child)
        return chain

    def _child_of(self, session_id: str) -> Session | None:
        for segment in self._tables.segments.values():
            session = segment.session
            if session.parent_session_id == session_id and session.link == "continuation":
                return session
        return None

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        return self._load(self._tables.segment(session_id), ticket)

    def _load(self, segment: Segment, ticket: TurnTicket | None) -> LoadedSession:
        repair = plan_repair(segment.rows)
        session = segment.session
        others = any(
            turn.state == "running"
            and turn.ticket.conversation_id == session.conversation_id
            and (ticket is None or turn.ticket.turn_id != ticket.turn_id)
            for turn in self._tables.turns.values()
        )
        if repair is not None and (session.ended_at is not None or others):
            return LoadedSession(
                segment.session, tuple(own(repaired_in_memory(segment.rows, repair)))
            )
        if repair is not None and repair.is_append:
            self._tables.append(segment, repair.stubs)
        elif repair is not None:
            self._tables.replace_list(segment, repair.entries)
        return LoadedSession(segment.session, tuple(own(segment.rows)))

    async def split(self, request: SplitRequest) -> ChangeResult:
        tables = self._tables
        parent = tables.segment(request.parent_id)
        tip = tables.tip_of(request.conversation_id)
        covered = tables.covered(parent, request.expected_revision, request.covered_row_id)
        if covered is None or tip is not parent:
            return ChangeResult(False, tip.session)
        later = parent.rows[covered:]
        check_plan(request.entries, [row.id for row in parent.rows[:covered]], later=len(later))
        child = tables.continue_in_child(
            parent,
            request.end_reason,
            [*request.entries, *(Keep(row.id) for row in later)],
            {row.id: row for row in parent.rows},
            request.compression,
            prefix=request.prefix,
            manifest=request.manifest,
        )
        if request.lease_holder is not None:
            await self.release_lease(request.conversation_id, request.lease_holder)
        return ChangeResult(True, child.session)

    async def rewrite(self, request: RewriteRequest) -> ChangeResult:
        target = self._tables.segment(request.session_id)
        covered = self._tables.covered(target, request.expected_revision, request.covered_row_id)
        if covered is None:
            tip = self._tables.tip_of(target.session.conversation_id)
            return ChangeResult(False, tip.session)
        later = target.rows[covered:]
        if request.at_rest and (later or self._tables.at_work(target.session.conversation_id)):
            return ChangeResult(False, target.session)
        check_plan(request.entries, [row.id for row in target.rows[:covered]], later=len(later))
        before = tuple(row.id for row in target.rows)
        self._tables.replace_list(target, [*request.entries, *(Keep(row.id) for row in later)])
        if request.compression is not None:
            if request.compression.count > target.session.compression.count:
                remembered = ReplacedList(before, self._tables.newest_row_id, self._clock.now())
                target.replaced_lists.append(remembered)
            target.session = replace(target.session, compression=request.compression)
        if request.manifest is not None:
            target.session = replace(target.session, manifest=copy.deepcopy(request.manifest))
        return ChangeResult(True, target.session)

    async def set_compression(self, session_id: str, state: CompressionState) -> None:
        segment = self._tables.segments.get(session_id)
        if segment is not None and segment.session.ended_at is None:
            segment.session = replace(segment.session, compression=state)

    async def set_option(self, session_id: str, name: str, value: str | None) -> bool:
        segment = self._tables.segment(session_id)
        prefix = segment.session.prefix
        if segment.session.ended_at is not None:
            return False
        options = {**prefix.model_config, name: value}
        if value is None:
            del options[name]
        prefix = replace(prefix, model_config=options)
        segment.session = replace(segment.session, prefix=prefix)
        return True

    async def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        if conversation_id not in self._tables.conversations:
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

    # what is prepared

    async def save_prepared(self, prepared: Prepared) -> bool:
        return self._shelf.save(prepared)

    async def prepared(self, session_id: str) -> Prepared | None:
        return self._shelf.prepared(session_id)

    async def discard_prepared(self, session_id: str) -> bool:
        return self._shelf.discard(session_id)

    async def crowded(self, prompt_tokens: int, *, since: float, limit: int = 20) -> list[str]:
        return self._shelf.crowded(prompt_tokens, since, limit)

    # pairing

    async def ask_pairing(self, request: PairingRequest) -> bool:
        return self._pairings.ask(request)

    async def approve_pairing(self, code: str) -> Approval:
        return self._pairings.approve(code)

    async def revoke_pairing(self, platform: str, user_id: str) -> bool:
        return self._pairings.revoke(platform, user_id)

    async def pairings(self) -> PairingBook:
        return self._pairings.book()

    # lineages

    async def uncompressed(self, session_id: str) -> tuple[Row, ...]:
        conversation_id = self._tables.segment(session_id).session.conversation_id
        return tuple(own(self._lineages.before_compression(self._tables.tip_of(conversation_id))))

    async def uncompress(self, request: UncompressRequest) -> ChangeResult:
        return self._lineages.uncompress(request)

    async def branch(self, session_id: str, session_key: str, owner: str) -> Session:
        return self._lineages.branch(session_id, session_key, owner)

    async def undo(
        self, conversation_id: str, turns: int = 1, *, answering: Answering | None = None
    ) -> Undone:
        tip = self._tables.tip_of(conversation_id)
        if answering is not None and self._mail.all_answered((answering.inbox_id,)):
            raise StaleTurn("this command was answered before")
        self._tables.require_rest(conversation_id)
        removed = self._lineages.take_back(tip, turns) if tip.session.ended_at is None else ()
        turns_taken = turns_in(removed, self._tables.steered)
        undone = Undone(tip.session, removed, has_summary(tip.rows), turns_taken)
        if answering is None:
            return undone
        self._mail.answer((answering.inbox_id,))
        owed = self._mail.owe((answering.words(undone),), None, self._clock.now())
        return replace(undone, owed=owed)

    async def retry(self, opening: TurnOpening) -> TurnTicket | None:
        claimed = self._claimed_turn(opening)
        if claimed is not None:
            return claimed
        conversation = self._tables.conversation_for_key(opening.session_key)
        if conversation is None:
            return None
        self._tables.require_rest(conversation.id)
        tip = self._lineages.live_tip(opening.session_key)
        removed = () if tip is None else self._lineages.take_back(tip, 1)
        if tip is None or not removed:
            return None
        first, *steered = said_by_person(removed)
        return self._begin(tip, opening, first, steered)

    async def set_title(self, conversation_id: str, title: str | None) -> Session:
        return self._lineages.set_title(conversation_id, title)

    async def conversations_of(self, owner: str, *, limit: int = 20) -> list[ConversationInfo]:
        return self._lineages.infos(owner=owner, limit=limit)

    async def conversations_at(
        self, session_key: str, *, limit: int = 20
    ) -> list[ConversationInfo]:
        key = key_of_today(session_key, self._tables.today)
        return self._lineages.infos(session_key=key, limit=limit)

    async def resume(self, session_key: str, conversation_id: str) -> Session:
        return self._lineages.resume(session_key, conversation_id)

    async def usage_totals(self, conversation_id: str) -> UsageTotals:
        return self._lineages.usage_totals(conversation_id)

    # the ledger

    async def enter_request(self, entry: RequestEntry) -> None:
        self._ledger.enter_request(entry)

    async def ledger_lines(self, scope: LedgerScope) -> list[LedgerLine]:
        return self._ledger.lines(scope)

    async def compressions(self, scope: LedgerScope) -> int:
        return self._ledger.compressions(scope)

    async def first_time(self, owner: str, mark: str) -> bool:
        return self._ledger.first_time(owner, mark)

    # turns

    async def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        claimed = self._claimed_turn(opening)
        if claimed is not None:
            return claimed
        tip = self._lineages.live_tip(opening.session_key) or self._tables.new_conversation(
            opening.session_key, opening.owner, opening.prefix
        )
        return self._begin(tip, opening, opening.message)

    def _claimed_turn(self, opening: TurnOpening) -> TurnTicket | None:
        for inbox_id in opening.inbox_ids:
            turn = self._tables.turns.get(self._mail.turn_of(inbox_id) or "")
            if turn is not None and turn.state in OPEN_STATES:
                turn.state = "running"
                return turn.ticket
        if opening.inbox_ids and self._mail.all_answered(opening.inbox_ids):
            raise StaleTurn("these messages were answered before")
        return None

    def _begin(
        self, tip: Segment, opening: TurnOpening, message: Draft, steered: Sequence[Draft] = ()
    ) -> TurnTicket:
        repair = plan_repair(_end_of_list(tip.rows))
        if repair is not None and repair.is_append:
            self._tables.append(tip, repair.stubs)
        row, *further = self._tables.append(tip, (message, *steered))
        self._tables.steered.update(each.id for each in further)
        ticket = TurnTicket(self._ids.new("t"), tip.session.conversation_id, tip.session.id, row.id)
        key = key_of_today(opening.session_key, self._tables.today)
        self._tables.turns[ticket.turn_id] = Turn(ticket, key, opening.owner, self._clock.now())
        self._mail.claim(opening.inbox_ids, ticket.turn_id)
        return ticket

    async def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        self._running(ticket)
        return Appended(tuple(own(self._append_live(ticket, session_id, messages, anchor_usage))))

    async def steer(
        self, ticket: TurnTicket, session_id: str, inbox_ids: Sequence[int], message: Draft
    ) -> Appended | None:
        self._running(ticket)
        segment = self._tables.segments.get(session_id)
        calling = segment is not None and plan_repair(_end_of_list(segment.rows)) is not None
        if calling or not self._mail.all_waiting(inbox_ids):
            return None
        (row,) = self._append_live(ticket, session_id, (message,), None)
        self._tables.steered.add(row.id)
        self._mail.claim(inbox_ids, ticket.turn_id)
        return Appended(tuple(own((row,))))

    def _running(self, ticket: TurnTicket) -> Turn:
        turn = self._tables.turns.get(ticket.turn_id)
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
        segment = self._tables.segments.get(session_id)
        if (
            segment is None
            or segment.session.conversation_id != ticket.conversation_id
            or not self._tables.is_live_tip(segment.session)
        ):
            raise SessionEnded(session_id)
        stored = self._tables.append(segment, messages)
        if stored and usage is not None and usage.prompt_tokens > 0:
            anchor = UsageAnchor(usage.prompt_tokens, usage.output_tokens, stored[0].id)
            segment.session = replace(segment.session, anchor=anchor)
        if usage is not None and usage.prompt_tokens + usage.output_tokens > 0:
            owner = self._tables.turns[ticket.turn_id].owner
            self._ledger.enter_answer(ticket.conversation_id, owner, usage)
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
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is not None and turn.state == "running":
            turn.state = "interrupted"

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        self._leases.clear()
        recovered = []
        for turn in self._tables.turns.values():
            if turn.state not in OPEN_STATES:
                continue
            if turn.state == "running":
                turn.crashes = 1 if self._progressed(turn) else turn.crashes + 1
                turn.crash_row_id = self._tables.newest_row_id
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

    def _progressed(self, turn: Turn) -> bool:
        mark = max(turn.crash_row_id, turn.ticket.user_row_id)
        return any(
            row.id > mark
            and row.kind is None
            and row.origin_id is None
            and row.message["role"] in ("assistant", "tool")
            for segment in self._tables.segments.values()
            if segment.session.conversation_id == turn.ticket.conversation_id
            for row in [*segment.rows, *segment.replaced, *segment.taken_back]
        )

    def _set_aside(self, turn: Turn, inbox_ids: tuple[int, ...]) -> None:
        turn.state = "failed"
        self._mail.answer(inbox_ids)
        address = self._mail.address_of(inbox_ids) or address_of_key(turn.session_key)
        if address is not None:
            notice = OutboxDraft(address, self._set_aside_notice, "notice")
            self._mail.owe((notice,), turn.ticket.conversation_id, self._clock.now())

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is None or turn.state not in OPEN_STATES:
            raise StaleTurn(ticket.turn_id)
        turn.state = "running"
        tip = self._tables.tip_of(ticket.conversation_id)
        if tip.session.ended_at is not None and tip.session.end_reason not in DELIBERATE_ENDS:
            tip.session = replace(tip.session, ended_at=None, end_reason=None)
        return self._load(tip, ticket)

    # mailbox

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        return self._mail.accept(record, cursor)

    async def revise(self, record: InboxRecord) -> bool:
        return self._mail.revise(record)

    async def move_chat(
        self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
    ) -> bool:
        heir = self._tables.note_move(platform, bot_id, old_chat_id, new_chat_id)
        if heir is None:
            return False
        bounds = keys_of_chat(platform, bot_id, old_chat_id)
        keys = {*self._tables.keys(), *self._mail.keys()}
        moved = moved_keys((k for k in keys if bounds[0] <= k < bounds[1]), heir)
        self._tables.move_keys(moved)
        self._mail.move(moved, Address(platform, bot_id, old_chat_id), heir)
        return True

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        return self._tables.moved_chats(platform, bot_id)

    async def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        chat_id = self._tables.today(platform, bot_id, chat_id)
        bounds = keys_of_chat(platform, bot_id, chat_id)
        talked = {c.session_key for c in self._tables.conversations.values()}
        waiting = {item.record.session_key for item in self._mail.open_inbox()}
        owed = {item.draft.address for item in self._mail.owed()}
        return any(bounds[0] <= key < bounds[1] for key in talked | waiting) or any(
            (to.platform, to.bot_id, to.chat_id) == (platform, bot_id, chat_id) for to in owed
        )

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        self._mail.quarantine(platform, bot_id, update_id, raw, reason, self._clock.now())

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

    async def await_restart(
        self, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        if self._mail.all_answered((inbox_id,)):
            return ()
        items = await self.answer_inbox((inbox_id,), outbox)
        self._mail.await_restart(inbox_id)
        return items

    async def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        drafts = [OutboxDraft(place, text, "notice") for place in self._mail.take_restarts()]
        return self._mail.owe(drafts, None, self._clock.now())

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

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        question = read_question(clean(query))
        if limit <= 0 or not question.text:
            return []
        said = {row.id: row for row in sorted(self._originals(scope), key=lambda row: row.id)}
        bound = math.inf if before_id is None else before_id
        candidates = {
            i: c
            for i, row in said.items()
            if i < bound or row.message["role"] == "tool"
            if (c := _candidate(row)) is not None
        }
        found = [
            replace(c, match=1.0)
            for c in candidates.values()
            for text in [folded(c.text)]
            if any(term.is_in(text) for term in question.needles)
        ]
        lines = self._lines(said.values())

        def near(best: Sequence[Candidate]) -> dict[int, list[tuple[int, Candidate]]]:
            return {
                c.message_id: [
                    (offset, candidates[line[at + offset]])
                    for line, at in [lines.get(c.message_id, ([], 0))]
                    for offset in (-1, 1, 2)
                    if 0 <= at + offset < len(line) and line[at + offset] in candidates
                ]
                for c in best
            }

        rarity = rarity_among(question, [c.text for c in found])
        return [
            Hit(
                r.candidate.message_id,
                r.candidate.session_id,
                r.candidate.role,
                snippet(r.candidate.text, r.held),
                r.score,
                r.candidate.created_at,
                r.newer_id,
            )
            for r in best_first(question, found, rarity, near, limit)
        ]

    def _lines(self, rows: Iterable[Row]) -> dict[int, tuple[list[int], int]]:
        """Each row's conversation as the ids of what was said in it, and its place there."""
        lines: dict[str, list[int]] = {}
        places: dict[int, tuple[list[int], int]] = {}
        for row in rows:
            if row.message["content"] is None:
                continue
            line = lines.setdefault(
                self._tables.segments[row.session_id].session.conversation_id, []
            )
            places[row.id] = (line, len(line))
            line.append(row.id)
        return places

    def _originals(self, scope: SearchScope) -> Iterable[Row]:
        reach = self._reach(scope)
        for session_id, upto in reach.items():
            segment = self._tables.segments[session_id]
            taken_back = self._tables.taken_back(segment.session.conversation_id)
            for row in [*segment.rows, *segment.replaced]:
                if (
                    row.id <= upto
                    and row.origin_id is None
                    and row.kind is None
                    and row.id not in taken_back
                ):
                    yield row

    def _reach(self, scope: SearchScope) -> dict[str, float]:
        """Session → the newest message of it that may be seen."""
        reach: dict[str, float] = {}
        for session_id, segment in self._tables.segments.items():
            conversation = self._tables.conversations[segment.session.conversation_id]
            if scope.conversation_id not in (None, conversation.id):
                continue
            shared = conversation.session_key.endswith(",null]")
            if scope.owner is not None and (scope.owner != conversation.owner or shared):
                continue
            reach[session_id] = math.inf
        for session_id in list(reach):
            self._add_line_of_fork(session_id, reach)
        return reach

    def _add_line_of_fork(self, session_id: str, reach: dict[str, float]) -> None:
        """What a fork was forked from, up to that moment."""
        upto = math.inf
        session = self._tables.segments[session_id].session
        while session.parent_session_id is not None:
            if session.link == "branch":
                segment = self._tables.segments[session.id]
                upto = min(upto, segment.carried_row_id)
            session = self._tables.segments[session.parent_session_id].session
            reach[session.id] = max(reach.get(session.id, 0), upto)

    async def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        return any(
            row.id == message_id and row.id <= upto
            for session_id, upto in self._reach(scope).items()
            for segment in [self._tables.segments[session_id]]
            for row in [*segment.rows, *segment.replaced]
        )

    async def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        found = [r for r in self._originals(scope) if r.message.get("tool_call_id") == call_id]
        return own([max(found, key=lambda row: row.id)])[0] if found else None

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        for segment in self._tables.segments.values():
            everything = [*segment.rows, *segment.replaced, *segment.taken_back]
            if all(row.id != message_id for row in everything):
                continue
            taken_back = self._tables.taken_back(segment.session.conversation_id)
            rows = sorted(
                (row for row in everything if row.root_id not in taken_back),
                key=lambda row: row.id,
            )
            middle = [row for row in rows if row.id == message_id]
            if not middle:
                continue
            originals = [row for row in rows if row.origin_id is None and row.kind is None]
            earlier = [row for row in originals if row.id < message_id]
            later = [row for row in originals if row.id > message_id]
            return own(
                [
                    *earlier[max(0, len(earlier) - max(0, before)) :],
                    *middle,
                    *later[: max(0, after)],
                ]
            )
        return []

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        for session_id, segment in self._tables.segments.items():
            if any(row.id == message_id for row in await self.all_rows(session_id)):
                return self._tables.conversations[segment.session.conversation_id]
        return None

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        found = [
            self._info(segment)
            for segment in reversed(self._tables.segments.values())
            if conversation_id in (None, segment.session.conversation_id)
        ]
        return found[: max(0, limit)]

    async def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        return self._lineages.openings(conversation_ids)

    async def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        found = sorted(i for i in self._tables.segments if i.startswith(beginning))
        return found[: max(0, limit)]

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        segments = self._tables.segments
        return [self._info(segments[i]) for i in session_ids if i in segments]

    def _info(self, segment: Segment) -> SessionInfo:
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
        return own(self._tables.segment(session_id).rows)

    async def identity(self) -> str:
        return self._identity

    async def all_rows(self, session_id: str) -> list[Row]:
        segment = self._tables.segments.get(session_id)
        if segment is None:
            return []
        everything = [*segment.rows, *segment.replaced, *segment.taken_back]
        return own(sorted(everything, key=lambda row: row.id))

    # life

    def trouble(self) -> str | None:
        return None

    async def maintain(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


def _candidate(row: Row) -> Candidate | None:
    text = indexable_text(row.message, row.kind, row.origin_id)
    if text is None:
        return None
    return Candidate(row.id, row.session_id, row.message["role"], row.created_at, text)


def _end_of_list(rows: Sequence[Row]) -> Sequence[Row]:
    """The last row that is no tool result, and the results behind it."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place].message["role"] != "tool":
            return rows[place:]
    return ()
