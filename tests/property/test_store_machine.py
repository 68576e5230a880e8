"""Owns the lockstep of both stores: whatever is asked in whatever order, they say the same."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.errors import StoreError
from agent.mail import Address, Cursor, InboxRecord, OutboxDraft, PartDraft
from agent.messages import Draft, Entry, Keep, orphan_results, unanswered_calls
from agent.ports import Store, Usage
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
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.contract.store_suite import calling, result, said, thinking, user
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

KEYS = [session_key("telegram", "1", chat, None, None) for chat in ("a", "b")]
PREFIX = SessionPrefix("telegram", "m", "prompt")
SUMMARY = Draft({"role": "user", "content": "[sum] fish"}, kind="summary")

keys = st.sampled_from(KEYS)
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


class StoresInLockstep(RuleBasedStateMachine):
    """Runs each call on both stores and compares answers and errors."""

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # commits wait for no disk there
        self.folder = tempfile.TemporaryDirectory(prefix="posthouse-machine-", dir=memory)
        self.path = Path(self.folder.name) / "state.db"
        self.clock = FakeClock()
        self.sql: Store = self.loop.run_until_complete(self._open())
        self.memory: Store = MemoryStore(self.clock, SequentialIds(), set_aside_notice="set aside")
        self.ids = SequentialIds()
        self.tickets: list[TurnTicket] = []
        self.sessions: list[str] = []
        self.plans: list[LoadedSession] = []
        self.parts: list[int] = []

    async def _open(self) -> Store:
        self.sql_ids = getattr(self, "sql_ids", SequentialIds())
        return await open_store(
            self.path, clock=self.clock, ids=self.sql_ids, set_aside_notice="set aside"
        )

    def teardown(self) -> None:
        if hasattr(self, "sql"):
            self.loop.run_until_complete(self.sql.close())
            self.loop.close()
            check_invariants(self.path)
            self.folder.cleanup()

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        outcomes = []
        for store in (self.sql, self.memory):
            try:
                outcomes.append(self.loop.run_until_complete(_awaited(call(store))))
            except (StoreError, ValueError) as exc:
                outcomes.append(type(exc))
        assert outcomes[0] == outcomes[1]
        return None if isinstance(outcomes[0], type) else outcomes[0]

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

    @rule(key=keys, n=small)
    def accept(self, key: str, n: int) -> None:
        record = InboxRecord(
            Address("telegram", "1", key), str(n), "message", key, f"o:{key}", f"m{n}",
            self.clock.now(), 0.0, str(n % 7),
        )  # fmt: skip
        self.both(lambda store: store.accept(record, Cursor("telegram", "1", key, str(n))))

    @rule(
        key=keys,
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
        self.tickets.append(ticket)
        self.sessions.append(ticket.session_id)
        for rows in steps:
            self._append(ticket, ticket.session_id, rows, tokens)
        if end == "finish":
            self._finish(ticket, None, text)
        elif end == "interrupt":
            self.both(lambda store: store.interrupt_turn(ticket))
        self.load(ticket.session_id)

    def _append(
        self, ticket: TurnTicket, session_id: str, rows: list[Draft], tokens: int | None
    ) -> None:
        usage = None if tokens is None else Usage(tokens, 1)
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

    @rule(key=keys, reason=st.sampled_from(["reset", "idle"]))
    def start_conversation(self, key: str, reason: Any) -> None:
        session = self.both(
            lambda store: store.start_conversation(key, f"o:{key}", PREFIX, end_reason=reason)
        )
        self.sessions.append(session.id)

    @precondition(lambda self: self.sessions)
    @rule(n=small)
    def look(self, n: int) -> None:
        session_id = self.some(self.sessions, n)
        self.load(session_id)
        self.both(lambda store: store.lineage(session_id))
        self.both(lambda store: store.all_rows(session_id))

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
    @rule(n=small, bits=st.integers(0, 511), covered=small)
    def split(self, n: int, bits: int, covered: int) -> None:
        plan = self._plan(n)
        last = plan.rows[max(0, len(plan.rows) - 1 - covered // 6)].id
        request = SplitRequest(
            plan.session.conversation_id, plan.session.id, plan.session.revision, last,
            self._entries(plan, bits), CompressionState(count=bits), {"bits": bits},
            lease_holder="h",
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
            plan.session.id, plan.session.revision, plan.last_row_id, self._entries(plan, bits)
        )
        self.both(lambda store: store.rewrite(request))
        self.load(plan.session.id)

    @precondition(lambda self: self.tickets)
    @rule(n=small, holder=st.sampled_from("gh"), seconds=st.integers(-90, 90))
    def lease(self, n: int, holder: str, seconds: int) -> None:
        conversation_id = self.some(self.tickets, n).conversation_id
        self.both(lambda store: store.acquire_lease(conversation_id, holder, 60))
        self.clock.set_wall(self.clock.now() + seconds)

    # what a restart does

    @rule(close=st.booleans())
    def restart(self, close: bool) -> None:
        if close:
            self.loop.run_until_complete(self.sql.close())
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

    # what can be seen

    @rule(query=words, owner=st.none() | keys.map(lambda key: f"o:{key}"))
    def search(self, query: str, owner: str | None) -> None:
        """The scores are each store's own; neither may fail, nor leave the scope."""
        for store in (self.sql, self.memory):
            for hit in self.loop.run_until_complete(store.search(query, SearchScope(owner=owner))):
                found = self.loop.run_until_complete(store.conversation_of_message(hit.message_id))
                assert found is not None
                assert owner in (None, found.owner)

    @rule(n=small, before=small, after=small)
    def window(self, n: int, before: int, after: int) -> None:
        self.both(lambda store: store.window(n * 3 + 1, before=before, after=after))

    @invariant()
    def the_same_is_seen(self) -> None:
        if hasattr(self, "sql"):
            self.both(lambda store: store.list_sessions())
            self.both(lambda store: store.owed())
            self.both(lambda store: store.open_inbox())
            for key in KEYS:
                self.both(lambda store, key=key: store.conversation_for_key(key))
            self.both(lambda store: store.cursors("telegram", "1"))


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


_quick = settings(
    max_examples=100, stateful_step_count=30, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
StoresInLockstep.TestCase.settings = _quick


class TestStores(StoresInLockstep.TestCase):  # type: ignore[name-defined,misc]
    """Short; part of every run."""


@pytest.mark.torture
class TestStoresLong(StoresInLockstep.TestCase):  # type: ignore[name-defined,misc]
    """Long."""

    settings = settings(_quick, max_examples=1500, stateful_step_count=80)
