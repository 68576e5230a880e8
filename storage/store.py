"""Owns the store's face: each method of the port is one function on the writer or on a reader.

One plain list, in the order of the port; modules that bear the name of a method have another here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.forgetting import Cleared
from agent.ledger import LedgerLine, LedgerScope
from agent.sessions import Hit, InterruptedTurn, LoadedSession, SearchScope, TurnTicket
from agent.store_ports import StoreWork
from storage import (
    attachment_rows,
    changes,
    inbox,
    job_firing,
    jobs,
    leases,
    ledger,
    lineages,
    moving,
    outbox,
    previews,
    recovery,
    remembered,
    retention,
    rewriting,
    sessions,
    taking_back,
    turns,
    upkeep,
)
from storage import forgetting as forget
from storage import job_runs as runs
from storage import last_said as silence
from storage import notes as note_book
from storage import pairings as pairing
from storage import prepared as shelf
from storage import search as searching
from storage.archive import Reading, SqlArchive
from storage.migrate import identity
from storage.ways import Writing, read, read_at_leisure, written, written_alone

if TYPE_CHECKING:
    from agent.exchange.records import Portable, TakenIn

_LOOK_AT_LOG_STEPS = 100


class SqlStore(SqlArchive):
    """`agent.store_ports.Store`: writes through the one writer, reads beside it."""

    def __init__(
        self,
        writing: Writing,
        reading: Reading,
        archive: Reading,
        *,
        index: searching.IndexKeeper,
        set_aside_notice: str,
    ) -> None:
        """``archive``: a connection of its own for what may take long."""
        super().__init__(archive)
        self._writing = writing
        self._quick = reading
        self.index = index
        """Whether the full-text index is whole."""
        self._set_aside_notice = set_aside_notice
        self._steps = 0
        """Of upkeep."""

    identity = read(identity)
    fact = read(remembered.fact)
    set_fact = written(remembered.set_fact)

    # notes

    notes = read(note_book.notes)
    remember_note = written(note_book.remember_note)
    forget_note = written(note_book.forget_note)

    # jobs

    add_job = written(jobs.add_job)
    jobs_at = read(jobs.jobs_at)
    jobs_of = read(jobs.jobs_of)
    job_views = read(jobs.job_views)
    job_at = read(jobs.job_at)
    place_of_turn = read(jobs.place_of_turn)
    set_job = written(jobs.set_job)
    change_job = written(jobs.change_job)
    due_jobs = read(jobs.due_jobs)
    next_job_at = read(jobs.next_job_at)
    ran_between = read(runs.ran_between)
    fire_job = written(job_firing.fire_job)
    end_run = written(runs.end_run)
    settle_runs = written(runs.settle_runs)
    open_runs = read(runs.open_runs)
    void_runs = written(runs.void_runs)
    job_runs = read(runs.job_runs)

    # conversations

    conversation_for_key = read(sessions.conversation_for_key)
    conversation = read(sessions.conversation)
    start_conversation = written(sessions.start_conversation)
    last_said = read(silence.last_said)
    silent_since = read_at_leisure(silence.silent_since)

    # sessions

    session = read(sessions.session)
    tip = read(sessions.tip)

    async def load(self, session_id: str, *, ticket: TurnTicket | None = None) -> LoadedSession:
        turn_id = ticket.turn_id if ticket is not None else None
        loaded, broken = await self._quick.read(changes.load, session_id, turn_id)
        if broken:
            return await self._writing.write_alone(changes.load_repaired, session_id, turn_id)
        return loaded

    split = written_alone(changes.split)
    rewrite = written_alone(changes.rewrite)
    set_compression = written(sessions.set_compression)
    set_option = written(sessions.set_option)
    acquire_lease = written(leases.acquire_lease)
    release_lease = written(leases.release_lease)

    # what is prepared

    save_prepared = written(shelf.save_prepared)
    prepared = read(shelf.prepared)
    discard_prepared = written(shelf.discard_prepared)
    crowded = read_at_leisure(shelf.crowded)

    # pairing

    ask_pairing = written(pairing.ask_pairing)
    approve_pairing = written(pairing.approve_pairing)
    revoke_pairing = written(pairing.revoke_pairing)
    pairings = read(pairing.book)

    # lineages

    uncompressed = read_at_leisure(lineages.uncompressed)
    uncompress = written_alone(lineages.uncompress)
    branch = written_alone(lineages.branch)
    undo = written_alone(taking_back.undo)
    retry = written_alone(taking_back.retry)
    set_title = written(lineages.set_title)
    conversations_of = read_at_leisure(lineages.conversations_of)
    conversations_at = read_at_leisure(lineages.conversations_at)
    resume = written(lineages.resume)

    # the ledger

    async def ledger_lines(self, scope: LedgerScope) -> list[LedgerLine]:
        # One person's figures are asked for before each of their turns: never behind a search.
        reading = self._reading if scope.owner is None else self._quick
        return await reading.read(ledger.ledger_lines, scope)

    enter_request = written(ledger.enter_request)
    first_time = written(ledger.first_time)

    # turns

    begin_turn = written(turns.begin_turn)
    append = written(turns.append)
    finish_turn = written(turns.finish_turn)
    note_preview = written(previews.note_preview)
    results_of_turn = read(recovery.results_of_turn)
    preview_of = read(previews.preview_of)
    leave_preview = written(previews.leave_preview)
    left_preview_of = read(previews.left_preview_of)
    steer = written(turns.steer)
    interrupt_turn = written(turns.interrupt_turn)

    async def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        return await self._writing.write_alone(
            recovery.recover_turns, crash_limit, self._set_aside_notice
        )

    resume_turn = written_alone(recovery.resume_turn)

    # mailbox

    accept = written(inbox.accept)
    revise = written(inbox.revise)
    move_chat = written_alone(moving.move_chat)
    moved_chats = read(moving.moved_chats)
    knows_chat = read(moving.knows_chat)
    quarantine = written(inbox.quarantine)
    open_inbox = read(inbox.open_inbox)
    newest_items = read(inbox.newest_items)
    inbox_items = read(inbox.inbox_items)
    answer_inbox = written(inbox.answer_inbox)
    await_restart = written(inbox.await_restart)
    say_restarted = written(inbox.say_restarted)
    owe = written(outbox.owe)
    owed = read(outbox.owed)
    plan_parts = written(outbox.plan_parts)
    mark_part = written(outbox.mark_part)
    fail_outbox = written(outbox.fail_outbox)
    cursors = read(inbox.cursors)
    set_cursor = written(inbox.set_cursor)

    # forgetting

    holdings = read_at_leisure(forget.holdings)
    begin_forgetting = written(forget.begin_forgetting)
    forgetting = read(forget.forgetting)
    sessions_of = read_at_leisure(forget.sessions_of)
    erase = written_alone(forget.erase)
    finish_forgetting = written(forget.finish_forgetting)

    async def clear_silent(self, before: float, *, conversations: int = 20) -> Cleared:
        now = self._writing.now()
        return await self._writing.outside(retention.clear_silent, before, conversations, now)

    cleared = read(retention.cleared)
    strike_cleared = written(retention.strike_cleared)

    async def clear_files(self, before: float) -> tuple[str, ...]:
        named, upto = await self._reading.read(retention.named_files)
        return await self._writing.write_alone(
            retention.clear_files, before, frozenset(named), upto
        )

    # files

    enter_file = written(attachment_rows.enter_file)
    file_row = read(attachment_rows.file_row)
    known_files = read_at_leisure(attachment_rows.known_files)

    async def take_in(self, portables: Sequence[Portable]) -> list[TakenIn]:
        from storage import exchange_in  # noqa: PLC0415 - only for who imports

        return await self._writing.write_alone(exchange_in.take_in, tuple(portables))

    # life

    def trouble(self) -> str | None:
        return self._writing.trouble()

    def at_work(self) -> StoreWork | None:
        return self._writing.at_work()

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        asked, of = (query, scope, limit, before_id), self.index.rebuilds
        hits, damage = await self._reading.read(searching.search_and_tell, *asked)
        if damage is not None:
            self.index.hurt(damage.reason, in_pages=damage.in_pages, of=of)
        return hits

    async def maintain(self) -> bool:
        more = await self.index.step(partial(self._writing.write_alone, searching.maintain))
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

    mend = written_alone(upkeep.mend)
    """Make anew what a check found to be damaged and can be; StoreUnavailable: it can not."""

    def condemn(self, reason: str) -> None:
        """What is stored is damaged: writing on would spread it. `trouble` says the reason."""
        self._writing.condemn(reason)

    unused_bytes = read(upkeep.unused_bytes)
    """How much of the file nothing is in, and how long it is."""

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
        # Who may take long first: nobody waits behind the quick one meanwhile.
        return await rewriting.shorten(self._writing, self._reading, self._quick)

    rebuild_search_index = written_alone(searching.rebuild)
    """Make the full-text index anew; gives back how many messages it holds."""

    async def close(self) -> None:
        """Finish what is queued and let go. May be called twice."""
        # The writer goes last: only it may check-point, and it does so on its way out.
        try:
            await self._quick.close()
            await self._reading.close()
        finally:
            await self._writing.close()
