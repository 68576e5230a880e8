"""Owns the store's face: each method of the port is one callable on the writer or on a reader.

One plain list, in the order of the port.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from agent.attachments import StoredFile
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
)
from agent.ledger import LedgerLine, LedgerScope, RequestEntry
from agent.lineages import (
    Answering,
    ConversationInfo,
    UncompressRequest,
    Undone,
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
from agent.messages import Draft, Row
from agent.pairings import Approval, PairingBook, PairingRequest
from agent.ports import Usage
from agent.prepared import Prepared
from agent.sessions import (
    ChangeResult,
    CompressionState,
    Conversation,
    EndReason,
    InterruptedTurn,
    LastSaid,
    LoadedSession,
    RewriteRequest,
    Session,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)
from agent.store_ports import Appended, StoreWork
from storage import (
    attachment_rows,
    changes,
    forgetting,
    inbox,
    job_firing,
    job_runs,
    jobs,
    last_said,
    leases,
    ledger,
    lineages,
    moving,
    notes,
    outbox,
    previews,
    recovery,
    remembered,
    retention,
    rewriting,
    search,
    sessions,
    taking_back,
    turns,
    upkeep,
)
from storage import pairings as pairing
from storage import prepared as shelf
from storage.archive import A, Reading, SqlArchive, T
from storage.database import Transaction
from storage.migrate import identity
from storage.upkeep import Examined

if TYPE_CHECKING:
    from agent.exchange.records import Portable, TakenIn

_SHORTENING_TRIES = 5
_LOOK_AT_LOG_STEPS = 100


class Writing(Protocol):
    """The way to the one writer."""

    def write(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        """Run this in a transaction that it may share with other calls."""
        ...

    def write_alone(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        """Run this in a transaction of its own: it takes long."""
        ...

    def outside(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> Awaitable[T]:
        """Run this with the writing connection itself, outside any transaction."""
        ...

    def trouble(self) -> str | None:
        """Why the last transaction failed, or the next one will; None: they do not."""
        ...

    def at_work(self) -> StoreWork | None:
        """As `agent.store_ports.Store.at_work`."""
        ...

    def now(self) -> float:
        """The time that a call is given now."""
        ...

    def condemn(self, reason: str) -> None:
        """Take nothing more, for this reason, which `trouble` says from now on."""
        ...

    @property
    def idle_seconds(self) -> float:
        """For how long nothing was written."""
        ...

    async def close(self) -> None:
        """Finish what is queued and let go. May be called twice."""
        ...


class SqlStore(SqlArchive):
    """`agent.store_ports.Store`: writes through the one writer, reads beside it."""

    def __init__(
        self, writing: Writing, reading: Reading, archive: Reading, *, set_aside_notice: str
    ) -> None:
        """``archive``: a connection of its own for what may take long."""
        super().__init__(archive)
        self._writing = writing
        self._quick = reading
        self._set_aside_notice = set_aside_notice
        self._steps = 0
        """Of upkeep."""

    async def identity(self) -> str:
        return await self._quick.read(identity)

    async def fact(self, name: str) -> str | None:
        return await self._quick.read(remembered.fact, name)

    async def set_fact(self, name: str, value: str | None) -> None:
        await self._writing.write(remembered.set_fact, name, value)

    # notes

    async def notes(self, place: str) -> Sequence[Note]:
        return await self._quick.read(notes.notes, place)

    async def remember_note(
        self, place: str, owner: str, text: str, *, replaces: int | None = None
    ) -> Written:
        return await self._writing.write(notes.remember_note, place, owner, text, replaces)

    async def forget_note(self, place: str, number: int) -> Note | None:
        return await self._writing.write(notes.forget_note, place, number)

    # jobs

    async def add_job(
        self, draft: JobDraft, *, most: int | None = None, most_each: int | None = None
    ) -> Job:
        return await self._writing.write(jobs.add_job, draft, most, most_each)

    async def jobs_at(self, session_key: str, *, over: bool = False) -> Sequence[JobView]:
        return await self._quick.read(jobs.jobs_at, session_key, over)

    async def jobs_of(self, origin: Origin) -> Sequence[JobView]:
        return await self._quick.read(jobs.jobs_of, origin)

    async def job_views(self, *, limit: int = 1_000) -> Sequence[JobView]:
        return await self._quick.read(jobs.job_views, limit)

    async def job_at(self, session_key: str, number: int) -> JobView | None:
        return await self._quick.read(jobs.job_at, session_key, number)

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        return await self._quick.read(jobs.place_of_turn, turn_id)

    async def set_job(
        self, job_id: str, state: JobState, *, next_run_at: float | None, reason: str = ""
    ) -> Job | None:
        return await self._writing.write(jobs.set_job, job_id, state, next_run_at, reason)

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
        return await self._writing.write(
            jobs.change_job, job_id, place, schedule, action, next_run_at, anchor_at
        )

    async def due_jobs(self, now: float, *, limit: int = 100) -> Sequence[JobView]:
        return await self._quick.read(jobs.due_jobs, now, limit)

    async def next_job_at(self) -> float | None:
        return await self._quick.read(jobs.next_job_at)

    async def ran_between(self, job_id: str, first: float, last: float) -> Sequence[float]:
        return await self._quick.read(job_runs.ran_between, job_id, first, last)

    async def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        return await self._writing.write(job_firing.fire_job, job_id, firing)

    async def end_run(self, run_id: int, state: RunState, reason: str = "") -> JobRun | None:
        return await self._writing.write(job_runs.end_run, run_id, state, reason)

    async def settle_runs(self) -> Sequence[JobRun]:
        return await self._writing.write(job_runs.settle_runs)

    async def open_runs(self) -> int:
        return await self._quick.read(job_runs.open_runs)

    async def void_runs(self) -> int:
        return await self._writing.write(job_runs.void_runs)

    async def job_runs(self, job_id: str, *, limit: int = 20) -> Sequence[JobRun]:
        return await self._quick.read(job_runs.job_runs, job_id, limit)

    # conversations

    async def conversation_for_key(self, session_key: str) -> Conversation | None:
        return await self._quick.read(sessions.conversation_for_key, session_key)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return await self._quick.read(sessions.conversation, conversation_id)

    async def start_conversation(
        self,
        session_key: str,
        owner: str,
        prefix: SessionPrefix,
        *,
        end_reason: EndReason = "reset",
    ) -> Session:
        return await self._writing.write(
            sessions.start_conversation, session_key, owner, prefix, end_reason
        )

    async def last_said(self, session_key: str) -> LastSaid | None:
        return await self._quick.read(last_said.last_said, session_key)

    async def silent_since(
        self, before: float, *, after: float = 0.0, limit: int = 100
    ) -> Sequence[LastSaid]:
        return await self._reading.read(last_said.silent_since, before, after, limit)

    # sessions

    async def session(self, session_id: str) -> Session:
        return await self._quick.read(sessions.session, session_id)

    async def tip(self, session_id: str) -> Session:
        return await self._quick.read(sessions.tip, session_id)

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        turn_id = ticket.turn_id if ticket is not None else None
        loaded, broken = await self._quick.read(changes.load, session_id, turn_id)
        if broken:
            return await self._writing.write_alone(changes.load_repaired, session_id, turn_id)
        return loaded

    async def split(self, request: SplitRequest) -> ChangeResult:
        return await self._writing.write_alone(changes.split, request)

    async def rewrite(self, request: RewriteRequest) -> ChangeResult:
        return await self._writing.write_alone(changes.rewrite, request)

    async def set_compression(self, session_id: str, state: CompressionState) -> None:
        await self._writing.write(sessions.set_compression, session_id, state)

    async def set_option(self, session_id: str, name: str, value: str | None) -> bool:
        return await self._writing.write(sessions.set_option, session_id, name, value)

    async def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        return await self._writing.write(leases.acquire_lease, conversation_id, holder, ttl_seconds)

    async def release_lease(self, conversation_id: str, holder: str) -> None:
        await self._writing.write(leases.release_lease, conversation_id, holder)

    # what is prepared

    async def save_prepared(self, prepared: Prepared) -> bool:
        return await self._writing.write(shelf.save_prepared, prepared)

    async def prepared(self, session_id: str) -> Prepared | None:
        return await self._quick.read(shelf.prepared, session_id)

    async def discard_prepared(self, session_id: str) -> bool:
        return await self._writing.write(shelf.discard_prepared, session_id)

    async def crowded(self, prompt_tokens: int, *, since: float, limit: int = 20) -> list[str]:
        return await self._reading.read(shelf.crowded, prompt_tokens, since, limit)

    # pairing

    async def ask_pairing(self, request: PairingRequest) -> bool:
        return await self._writing.write(pairing.ask_pairing, request)

    async def approve_pairing(self, code: str) -> Approval:
        return await self._writing.write(pairing.approve_pairing, code)

    async def revoke_pairing(self, platform: str, user_id: str) -> bool:
        return await self._writing.write(pairing.revoke_pairing, platform, user_id)

    async def pairings(self) -> PairingBook:
        return await self._quick.read(pairing.book)

    # lineages

    async def uncompressed(self, session_id: str) -> tuple[Row, ...]:
        return await self._reading.read(lineages.uncompressed, session_id)

    async def uncompress(self, request: UncompressRequest) -> ChangeResult:
        return await self._writing.write_alone(lineages.uncompress, request)

    async def branch(self, session_id: str, session_key: str, owner: str) -> Session:
        return await self._writing.write_alone(lineages.branch, session_id, session_key, owner)

    async def undo(
        self, conversation_id: str, turns: int = 1, *, answering: Answering | None = None
    ) -> Undone:
        return await self._writing.write_alone(taking_back.undo, conversation_id, turns, answering)

    async def retry(self, opening: TurnOpening) -> TurnTicket | None:
        return await self._writing.write_alone(taking_back.retry, opening)

    async def set_title(self, conversation_id: str, title: str | None) -> Session:
        return await self._writing.write(lineages.set_title, conversation_id, title)

    async def conversations_of(self, owner: str, *, limit: int = 20) -> Sequence[ConversationInfo]:
        return await self._reading.read(lineages.conversations_of, owner, limit)

    async def conversations_at(
        self, session_key: str, *, limit: int = 20
    ) -> Sequence[ConversationInfo]:
        return await self._reading.read(lineages.conversations_at, session_key, limit)

    async def resume(self, session_key: str, conversation_id: str) -> Session:
        return await self._writing.write(lineages.resume, session_key, conversation_id)

    # the ledger

    async def ledger_lines(self, scope: LedgerScope) -> list[LedgerLine]:
        # One person's figures are asked for before each of their turns: never behind a search.
        reading = self._reading if scope.owner is None else self._quick
        return await reading.read(ledger.ledger_lines, scope)

    async def enter_request(self, entry: RequestEntry) -> None:
        await self._writing.write(ledger.enter_request, entry)

    async def first_time(self, owner: str, mark: str) -> bool:
        return await self._writing.write(ledger.first_time, owner, mark)

    # turns

    async def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        return await self._writing.write(turns.begin_turn, opening)

    async def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        return await self._writing.write(turns.append, ticket, session_id, messages, anchor_usage)

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
        return await self._writing.write(
            turns.finish_turn, ticket, session_id, outcome, final, anchor_usage, tuple(outbox)
        )

    async def note_preview(self, ticket: TurnTicket, address: Address, message_id: str) -> bool:
        return await self._writing.write(previews.note_preview, ticket, address, message_id)

    async def results_of_turn(self, ticket: TurnTicket) -> list[Row]:
        return await self._quick.read(recovery.results_of_turn, ticket)

    async def preview_of(self, ticket: TurnTicket) -> str | None:
        return await self._quick.read(previews.preview_of, ticket)

    async def leave_preview(self, ticket: TurnTicket) -> None:
        await self._writing.write(previews.leave_preview, ticket)

    async def left_preview_of(self, ticket: TurnTicket) -> str | None:
        return await self._quick.read(previews.left_preview_of, ticket)

    async def steer(
        self, ticket: TurnTicket, session_id: str, inbox_ids: Sequence[int], message: Draft
    ) -> Appended | None:
        return await self._writing.write(turns.steer, ticket, session_id, tuple(inbox_ids), message)

    async def interrupt_turn(self, ticket: TurnTicket) -> None:
        await self._writing.write(turns.interrupt_turn, ticket)

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        return await self._writing.write_alone(
            recovery.recover_turns, crash_limit, self._set_aside_notice
        )

    async def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        return await self._writing.write_alone(recovery.resume_turn, ticket)

    # mailbox

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        return await self._writing.write(inbox.accept, record, cursor)

    async def revise(self, record: InboxRecord) -> bool:
        return await self._writing.write(inbox.revise, record)

    async def move_chat(
        self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
    ) -> bool:
        return await self._writing.write_alone(
            moving.move_chat, platform, bot_id, old_chat_id, new_chat_id
        )

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        return await self._quick.read(moving.moved_chats, platform, bot_id)

    async def knows_chat(self, platform: str, bot_id: str, chat_id: str) -> bool:
        return await self._quick.read(moving.knows_chat, platform, bot_id, chat_id)

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        await self._writing.write(inbox.quarantine, platform, bot_id, update_id, raw, reason)

    async def open_inbox(self) -> list[InboxItem]:
        return await self._quick.read(inbox.open_inbox)

    async def newest_items(self, platform: str, bot_id: str, *, among: int) -> list[InboxItem]:
        return await self._quick.read(inbox.newest_items, platform, bot_id, among)

    async def inbox_items(self, inbox_ids: Sequence[int]) -> list[InboxItem]:
        return await self._quick.read(inbox.inbox_items, tuple(inbox_ids))

    async def answer_inbox(
        self, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        return await self._writing.write(inbox.answer_inbox, tuple(inbox_ids), tuple(outbox))

    async def await_restart(
        self, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        return await self._writing.write(inbox.await_restart, inbox_id, tuple(outbox))

    async def say_restarted(self, text: str) -> tuple[OutboxItem, ...]:
        return await self._writing.write(inbox.say_restarted, text)

    async def owe(self, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
        return await self._writing.write(outbox.owe, draft, conversation_id)

    async def owed(self) -> list[OutboxItem]:
        return await self._quick.read(outbox.owed)

    async def plan_parts(
        self, outbox_id: int, parts: Sequence[PartDraft]
    ) -> tuple[OutboxPart, ...]:
        return await self._writing.write(outbox.plan_parts, outbox_id, tuple(parts))

    async def mark_part(
        self,
        part_id: int,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        await self._writing.write(outbox.mark_part, part_id, state, platform_message_id, error)

    async def fail_outbox(self, outbox_id: int, error: str) -> None:
        await self._writing.write(outbox.fail_outbox, outbox_id, error)

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        return await self._quick.read(inbox.cursors, platform, bot_id)

    async def set_cursor(self, cursor: Cursor) -> None:
        await self._writing.write(inbox.set_cursor, cursor)

    # forgetting

    async def holdings(self, owner: str) -> Holdings:
        return await self._reading.read(forgetting.holdings, owner)

    async def begin_forgetting(
        self, owner: str, *, inbox_id: int | None = None, answer_to: Address | None = None
    ) -> ForgetRequest:
        return await self._writing.write(forgetting.begin_forgetting, owner, inbox_id, answer_to)

    async def forgetting(self) -> list[ForgetRequest]:
        return await self._quick.read(forgetting.forgetting)

    async def sessions_of(self, conversation_ids: Sequence[str]) -> tuple[str, ...]:
        return await self._reading.read(forgetting.sessions_of, conversation_ids)

    async def erase(self, owner: str) -> ForgetRequest:
        return await self._writing.write_alone(forgetting.erase, owner)

    async def finish_forgetting(
        self, owner: str, owed: Sequence[OutboxDraft] = ()
    ) -> tuple[OutboxItem, ...]:
        return await self._writing.write(forgetting.finish_forgetting, owner, tuple(owed))

    async def clear_silent(self, before: float, *, conversations: int = 20) -> Cleared:
        now = self._writing.now()
        return await self._writing.outside(retention.clear_silent, before, conversations, now)

    async def cleared(self, *, limit: int = 100) -> Sequence[ClearedConversation]:
        return await self._quick.read(retention.cleared, limit)

    async def strike_cleared(self, conversation_ids: Sequence[str]) -> None:
        await self._writing.write(retention.strike_cleared, tuple(conversation_ids))

    async def clear_files(self, before: float) -> tuple[str, ...]:
        named, upto = await self._reading.read(retention.named_files)
        return await self._writing.write_alone(
            retention.clear_files, before, frozenset(named), upto
        )

    # files

    async def enter_file(self, file: StoredFile) -> StoredFile:
        return await self._writing.write(attachment_rows.enter_file, file)

    async def file_row(self, name: str, owner: str | None = None) -> StoredFile | None:
        return await self._quick.read(attachment_rows.file_row, name, owner)

    async def known_files(self, names: Collection[str]) -> set[str]:
        return await self._reading.read(attachment_rows.known_files, names)

    async def take_in(self, portables: Sequence[Portable]) -> list[TakenIn]:
        from storage import exchange_in  # noqa: PLC0415 - only for who imports

        return await self._writing.write_alone(exchange_in.take_in, tuple(portables))

    # life

    def trouble(self) -> str | None:
        return self._writing.trouble()

    def at_work(self) -> StoreWork | None:
        return self._writing.at_work()

    async def maintain(self) -> bool:
        more = await self._writing.write_alone(search.maintain)
        self._steps += 1
        # Under constant load there may always be more.
        look = not more or self._steps % _LOOK_AT_LOG_STEPS == 0
        if look and await self._writing.outside(rewriting.log_is_long):
            await self.shorten_log()
        return more

    @property
    def idle_seconds(self) -> float:
        """For how long nothing was written."""
        return self._writing.idle_seconds

    async def mend(self, found: Examined) -> None:
        """Make anew what a check found to be damaged and can be; StoreUnavailable: it can not."""
        await self._writing.write_alone(upkeep.mend, found)

    def condemn(self, reason: str) -> None:
        """What is stored is damaged: writing on would spread it. `trouble` says the reason."""
        self._writing.condemn(reason)

    async def unused_bytes(self) -> tuple[int, int]:
        """How much of the file nothing is in, and how long it is."""
        return await self._quick.read(upkeep.unused_bytes)

    async def rewrite_file(self) -> bool:
        """Write the database anew, smaller, and empty its log; writes wait meanwhile.

        What was erased is in neither of them after True. False: it could not be done now; the log
        says why, and nothing was changed that anybody can see.
        """
        if not await self._writing.outside(rewriting.rewrite):
            return False
        return await self.shorten_log()

    async def shorten_log(self) -> bool:
        """Write the log back and empty it, readers of ours out of the way. False: others read."""
        for _ in range(_SHORTENING_TRIES):
            # Who may take long first: nobody waits behind the quick one meanwhile.
            async with rewriting.held(self._reading), rewriting.held(self._quick):
                if await self._writing.outside(rewriting.empty_log):
                    return True
        rewriting.say_log_is_held()
        return False

    async def rebuild_search_index(self) -> int:
        """Make the full-text index anew; gives back how many messages it holds."""
        return await self._writing.write_alone(search.rebuild)

    async def close(self) -> None:
        """Finish what is queued and let go. May be called twice."""
        # The writer goes last: only it may check-point, and it does so on its way out.
        try:
            await self._quick.close()
            await self._reading.close()
        finally:
            await self._writing.close()
