"""Owns the in-memory store: the same contract in plain Python, for tests and for plugin authors.

No method waits for anything, so each runs whole: that is its transaction. Whatever may raise is
decided before the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from agent.jobs.nouns import JobPlace, JobRun, place_in
from agent.messages import Message, Row, clean_text
from agent.model_metadata import estimate_message_tokens
from agent.ports import Clock, IdSource
from agent.sessions import Conversation, InterruptedTurn, LoadedSession, Session, TurnTicket
from agent.store_ports import StoreWork
from storage.memory_answers import MemoryAnswers
from storage.memory_archive import MemoryArchive
from storage.memory_forgetting import MemoryForgetting
from storage.memory_job_runs import MemoryJobRuns
from storage.memory_jobs import MemoryJobs
from storage.memory_ledger import MemoryLedger
from storage.memory_lineages import MemoryLineages
from storage.memory_mailbox import MemoryMailbox
from storage.memory_moves import MemoryMoves
from storage.memory_notes import MemoryNotes
from storage.memory_outbox import MemoryOutbox
from storage.memory_pairings import MemoryPairings
from storage.memory_prepared import MemoryShelf
from storage.memory_records import own
from storage.memory_sessions import MemorySessions
from storage.memory_tables import MemoryTables
from storage.memory_turns import MemoryTurns, load
from storage.places import key_of_today

P = ParamSpec("P")
Part = TypeVar("Part")
T = TypeVar("T")


def by(
    name: str, function: Callable[Concatenate[Part, P], T]
) -> Callable[Concatenate[object, P], Coroutine[Any, Any, T]]:
    """A method of the port that one part of the store does, the one in the attribute ``name``."""

    @wraps(function)
    async def method(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(getattr(self, name), *args, **kwargs)

    return method


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
        self._out = self._mail.out
        self._notes = MemoryNotes(clock.now, lambda key: key_of_today(key, self._tables.today))
        self._job_runs = MemoryJobRuns(self._tables, self._mail, clock)
        self._jobs = MemoryJobs(self._tables, self._mail, self._job_runs, clock, ids)
        self._moves = MemoryMoves(self._tables, self._mail, self._notes, self._jobs)
        self._answers = MemoryAnswers(self._tables, self._lineages, self._mail, clock.now)
        self._archive = MemoryArchive(self._tables)
        self._forgetting = MemoryForgetting(
            self._tables, self._mail, self._notes, self._pairings, self._jobs, clock.now
        )
        self._turns = MemoryTurns(
            self._tables, self._lineages, self._ledger, self._mail, clock, ids, set_aside_notice
        )

    # jobs

    add_job = by("_jobs", MemoryJobs.add_job)
    jobs_at = by("_jobs", MemoryJobs.jobs_at)
    jobs_of = by("_jobs", MemoryJobs.jobs_of)
    job_views = by("_jobs", MemoryJobs.job_views)
    job_at = by("_jobs", MemoryJobs.job_at)

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        record = self._mail.newest_of_turn(turn_id)
        return None if record is None else place_in(record)

    set_job = by("_jobs", MemoryJobs.set_job)
    change_job = by("_jobs", MemoryJobs.change_job)
    due_jobs = by("_jobs", MemoryJobs.due_jobs)
    next_job_at = by("_jobs", MemoryJobs.next_job_at)
    ran_between = by("_job_runs", MemoryJobRuns.ran_between)
    fire_job = by("_jobs", MemoryJobs.fire_job)
    end_run = by("_job_runs", MemoryJobRuns.end_run)

    async def settle_runs(self) -> Sequence[JobRun]:
        return self._job_runs.settle(None)

    open_runs = by("_job_runs", MemoryJobRuns.open_runs)
    void_runs = by("_job_runs", MemoryJobRuns.void_runs)
    job_runs = by("_job_runs", MemoryJobRuns.job_runs)

    # conversations

    conversation_for_key = by("_tables", MemoryTables.conversation_for_key)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return self._tables.conversations.get(conversation_id)

    start_conversation = by("_sessions", MemorySessions.start_conversation)
    last_said = by("_sessions", MemorySessions.last_said)
    silent_since = by("_sessions", MemorySessions.silent_since)

    # sessions

    async def session(self, session_id: str) -> Session:
        return self._tables.segment(session_id).session

    async def tip(self, session_id: str) -> Session:
        return self._tables.tip_of(self._tables.segment(session_id).session.conversation_id).session

    lineage = by("_sessions", MemorySessions.lineage)

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        return load(self._tables, self._tables.segment(session_id), ticket)

    split = by("_sessions", MemorySessions.split)
    rewrite = by("_sessions", MemorySessions.rewrite)
    set_compression = by("_sessions", MemorySessions.set_compression)
    set_option = by("_sessions", MemorySessions.set_option)
    acquire_lease = by("_sessions", MemorySessions.acquire_lease)
    release_lease = by("_sessions", MemorySessions.release_lease)

    # what is prepared

    save_prepared = by("_shelf", MemoryShelf.save)
    prepared = by("_shelf", MemoryShelf.prepared)
    discard_prepared = by("_shelf", MemoryShelf.discard)
    crowded = by("_shelf", MemoryShelf.crowded)

    # pairing

    ask_pairing = by("_pairings", MemoryPairings.ask)
    approve_pairing = by("_pairings", MemoryPairings.approve)
    revoke_pairing = by("_pairings", MemoryPairings.revoke)
    pairings = by("_pairings", MemoryPairings.book)

    # notes

    notes = by("_notes", MemoryNotes.notes)
    remember_note = by("_notes", MemoryNotes.remember_note)
    forget_note = by("_notes", MemoryNotes.forget_note)

    # lineages

    uncompressed = by("_lineages", MemoryLineages.uncompressed)
    uncompress = by("_lineages", MemoryLineages.uncompress)
    branch = by("_lineages", MemoryLineages.branch)
    undo = by("_answers", MemoryAnswers.undo)
    retry = by("_turns", MemoryTurns.retry)
    set_title = by("_lineages", MemoryLineages.set_title)
    conversations_of = by("_lineages", MemoryLineages.conversations_of)
    conversations_at = by("_lineages", MemoryLineages.conversations_at)
    resume = by("_lineages", MemoryLineages.resume)
    usage_totals = by("_lineages", MemoryLineages.usage_totals)

    # the ledger

    enter_request = by("_ledger", MemoryLedger.enter_request)
    ledger_lines = by("_ledger", MemoryLedger.lines)
    compressions = by("_ledger", MemoryLedger.compressions)
    first_time = by("_ledger", MemoryLedger.first_time)

    # turns

    begin_turn = by("_turns", MemoryTurns.begin_turn)
    append = by("_turns", MemoryTurns.append)
    steer = by("_turns", MemoryTurns.steer)
    finish_turn = by("_turns", MemoryTurns.finish_turn)
    note_preview = by("_turns", MemoryTurns.note_preview)
    preview_of = by("_turns", MemoryTurns.preview_of)
    leave_preview = by("_turns", MemoryTurns.leave_preview)
    left_preview_of = by("_turns", MemoryTurns.left_preview_of)
    results_of_turn = by("_turns", MemoryTurns.results_of_turn)
    interrupt_turn = by("_turns", MemoryTurns.interrupt_turn)

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        self._sessions.drop_leases()
        return self._turns.recover_turns(crash_limit=crash_limit)

    resume_turn = by("_turns", MemoryTurns.resume_turn)

    # mailbox

    accept = by("_mail", MemoryMailbox.accept)
    revise = by("_mail", MemoryMailbox.revise)
    move_chat = by("_moves", MemoryMoves.move_chat)
    moved_chats = by("_moves", MemoryMoves.moved_chats)
    knows_chat = by("_moves", MemoryMoves.knows_chat)

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        self._mail.quarantine(platform, bot_id, update_id, raw, reason, self._clock.now())

    open_inbox = by("_mail", MemoryMailbox.open_inbox)
    newest_items = by("_mail", MemoryMailbox.newest_items)
    inbox_items = by("_mail", MemoryMailbox.inbox_items)
    answer_inbox = by("_answers", MemoryAnswers.answer_inbox)
    await_restart = by("_answers", MemoryAnswers.await_restart)
    say_restarted = by("_answers", MemoryAnswers.say_restarted)
    owe = by("_answers", MemoryAnswers.owe)
    owed = by("_mail", MemoryMailbox.owed)
    plan_parts = by("_out", MemoryOutbox.plan_parts)
    mark_part = by("_out", MemoryOutbox.mark_part)
    fail_outbox = by("_out", MemoryOutbox.fail_outbox)
    cursors = by("_mail", MemoryMailbox.cursors)
    set_cursor = by("_mail", MemoryMailbox.set_cursor)

    # forgetting

    holdings = by("_forgetting", MemoryForgetting.holdings)
    begin_forgetting = by("_forgetting", MemoryForgetting.begin)
    forgetting = by("_forgetting", MemoryForgetting.marks)
    sessions_of = by("_forgetting", MemoryForgetting.sessions_of)
    erase = by("_forgetting", MemoryForgetting.erase)
    finish_forgetting = by("_forgetting", MemoryForgetting.finish)
    clear_silent = by("_forgetting", MemoryForgetting.clear_silent)
    cleared = by("_forgetting", MemoryForgetting.cleared)
    strike_cleared = by("_forgetting", MemoryForgetting.strike_cleared)

    async def clear_files(self, before: float) -> tuple[str, ...]:
        return ()

    # archive

    search = by("_archive", MemoryArchive.search)
    in_scope = by("_archive", MemoryArchive.in_scope)
    result_of_call = by("_archive", MemoryArchive.result_of_call)
    window = by("_archive", MemoryArchive.window)
    conversation_of_message = by("_archive", MemoryArchive.conversation_of_message)
    list_sessions = by("_archive", MemoryArchive.list_sessions)
    openings = by("_lineages", MemoryLineages.openings)
    session_ids = by("_archive", MemoryArchive.session_ids)
    session_infos = by("_archive", MemoryArchive.session_infos)

    async def active_rows(self, session_id: str) -> list[Row]:
        return own(self._tables.segment(session_id).rows)

    all_rows = by("_archive", MemoryArchive.all_rows)

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
