"""Owns the lockstep of both stores: whatever is asked in whatever order, they say the same.

Workers are stale (plans and tickets of long ago), calls are cut off at any statement, processes are
killed: the stores go on saying the same, and the invariants hold after every step.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.errors import StoreError, StoreUnavailable
from agent.exchange.jsonl import read_lines, write_lines
from agent.ledger import LedgerScope, Purpose, RequestEntry
from agent.lineages import Answering, UncompressRequest, Undone
from agent.mail import Address, Cursor, InboxRecord, OutboxDraft, PartDraft
from agent.messages import (
    Draft,
    Entry,
    Keep,
    is_real_user,
    orphan_results,
    unanswered_calls,
)
from agent.ports import Usage
from agent.prepared import Prepared
from agent.sessions import (
    ChangeResult,
    CompressionState,
    LoadedSession,
    RewriteRequest,
    SearchScope,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnTicket,
    session_key,
)
from agent.store_ports import Store
from storage import faultpoint
from storage.memory import MemoryStore
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import calling, result, said, thinking, user
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants
from tests.unit.storage.kill_scenarios import content_of

CHATS = ["a", "b", "c"]
KEYS = [session_key("telegram", "1", chat, None, None) for chat in CHATS[:2]]
PERSONAL = session_key("telegram", "1", "a", "5", "ann")
PREFIX = SessionPrefix("telegram", "m", "prompt")
PREFIXES = [PREFIX, SessionPrefix("telegram", "other", "new prompt")]
SUMMARY = Draft({"role": "user", "content": "[sum] fish"}, kind="summary")

DEEDS = [
    "talk", "talk", "steered", "compress", "compress in place", "switch", "uncompress",
    "uncompress", "branch", "undo", "retry",
]  # fmt: skip

keys = st.sampled_from(KEYS)
chats = st.sampled_from(CHATS)
places = st.sampled_from([*KEYS, PERSONAL])
small = st.integers(0, 9)
words = st.text(alphabet="fish 墨水\ud83d🎉\x00'\"%", max_size=12)
drafts = st.one_of(
    words.map(said),
    words.map(thinking),
    st.sampled_from([calling("a"), calling("a", "b"), result("a"), result("b"), result("zz")]),
    words.map(
        lambda text: Draft({"role": "assistant", "content": [{"type": "text", "text": text}]})
    ),
)


class _CutOff(Exception):
    """Raised at a point between two statements."""


class StoresInLockstep(RuleBasedStateMachine):
    """Runs each call on both stores and compares answers and errors."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # commits wait for no disk there
        self.folder = tempfile.TemporaryDirectory(prefix="posthouse-machine-", dir=memory)
        self.path = Path(self.folder.name) / "state.db"
        self.clock = FakeClock()
        self.sql: SqlStore = self.loop.run_until_complete(self._open())
        self.memory: Store = MemoryStore(self.clock, SequentialIds(), set_aside_notice="set aside")
        self.ids = SequentialIds()
        self.tickets: list[TurnTicket] = []
        self.sessions: list[str] = []
        self.plans: list[LoadedSession] = []
        self.parts: list[int] = []
        self.conversations: list[str] = []
        self.steered: set[int] = set()
        self.taken_back: set[tuple[str, int]] = set()
        self.cut_at: int | None = None
        self.lives = itertools.count()

    async def _open(self) -> SqlStore:
        self.sql_ids = getattr(self, "sql_ids", SequentialIds())
        return await open_store(
            self.path, clock=self.clock, ids=self.sql_ids, set_aside_notice="set aside"
        )

    def teardown(self) -> None:
        if hasattr(self, "sql"):
            self.loop.run_until_complete(_move_house(self.sql, self.path.with_name("other.db")))
            self.loop.run_until_complete(self.sql.close())
            self.loop.close()
            check_invariants(self.path)
            self.folder.cleanup()

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        outcome = self._outcome(self._once_whole, call)
        assert outcome == self._outcome(lambda each: each(self.memory), call)
        return None if isinstance(outcome, type) else outcome

    def _outcome(self, run: Callable[..., Awaitable[Any]], call: Any) -> Any:
        try:
            return self.loop.run_until_complete(_awaited(run(call)))
        except (StoreError, ValueError) as exc:
            return type(exc)

    async def _once_whole(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """Now and then the call is cut off at a statement first; then nothing has happened."""
        if self.cut_at is None:
            return await call(self.sql)
        left = self.cut_at
        before, mark = content_of(self.path), self.sql_ids.mark()

        def hook(_: str) -> None:
            nonlocal left
            self.cut_at = None
            left -= 1
            if left < 0:
                raise _CutOff

        faultpoint.install(hook)
        try:
            return await call(self.sql)
        except (_CutOff, StoreUnavailable):
            assert content_of(self.path) == before
            self.sql_ids.back_to(mark)
        finally:
            faultpoint.install(None)
        return await call(self.sql)

    def load(self, session_id: str) -> None:
        loaded = self.both(lambda store: store.load(session_id))
        messages = [row.message for row in loaded.rows]
        assert unanswered_calls(messages) == []
        assert orphan_results(messages) == []
        if loaded.rows:
            self.plans.append(loaded)

    def some(self, things: list[Any], n: int) -> Any:
        return things[-1 - n % len(things)]

    # what a gateway does

    @rule(key=places, chat=chats, n=small, days=st.sampled_from([0, 8]))
    def accept(self, key: str, chat: str, n: int, days: int) -> None:
        self.clock.set_wall(self.clock.now() + days * 86_400)
        record = self._message(key, n, str(n % 7))
        self.both(lambda store: store.accept(record, Cursor("telegram", "1", chat, str(n))))

    def _message(self, key: str, n: int, update_id: str, text: str = "m") -> InboxRecord:
        chat = "b" if key == KEYS[1] else "a"
        return InboxRecord(
            Address("telegram", "1", chat, reply_to_message_id=str(n)), str(n), "message", key,
            f"o:{key}", text, self.clock.now(), 0.0, update_id,
        )  # fmt: skip

    @rule(key=keys, n=small, text=words, update_id=st.none() | small.map(str))
    def revise(self, key: str, n: int, text: str, update_id: Any) -> None:
        record = self._message(key, n, update_id, text)
        self.both(lambda store: store.revise(record))

    @rule(old=chats, new=chats)
    def move_chat(self, old: str, new: str) -> None:
        self.both(lambda store: store.move_chat("telegram", "1", old, new))
        self.both(lambda store: store.moved_chats("telegram", "1"))
        self.both(lambda store: store.knows_chat("telegram", "1", old))

    @precondition(lambda self: self.tickets)
    @rule(n=small, text=words, inbox=st.lists(st.integers(1, 12), max_size=3))
    def steer(self, n: int, text: str, inbox: list[int]) -> None:
        ticket = self.some(self.tickets, n)
        for session_id in (ticket.session_id, self.some(self.sessions, n // 3)):
            self.both(
                lambda store, at=session_id: store.steer(ticket, at, tuple(inbox), user(text))
            )

    @rule(
        key=places,
        text=words,
        inbox=st.lists(st.integers(1, 8), max_size=2),
        steps=st.lists(st.lists(drafts, max_size=3), max_size=3),
        tokens=st.sampled_from([None, 0, 90]),
        end=st.sampled_from(["finish", "finish", "leave", "interrupt"]),
    )
    def turn(
        self,
        key: str,
        text: str,
        inbox: list[int],
        steps: list[list[Draft]],
        tokens: int | None,
        end: str,
    ) -> None:
        opening = TurnOpening(key, f"o:{key}", tuple(inbox), user(text), PREFIX)
        ticket = self.both(lambda store: store.begin_turn(opening))
        if ticket is None:
            return
        self._entered(ticket)
        for rows in steps:
            self._append(ticket, ticket.session_id, rows, tokens)
        if end == "finish":
            self._finish(ticket, None, text)
        elif end == "interrupt":
            self.both(lambda store: store.interrupt_turn(ticket))
        self.load(ticket.session_id)

    def _entered(self, ticket: TurnTicket) -> None:
        self.tickets.append(ticket)
        self.sessions.append(ticket.session_id)
        self.conversations.append(ticket.conversation_id)

    def _append(
        self, ticket: TurnTicket, session_id: str, rows: list[Draft], tokens: int | None
    ) -> None:
        usage = None if tokens is None else Usage(tokens, 1, cache_miss="ttl" * (tokens % 4))
        self.both(lambda store: store.append(ticket, session_id, rows, anchor_usage=usage))

    def _finish(self, ticket: TurnTicket, final: Draft | None, text: str) -> None:
        owed = (OutboxDraft(Address("telegram", "1", "a"), text),)
        self.both(
            lambda store: store.finish_turn(
                ticket, ticket.session_id, "done", final=final, outbox=owed
            )
        )

    @precondition(lambda self: self.tickets)
    @rule(n=small, rows=st.lists(drafts, max_size=3), tokens=st.sampled_from([None, 0, 90]))
    def append(self, n: int, rows: list[Draft], tokens: int | None) -> None:
        self._append(self.some(self.tickets, n), self.some(self.sessions, n // 3), rows, tokens)

    @precondition(lambda self: self.tickets)
    @rule(n=small, final=st.none() | drafts, text=words)
    def finish(self, n: int, final: Draft | None, text: str) -> None:
        self._finish(self.some(self.tickets, n), final, text)

    @rule(key=places, reason=st.sampled_from(["reset", "idle"]))
    def start_conversation(self, key: str, reason: Any) -> None:
        session = self.both(
            lambda store: store.start_conversation(key, f"o:{key}", PREFIX, end_reason=reason)
        )
        self.sessions.append(session.id)
        self.conversations.append(session.conversation_id)

    @precondition(lambda self: self.sessions)
    @rule(n=small)
    def look(self, n: int) -> None:
        session_id = self.some(self.sessions, n)
        self.load(session_id)
        self.both(lambda store: store.lineage(session_id))
        self.both(lambda store: store.all_rows(session_id))
        self.both(lambda store: store.uncompressed(session_id))

    # what compaction does

    def _entries(self, loaded: LoadedSession, bits: int) -> tuple[Entry, ...]:
        kept = [Keep(row.id) for i, row in enumerate(loaded.rows) if bits >> (i % 8) & 1]
        return (SUMMARY, *kept) if bits & 256 else tuple(kept)

    def _plan(self, n: int) -> LoadedSession:
        """The newest list of a conversation, or now and then a stale one."""
        if n < 7:
            self.load(self.some(self.tickets, n).session_id)
            tip = self.both(lambda store: store.tip(self.some(self.tickets, n).session_id))
            self.load(tip.id)
        return self.some(self.plans, 0 if n < 7 else n)

    @precondition(lambda self: self.plans)
    @rule(n=small, bits=st.integers(0, 511), covered=small, switch=st.booleans())
    def split(self, n: int, bits: int, covered: int, switch: bool) -> None:
        plan = self._plan(n)
        last = plan.rows[max(0, len(plan.rows) - 1 - covered // 6)].id
        request = SplitRequest(
            plan.session.conversation_id, plan.session.id, plan.session.revision, last,
            self._entries(plan, bits), CompressionState(count=bits), {"bits": bits},
            lease_holder="h", end_reason="switch" if switch else "compression",
            prefix=PREFIXES[bits % 2] if switch else None,
        )  # fmt: skip
        changed: ChangeResult | None = self.both(lambda store: store.split(request))
        if changed is not None:
            self.sessions.append(changed.tip.id)
            self.load(changed.tip.id)

    @precondition(lambda self: self.plans)
    @rule(n=small, bits=st.integers(0, 511))
    def rewrite(self, n: int, bits: int) -> None:
        plan = self._plan(n)
        request = RewriteRequest(
            plan.session.id, plan.session.revision, plan.last_row_id, self._entries(plan, bits),
            CompressionState(count=bits % 5) if bits % 3 else None,
        )  # fmt: skip
        self.both(lambda store: store.rewrite(request))
        self.load(plan.session.id)

    @precondition(lambda self: self.plans)
    @rule(n=small, bits=st.integers(0, 511), discard=st.booleans())
    def prepare(self, n: int, bits: int, discard: bool) -> None:
        plan = self._plan(n)
        session = plan.session
        entries = self._entries(plan, bits)
        prepared = Prepared(session.id, session.revision, plan.last_row_id, entries, bits)
        self.both(lambda store: store.save_prepared(prepared))
        if discard:
            self.both(lambda store: store.discard_prepared(session.id))
        self.both(lambda store: store.prepared(session.id))
        self.both(lambda store: store.crowded(50, since=self.clock.now() - 100))

    @precondition(lambda self: self.tickets)
    @rule(n=small, holder=st.sampled_from("gh"), seconds=st.integers(-90, 90))
    def lease(self, n: int, holder: str, seconds: int) -> None:
        conversation_id = self.some(self.tickets, n).conversation_id
        self.both(lambda store: store.acquire_lease(conversation_id, holder, 60))
        self.clock.set_wall(self.clock.now() + seconds)

    # what a person does to a conversation

    @rule(key=keys, deeds=st.lists(st.sampled_from(DEEDS), min_size=2, max_size=8), cut=small)
    def go_on(self, key: str, deeds: list[str], cut: int) -> None:
        """One conversation, step by step, each with the list as it is."""
        for place, deed in enumerate(deeds):
            self.cut_at = cut if place % 2 else self.cut_at
            conversation = self.both(lambda store: store.conversation_for_key(key))
            tip = conversation and self.both(
                lambda store, tip_id=conversation.tip_session_id: store.load(tip_id)
            )
            if deed in ("talk", "steered") or not tip or not tip.rows:
                self._talk(key, f"fish {place}", steered=deed == "steered")
            elif all(row.id > 0 for row in tip.rows):
                self._do(deed, key, tip)
            # Else a stub is shown that is not stored while a turn is open: no host plans with it.

    def _talk(self, key: str, text: str, *, steered: bool) -> None:
        opening = TurnOpening(key, f"o:{key}", (), user(text), PREFIX)
        ticket = self.both(lambda store: store.begin_turn(opening))
        self._entered(ticket)
        rows = [calling("a"), result("a"), thinking(text)]
        self._append(ticket, ticket.session_id, rows[: 2 if steered else 3], 90)
        if steered:
            self._say_meanwhile(key, ticket)
        self._finish(ticket, said("墨水"), text)

    def _say_meanwhile(self, key: str, ticket: TurnTicket) -> None:
        n = next(self.lives) + 1000
        receipt = self.both(lambda store: store.accept(self._message(key, n, str(n))))
        rows = (receipt.inbox_id,)
        told = self.both(
            lambda store: store.steer(ticket, ticket.session_id, rows, user(f"ahoy {n}"))
        )
        assert told is not None
        self.steered.add(told.rows[0].id)

    def _do(self, deed: str, key: str, tip: LoadedSession) -> None:
        session, last = tip.session, tip.last_row_id
        state = session.compression
        kept = tuple(Keep(row.id) for row in tip.rows[-2:])
        match deed:
            case "compress" | "switch":
                switch = deed == "switch"
                request = SplitRequest(
                    session.conversation_id, session.id, session.revision, last,
                    tuple(Keep(row.id) for row in tip.rows) if switch else (SUMMARY, *kept),
                    state if switch else state.changed(count=state.count + 1),
                    end_reason="switch" if switch else "compression",
                )  # fmt: skip
                changed = self.both(lambda store: store.split(request))
                assert changed.applied
            case "compress in place":
                rewrite = RewriteRequest(
                    session.id, session.revision, last, (SUMMARY, *kept),
                    state.changed(count=state.count + 1),
                )  # fmt: skip
                assert self.both(lambda store: store.rewrite(rewrite)).applied
            case "uncompress":
                undo = UncompressRequest(
                    session.conversation_id, session.id, session.revision, last, state
                )
                whole = self.both(lambda store: store.uncompressed(session.id))
                changed = self.both(lambda store: store.uncompress(undo))
                assert changed.applied == bool(whole)
                loaded = self.both(lambda store: store.active_rows(changed.tip.id))
                assert not whole or [r.root_id for r in loaded] == [r.root_id for r in whole]
            case "branch":
                self.branch_of(session.id, key)
            case "undo":
                self.undo_in(session.conversation_id, 1, None, rest=True)
            case _:
                self.retry_at(key, [], rest=True)

    @precondition(lambda self: self.plans)
    @rule(n=small, hold=small)
    def uncompress(self, n: int, hold: int) -> None:
        plan = self._plan(n)
        request = UncompressRequest(
            plan.session.conversation_id, plan.session.id, plan.session.revision, plan.last_row_id,
            CompressionState(hold_tokens=hold),
        )  # fmt: skip
        changed: ChangeResult | None = self.both(lambda store: store.uncompress(request))
        if changed is not None and changed.applied:
            self.sessions.append(changed.tip.id)
            self.load(changed.tip.id)

    @precondition(lambda self: self.sessions)
    @rule(n=small, key=keys)
    def branch(self, n: int, key: str) -> None:
        self.branch_of(self.some(self.sessions, n), key)

    def branch_of(self, session_id: str, key: str) -> None:
        fork = self.both(lambda store: store.branch(session_id, key, f"o:{key}"))
        if fork is not None:
            self.sessions.append(fork.id)
            self.conversations.append(fork.conversation_id)
            self.load(fork.id)

    @precondition(lambda self: self.conversations)
    @rule(n=small, turns=st.integers(0, 3), command=st.none() | small, rest=st.booleans())
    def undo(self, n: int, turns: int, command: int | None, rest: bool) -> None:
        self.undo_in(self.some(self.conversations, n), turns, command, rest=rest)

    def undo_in(self, conversation_id: str, turns: int, command: int | None, *, rest: bool) -> None:
        if rest:
            self._end_turns()
        words = Answering(
            command or 0,
            lambda undone: OutboxDraft(Address("telegram", "1", "a"), str(len(undone.removed))),
        )
        answering = None if command is None else words
        undone = self.both(lambda store: store.undo(conversation_id, turns, answering=answering))
        if undone is not None:
            self.taken_back.update((conversation_id, row.root_id) for row in undone.removed)
            self._began_where_a_turn_does(undone)

    def _began_where_a_turn_does(self, undone: Undone) -> None:
        """Or it took what was left of one: behind a summary, or where a plan left rows out."""
        left = self.both(lambda store: store.active_rows(undone.session.id))
        assert undone.behind_summary == any(row.kind == "summary" for row in left)
        assert undone.rest or not any(row.root_id in self.steered for row in undone.removed[:1])
        if undone.rest:
            near = itertools.takewhile(lambda row: row.kind != "summary", reversed(left))
            assert not any(is_real_user(row.message, row.kind) for row in near)

    def _end_turns(self) -> None:
        for ticket in self.tickets[-3:]:
            self.both(
                lambda store, ticket=ticket: store.finish_turn(ticket, ticket.session_id, "stopped")
            )

    @rule(key=keys, inbox=st.lists(st.integers(1, 8), max_size=2), rest=st.booleans())
    def retry(self, key: str, inbox: list[int], rest: bool) -> None:
        self.retry_at(key, inbox, rest=rest)

    def retry_at(self, key: str, inbox: list[int], *, rest: bool) -> None:
        if rest:
            self._end_turns()
        opening = TurnOpening(key, f"o:{key}", tuple(inbox), user("not used"), PREFIX)
        ticket = self.both(lambda store: store.retry(opening))
        if ticket is not None:
            self._entered(ticket)

    @precondition(lambda self: self.conversations)
    @rule(n=small, title=st.none() | st.sampled_from(["Trip", "trip #4", "\u200b", "T" * 120]))
    def set_title(self, n: int, title: str | None) -> None:
        conversation_id = self.some(self.conversations, n)
        self.both(lambda store: store.set_title(conversation_id, title))

    @precondition(lambda self: self.conversations)
    @rule(n=small, key=keys)
    def resume(self, n: int, key: str) -> None:
        conversation_id = self.some(self.conversations, n)
        self.both(lambda store: store.resume(key, conversation_id))

    @precondition(lambda self: self.conversations)
    @rule(n=small)
    def usage_totals(self, n: int) -> None:
        conversation_id = self.some(self.conversations, n)
        self.both(lambda store: store.usage_totals(conversation_id))

    @precondition(lambda self: self.conversations)
    @rule(n=small, purpose=st.sampled_from(get_args(Purpose)), owner=st.none() | keys)
    def enter_request(self, n: int, purpose: Purpose, owner: str | None) -> None:
        entry = RequestEntry(purpose, "m", self.some(self.conversations, n), owner, 5, 1)
        self.both(lambda store: store.enter_request(entry))

    @precondition(lambda self: self.conversations)
    @rule(n=small, owner=st.none() | keys.map("o:{}".format), whole=st.booleans())
    def ledger(self, n: int, owner: str | None, whole: bool) -> None:
        conversation_id = None if whole else self.some(self.conversations, n)
        scope = LedgerScope(owner=owner, conversation_id=conversation_id)
        self.both(lambda store: store.ledger_lines(scope))
        self.both(lambda store: store.compressions(scope))

    @rule(owner=keys, mark=st.sampled_from(["monday", "tuesday"]))
    def first_time(self, owner: str, mark: str) -> None:
        self.both(lambda store: store.first_time(owner, mark))

    @rule(point=st.integers(0, 12))
    def the_next_call_is_cut_off(self, point: int) -> None:
        self.cut_at = point

    # what a restart does

    @rule(end=st.sampled_from(["none", "close", "kill"]))
    def restart(self, end: str) -> None:
        if end == "kill":
            # What a killed process leaves: the file and its log, as they are at this moment.
            copy = self.path.with_name(f"{next(self.lives)}.db")
            shutil.copy(self.path, copy)
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(f"{self.path}-wal", f"{copy}-wal")
            self.loop.run_until_complete(self.sql.close())
            self.path = copy
        elif end == "close":
            self.loop.run_until_complete(self.sql.close())
        if end != "none":
            self.sql = self.loop.run_until_complete(self._open())
        self.both(lambda store: store.recover_turns())

    @precondition(lambda self: self.tickets)
    @rule(n=small, resume=st.booleans())
    def interrupt_or_resume(self, n: int, resume: bool) -> None:
        ticket = self.some(self.tickets, n)
        if resume:
            self.both(lambda store: store.resume_turn(ticket))
        else:
            self.both(lambda store: store.interrupt_turn(ticket))

    # what delivery does

    @rule(
        deed=st.sampled_from(["plan", "mark", "mark", "give up", "answer"]),
        n=small,
        count=st.integers(0, 3),
        state=st.sampled_from(["sending", "sent", "unknown", "failed"]),
    )
    def deliver(self, deed: str, n: int, count: int, state: Any) -> None:
        match deed:
            case "plan":
                drafts = [PartDraft({"n": i}) for i in range(count)]
                planned = self.both(lambda store: store.plan_parts(n + 1, drafts))
                self.parts.extend(part.id for part in planned or ())
            case "mark" if self.parts:
                part_id = self.some(self.parts, n)
                self.both(lambda store: store.mark_part(part_id, state, error=state[:1]))
            case "give up":
                self.both(lambda store: store.fail_outbox(n + 1, "old"))
            case _:
                self.both(lambda store: store.answer_inbox((n, n + count)))

    @rule(n=st.integers(1, 8), news=st.booleans())
    def ask_for_a_restart(self, n: int, news: bool) -> None:
        answer = (OutboxDraft(Address("telegram", "1", "a"), f"restarting {n}", "command"),)
        self.both(lambda store: store.await_restart(n, answer))
        if news:
            self.both(lambda store: store.say_restarted("back"))

    # what can be seen

    @rule(query=words, owner=st.none() | keys.map(lambda key: f"o:{key}"))
    def search(self, query: str, owner: str | None) -> None:
        """The scores are each store's own; neither may fail, nor leave the scope."""
        for store in (self.sql, self.memory):
            for hit in self.loop.run_until_complete(store.search(query, SearchScope(owner=owner))):
                found = self.loop.run_until_complete(store.conversation_of_message(hit.message_id))
                assert found is not None
                assert owner in (None, found.owner)
                assert (found.id, hit.message_id) not in self.taken_back

    @rule(n=small, before=small, after=small)
    def window(self, n: int, before: int, after: int) -> None:
        self.both(lambda store: store.window(n * 3 + 1, before=before, after=after))

    @invariant()
    def the_same_is_seen(self) -> None:
        if hasattr(self, "sql"):
            self.both(_all_that_is_seen)
            check_invariants(self.path, integrity=False)


async def _move_house(store: SqlStore, path: Path) -> None:
    """Whatever a conversation has been through: out, into another store, and out again the same."""
    ids = {session.conversation_id: session.id for session in await store.list_sessions(limit=500)}
    other = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    for session_id in ids.values():
        whole = await store.portable(session_id)
        if await other.session_ids(whole.sessions[-1].id):
            continue
        lines = list(write_lines([whole]))
        (taken,) = await other.take_in(read_lines(lines))
        assert list(write_lines([await other.portable(taken.tip_session_id)])) == lines
        there, here = [await each.uncompressed(taken.tip_session_id) for each in (other, store)]
        assert [row.message for row in there] == [row.message for row in here]
    await other.close()
    check_invariants(path)


async def _all_that_is_seen(store: Store) -> list[Any]:
    seen: list[Any] = [
        await store.list_sessions(),
        await store.owed(),
        await store.open_inbox(),
        await store.inbox_items(range(1, 20)),
        await store.cursors("telegram", "1"),
        await store.moved_chats("telegram", "1"),
    ]
    for key in (*KEYS, PERSONAL):
        seen.append(await store.conversation_for_key(key))
        seen.append(await store.conversations_of(f"o:{key}"))
        seen.append(await store.conversations_at(key))
    return seen


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


_quick = settings(
    max_examples=40, stateful_step_count=20, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
StoresInLockstep.TestCase.settings = _quick


class TestStores(StoresInLockstep.TestCase):  # type: ignore[name-defined,misc]
    """Short; part of every run."""


@pytest.mark.torture
@pytest.mark.timeout(5400)
class TestStoresLong(StoresInLockstep.TestCase):  # type: ignore[name-defined,misc]
    """Long."""

    settings = settings(_quick, max_examples=1500, stateful_step_count=80)
