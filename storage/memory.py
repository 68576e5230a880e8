"""Owns the in-memory store: the same contract in plain Python, for tests and for plugin authors.

No method waits for anything, so each runs whole: that is its transaction. Whatever may raise is
decided before the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.errors import StaleTurn, StoreError
from agent.forgetting import Cleared, ClearedConversation, ForgetRequest, Holdings
from agent.jobs.nouns import (
    Action,
    Fired,
    Firing,
    Job,
    JobDraft,
    JobPlace,
    JobRun,
    JobState,
    JobView,
    Origin,
    RunState,
    Schedule,
    place_in,
)
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
from agent.memory.notes import Note, Written
from agent.messages import Draft, Message, Row, clean_text
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
    LastSaid,
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
)
from agent.store_ports import Appended, StoreWork
from storage.memory_archive import MemoryArchive
from storage.memory_forgetting import MemoryForgetting
from storage.memory_job_runs import MemoryJobRuns
from storage.memory_jobs import MemoryJobs
from storage.memory_ledger import MemoryLedger
from storage.memory_lineages import MemoryLineages
from storage.memory_mailbox import MemoryMailbox
from storage.memory_moves import MemoryMoves
from storage.memory_notes import MemoryNotes
from storage.memory_pairings import MemoryPairings
from storage.memory_prepared import MemoryShelf
from storage.memory_records import own
from storage.memory_sessions import MemorySessions
from storage.memory_tables import MemoryTables
from storage.memory_turns import MemoryTurns, load
from storage.places import key_of_today
from storage.undoing import has_summary, turns_in


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
        self._identity = ids.new("store")
        self._tables = MemoryTables(clock, ids, estimate)
        self._sessions = MemorySessions(self._tables, clock.now)
        self._lineages = MemoryLineages(self._tables)
        self._ledger = MemoryLedger(self._tables, clock.now)
        self._shelf = MemoryShelf(self._tables, clock.now)
        self._pairings = MemoryPairings(clock.now)
        self._facts: dict[str, str] = {}
        self._mail = MemoryMailbox(self._tables.today)
        self._notes = MemoryNotes(clock.now, lambda key: key_of_today(key, self._tables.today))
        self._job_runs = MemoryJobRuns(self._tables, self._mail, clock)
        self._jobs = MemoryJobs(self._tables, self._mail, self._job_runs, clock, ids)
        self._moves = MemoryMoves(self._tables, self._mail, self._notes, self._jobs)
        self._archive = MemoryArchive(self._tables)
        self._forgetting = MemoryForgetting(
            self._tables, self._mail, self._notes, self._pairings, self._jobs, clock.now
        )
        self._turns = MemoryTurns(
            self._tables, self._lineages, self._ledger, self._mail, clock, ids, set_aside_notice
        )

    # jobs

    async def add_job(
        self, draft: JobDraft, *, most: int | None = None, most_each: int | None = None
    ) -> Job:
        return self._jobs.add_job(draft, most, most_each)

    async def jobs_at(self, session_key: str, *, over: bool = False) -> Sequence[JobView]:
        return self._jobs.jobs_at(session_key, over)

    async def jobs_of(self, origin: Origin) -> Sequence[JobView]:
        return self._jobs.jobs_of(origin)

    async def job_views(self, *, limit: int = 1_000) -> Sequence[JobView]:
        return self._jobs.job_views(limit)

    async def job_at(self, session_key: str, number: int) -> JobView | None:
        return self._jobs.job_at(session_key, number)

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        record = self._mail.newest_of_turn(turn_id)
        return None if record is None else place_in(record)

    async def set_job(
        self, job_id: str, state: JobState, *, next_run_at: float | None, reason: str = ""
    ) -> Job | None:
        return self._jobs.set_job(job_id, state, next_run_at, reason)

    async def change_job(
        self,
        job_id: str,
        *,
        place: JobPlace,
        schedule: Schedule,
        action: Action,
        next_run_at: float | None,
        anchor_at: float,
    ) -> Job | None:
        return self._jobs.change_job(job_id, place, schedule, action, next_run_at, anchor_at)

    async def due_jobs(self, now: float, *, limit: int = 100) -> Sequence[JobView]:
        return self._jobs.due_jobs(now, limit)

    async def next_job_at(self) -> float | None:
        return self._jobs.next_job_at()

    async def ran_between(self, job_id: str, first: float, last: float) -> Sequence[float]:
        return self._job_runs.ran_between(job_id, first, last)

    async def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        return self._jobs.fire_job(job_id, firing)

    async def end_run(self, run_id: int, state: RunState, reason: str = "") -> JobRun | None:
        return self._job_runs.end_run(run_id, state, reason)

    async def settle_runs(self) -> Sequence[JobRun]:
        return self._job_runs.settle(None)

    async def open_runs(self) -> int:
        return self._job_runs.open_runs()

    async def void_runs(self) -> int:
        return self._job_runs.void_runs()

    async def job_runs(self, job_id: str, *, limit: int = 20) -> Sequence[JobRun]:
        return self._job_runs.job_runs(job_id, limit)

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
        return self._sessions.start_conversation(session_key, owner, prefix, end_reason)

    async def last_said(self, session_key: str) -> LastSaid | None:
        return self._sessions.last_said(session_key)

    async def silent_since(
        self, before: float, *, after: float = 0.0, limit: int = 100
    ) -> Sequence[LastSaid]:
        return self._sessions.silent_since(before, after, limit)

    # sessions

    async def session(self, session_id: str) -> Session:
        return self._tables.segment(session_id).session

    async def tip(self, session_id: str) -> Session:
        return self._tables.tip_of(self._tables.segment(session_id).session.conversation_id).session

    async def lineage(self, session_id: str) -> list[Session]:
        return self._sessions.lineage(session_id)

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        return load(self._tables, self._tables.segment(session_id), ticket)

    async def split(self, request: SplitRequest) -> ChangeResult:
        return self._sessions.split(request)

    async def rewrite(self, request: RewriteRequest) -> ChangeResult:
        return self._sessions.rewrite(request)

    async def set_compression(self, session_id: str, state: CompressionState) -> None:
        self._sessions.set_compression(session_id, state)

    async def set_option(self, session_id: str, name: str, value: str | None) -> bool:
        return self._sessions.set_option(session_id, name, value)

    async def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        return self._sessions.acquire_lease(conversation_id, holder, ttl_seconds)

    async def release_lease(self, conversation_id: str, holder: str) -> None:
        self._sessions.release_lease(conversation_id, holder)

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

    # notes

    async def notes(self, place: str) -> Sequence[Note]:
        return self._notes.notes(place)

    async def remember_note(
        self, place: str, owner: str, text: str, *, replaces: int | None = None
    ) -> Written:
        return self._notes.remember_note(place, owner, text, replaces)

    async def forget_note(self, place: str, number: int) -> Note | None:
        return self._notes.forget_note(place, number)

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
        return self._turns.retry(opening)

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
        return self._turns.begin_turn(opening)

    async def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        return self._turns.append(ticket, session_id, messages, anchor_usage=anchor_usage)

    async def steer(
        self, ticket: TurnTicket, session_id: str, inbox_ids: Sequence[int], message: Draft
    ) -> Appended | None:
        return self._turns.steer(ticket, session_id, inbox_ids, message)

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
        return self._turns.finish_turn(
            ticket, session_id, outcome, final=final, anchor_usage=anchor_usage, outbox=outbox
        )

    async def note_preview(self, ticket: TurnTicket, address: Address, message_id: str) -> bool:
        return self._turns.note_preview(ticket, address, message_id)

    async def preview_of(self, ticket: TurnTicket) -> str | None:
        return self._turns.preview_of(ticket)

    async def leave_preview(self, ticket: TurnTicket) -> None:
        self._turns.leave_preview(ticket)

    async def left_preview_of(self, ticket: TurnTicket) -> str | None:
        return self._turns.left_preview_of(ticket)

    async def results_of_turn(self, ticket: TurnTicket) -> list[Row]:
        return self._turns.results_of_turn(ticket)

    async def interrupt_turn(self, ticket: TurnTicket) -> None:
        self._turns.interrupt_turn(ticket)

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        self._sessions.drop_leases()
        return self._turns.recover_turns(crash_limit=crash_limit)

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        return self._turns.resume_turn(ticket)

    # mailbox

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        return self._mail.accept(record, cursor)

    async def revise(self, record: InboxRecord) -> bool:
        return self._mail.revise(record)

    async def move_chat(
        self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
    ) -> bool:
        return self._moves.move_chat(platform, bot_id, old_chat_id, new_chat_id)

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        return self._moves.moved_chats(platform, bot_id)

    async def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        return self._moves.knows_chat(platform, bot_id, chat_id)

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        self._mail.quarantine(platform, bot_id, update_id, raw, reason, self._clock.now())

    async def open_inbox(self) -> list[InboxItem]:
        return self._mail.open_inbox()

    async def newest_items(self, platform: str, bot_id: str, *, among: int) -> list[InboxItem]:
        return self._mail.newest_items(platform, bot_id, among)

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
        if not self._mail.inbox_items((inbox_id,)):
            raise StoreError(f"there is no row {inbox_id} that could ask for a restart")
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
        return self._mail.out.plan_parts(outbox_id, parts)

    async def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        self._mail.out.mark_part(part_id, state, platform_message_id, error)

    async def fail_outbox(self, outbox_id: int, error: str) -> None:
        self._mail.out.fail_outbox(outbox_id, error)

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        return self._mail.cursors(platform, bot_id)

    async def set_cursor(self, cursor: Cursor) -> None:
        self._mail.set_cursor(cursor)

    # forgetting

    async def holdings(self, owner: str) -> Holdings:
        return self._forgetting.holdings(owner)

    async def begin_forgetting(
        self, owner: str, *, inbox_id: int | None = None, answer_to: Address | None = None
    ) -> ForgetRequest:
        return self._forgetting.begin(owner, inbox_id, answer_to)

    async def forgetting(self) -> list[ForgetRequest]:
        return self._forgetting.marks()

    async def sessions_of(self, conversation_ids: Sequence[str]) -> tuple[str, ...]:
        return self._forgetting.sessions_of(conversation_ids)

    async def erase(self, owner: str) -> ForgetRequest:
        return self._forgetting.erase(owner)

    async def finish_forgetting(
        self, owner: str, owed: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        return self._forgetting.finish(owner, owed)

    async def clear_silent(self, before: float, *, conversations: int = 20) -> Cleared:
        return self._forgetting.clear_silent(before, conversations)

    async def cleared(self, *, limit: int = 100) -> Sequence[ClearedConversation]:
        return self._forgetting.cleared(limit)

    async def strike_cleared(self, conversation_ids: Sequence[str]) -> None:
        self._forgetting.strike_cleared(conversation_ids)

    async def clear_files(self, before: float) -> tuple[str, ...]:
        return ()

    # archive

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        return self._archive.search(query, scope, limit=limit, before_id=before_id)

    async def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        return self._archive.in_scope(scope, message_id)

    async def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        return self._archive.result_of_call(scope, call_id)

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        return self._archive.window(message_id, before=before, after=after)

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        return self._archive.conversation_of_message(message_id)

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        return self._archive.list_sessions(conversation_id=conversation_id, limit=limit)

    async def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        return self._lineages.openings(conversation_ids)

    async def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        return self._archive.session_ids(beginning, limit=limit)

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        return self._archive.session_infos(session_ids)

    async def active_rows(self, session_id: str) -> list[Row]:
        return own(self._tables.segment(session_id).rows)

    async def all_rows(self, session_id: str) -> list[Row]:
        return self._archive.all_rows(session_id)

    # life

    async def identity(self) -> str:
        return self._identity

    async def fact(self, name: str) -> str | None:
        return self._facts.get(clean_text(name))

    async def set_fact(self, name: str, value: str | None) -> None:
        self._facts.pop(clean_text(name), None)
        if value is not None:
            self._facts[clean_text(name)] = clean_text(value)

    def trouble(self) -> str | None:
        return None

    def at_work(self) -> StoreWork | None:
        return None

    async def maintain(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""
