"""Owns the contract of `agent.store_ports.Store`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.errors import SessionEnded, SessionNotFound, StaleTurn, StoreError
from agent.mail import Address, Button, Cursor, InboxRecord, OutboxDraft, PartDraft
from agent.messages import (
    Draft,
    FunctionCall,
    Keep,
    Message,
    ToolSchema,
    orphan_results,
    unanswered_calls,
)
from agent.ports import Usage
from agent.sessions import (
    CompressionState,
    LoadedSession,
    RewriteRequest,
    SearchScope,
    SessionPrefix,
    SplitRequest,
    TurnOpening,
    TurnTicket,
    UsageAnchor,
    session_key,
)
from agent.store_ports import Store
from tests.fakes.clock import FakeClock

KEY = session_key("telegram", "7", "111", None, "222")
OWNER = "telegram:222"
CHAT = Address("telegram", "7", "111")
PREFIX = SessionPrefix(
    "telegram",
    "claude-test",
    "You are helpful. 你好",
    (ToolSchema("clock", "Tells the time"), ToolSchema("recall", "Searches", {"type": "object"})),
    {"max_tokens": 8192},
)


def user(text: str, **extra: Any) -> Draft:
    return Draft({"role": "user", "content": text}, **extra)


def said(text: str) -> Draft:
    return Draft({"role": "assistant", "content": text})


def calling(*ids: str, text: str | None = None) -> Draft:
    return Draft(
        {
            "role": "assistant",
            "content": text,
            "tool_calls": [
                {"id": i, "type": "function", "function": {"name": "clock", "arguments": "{}"}}
                for i in ids
            ],
        }
    )


def result(call_id: str, text: str = "12:00") -> Draft:
    return Draft({"role": "tool", "content": text, "tool_call_id": call_id, "name": "clock"})


def thinking(text: str) -> Draft:
    return Draft(
        {
            "role": "assistant",
            "content": text,
            "anthropic_content_blocks": [
                {"type": "thinking", "thinking": "hm", "signature": "S\u00e9\ud83d1"},
                {"type": "text", "text": text},
            ],
        }
    )


def inbound(n: int, **changes: Any) -> InboxRecord:
    fields: dict[str, Any] = {
        "address": CHAT,
        "message_id": str(n),
        "kind": "message",
        "session_key": KEY,
        "owner": OWNER,
        "text": f"message {n}",
        "received_at": 1_800_000_000.0 + n,
        "sent_at": 1_800_000_000.0,
        "update_id": str(1000 + n),
        "payload": {"name": "Ann"},
    }
    return InboxRecord(**{**fields, **changes})


async def begin(
    store: Store, text: str = "hello", inbox: tuple[int, ...] = (), **changes: Any
) -> TurnTicket:
    fields = {"session_key": KEY, "owner": OWNER, "message": user(text), "prefix": PREFIX}
    return await store.begin_turn(TurnOpening(inbox_ids=inbox, **{**fields, **changes}))


async def talk(store: Store, *replies: Draft, text: str = "hello") -> LoadedSession:
    """A finished turn with these rows; gives the session as loaded."""
    ticket = await begin(store, text)
    await store.append(ticket, ticket.session_id, replies)
    await store.finish_turn(ticket, ticket.session_id, "done")
    return await store.load(ticket.session_id)


def texts(loaded: LoadedSession) -> list[Any]:
    return [row.message["content"] for row in loaded.rows]


def split_of(loaded: LoadedSession, *entries: Keep | Draft, **changes: Any) -> SplitRequest:
    fields: dict[str, Any] = {
        "conversation_id": loaded.session.conversation_id,
        "parent_id": loaded.session.id,
        "expected_revision": loaded.session.revision,
        "covered_row_id": loaded.last_row_id,
        "entries": entries,
        "compression": CompressionState(count=1, awaiting_usage=True),
    }
    return SplitRequest(**{**fields, **changes})


def rewrite_of(loaded: LoadedSession, *entries: Keep | Draft, **changes: Any) -> RewriteRequest:
    fields: dict[str, Any] = {
        "session_id": loaded.session.id,
        "expected_revision": loaded.session.revision,
        "covered_row_id": loaded.last_row_id,
        "entries": entries,
    }
    return RewriteRequest(**{**fields, **changes})


SUMMARY = Draft({"role": "user", "content": "[Earlier conversation] …"}, kind="summary")


class ConversationContract:
    async def test_an_unknown_key_leads_nowhere(self, store: Store) -> None:
        assert await store.conversation_for_key(KEY) is None
        assert await store.conversation("c_none") is None

    async def test_a_started_conversation_is_found_by_key_and_id(self, store: Store) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        found = await store.conversation_for_key(KEY)
        assert found is not None
        assert found == await store.conversation(session.conversation_id)
        assert (found.owner, found.session_key, found.tip_session_id) == (OWNER, KEY, session.id)
        assert session.prefix == PREFIX
        assert session == await store.session(session.id)

    async def test_starting_again_ends_the_old_tip_and_moves_the_key(self, store: Store) -> None:
        old = await store.start_conversation(KEY, OWNER, PREFIX)
        new = await store.start_conversation(KEY, OWNER, PREFIX, end_reason="idle")
        ended = await store.session(old.id)
        assert (ended.end_reason, ended.ended_at is None) == ("idle", False)
        assert new.conversation_id != old.conversation_id
        assert (await begin(store)).session_id == new.id

    @pytest.mark.parametrize("ask", ["session", "tip", "load", "lineage"])
    async def test_an_id_that_never_existed_is_said_so(self, store: Store, ask: str) -> None:
        with pytest.raises(SessionNotFound):
            await getattr(store, ask)("s_none")

    async def test_compression_state_is_kept_and_ignored_for_ended(self, store: Store) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        state = CompressionState(count=3, cooldown_until=9.5, told_reason="no key: é")
        await store.set_compression(session.id, state)
        assert (await store.session(session.id)).compression == state
        await store.start_conversation(KEY, OWNER, PREFIX)
        await store.set_compression(session.id, CompressionState())
        assert (await store.session(session.id)).compression == state
        await store.set_compression("s_none", state)


class LeaseContract:
    async def test_one_holder_at_a_time(self, store: Store) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.acquire_lease(session.conversation_id, "a", 60)
        assert await store.acquire_lease(session.conversation_id, "a", 60)
        assert not await store.acquire_lease(session.conversation_id, "b", 60)
        await store.release_lease(session.conversation_id, "b")
        assert not await store.acquire_lease(session.conversation_id, "b", 60)
        await store.release_lease(session.conversation_id, "a")
        assert await store.acquire_lease(session.conversation_id, "b", 60)

    async def test_leases_do_not_outlive_a_start(self, store: Store) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.acquire_lease(session.conversation_id, "a run that was killed", 900)
        await store.recover_turns()
        assert await store.acquire_lease(session.conversation_id, "b", 900)

    async def test_an_expired_lease_is_free(self, store: Store, clock: FakeClock) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.acquire_lease(session.conversation_id, "a", 60)
        await clock.advance(60)
        assert await store.acquire_lease(session.conversation_id, "b", 60)

    async def test_a_lease_from_the_future_is_free(self, store: Store, clock: FakeClock) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.acquire_lease(session.conversation_id, "a", 60)
        clock.set_wall(clock.now() - 3600)
        assert await store.acquire_lease(session.conversation_id, "b", 60)


class TurnContract:
    async def test_a_whole_turn(self, store: Store, clock: FakeClock) -> None:
        receipt = await store.accept(inbound(1))
        ticket = await begin(store, "what time is it?", (receipt.inbox_id,))
        assert await store.open_inbox() == []
        appended = await store.append(
            ticket, ticket.session_id, (calling("c1"),), anchor_usage=Usage(10, 5, 100, 0)
        )
        await clock.advance(5)
        await store.append(ticket, ticket.session_id, (result("c1"),))
        items = await store.finish_turn(
            ticket,
            ticket.session_id,
            "done",
            final=said("noon"),
            anchor_usage=Usage(20, 6, 100, 5),
            outbox=(OutboxDraft(CHAT, "noon"),),
        )
        loaded = await store.load(ticket.session_id)
        assert texts(loaded) == ["what time is it?", None, "12:00", "noon"]
        assert [row.seq for row in loaded.rows] == sorted({row.seq for row in loaded.rows})
        assert loaded.rows[1] == appended.rows[0]
        assert loaded.rows[0].id == ticket.user_row_id
        assert loaded.session.message_count == 4
        assert loaded.session.anchor == UsageAnchor(125, 6, loaded.last_row_id)
        assert [item.draft.text for item in await store.owed()] == ["noon"]
        assert (await store.owed())[0] == items[0]
        assert items[0].conversation_id == ticket.conversation_id
        assert loaded.rows[2].created_at - loaded.rows[1].created_at == 5
        assert all(row.tokens > 0 for row in loaded.rows)

    async def test_the_usage_anchor_is_at_the_first_row(self, store: Store) -> None:
        ticket = await begin(store)
        stored = await store.append(
            ticket, ticket.session_id, (calling("c1"), result("c1")), anchor_usage=Usage(7, 1)
        )
        anchor = (await store.session(ticket.session_id)).anchor
        assert anchor == UsageAnchor(7, 1, stored.rows[0].id)

    async def test_a_usage_of_zero_measures_nothing(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=Usage(7, 1))
        await store.append(ticket, ticket.session_id, (said("b"),), anchor_usage=Usage())
        anchor = (await store.session(ticket.session_id)).anchor
        assert anchor is not None
        assert anchor.prompt_tokens == 7

    async def test_beginning_twice_gives_the_same_turn(self, store: Store) -> None:
        first = (await store.accept(inbound(1))).inbox_id
        second = (await store.accept(inbound(2))).inbox_id
        ticket = await begin(store, "hello", (first,))
        assert await begin(store, "hello", (first, second)) == ticket
        assert len((await store.load(ticket.session_id)).rows) == 1
        assert [item.id for item in await store.open_inbox()] == [second]

    async def test_a_turn_has_the_id_that_it_was_promised(self, store: Store) -> None:
        inbox_id = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "hello", (inbox_id,), turn_id="t_promised")
        assert ticket.turn_id == "t_promised"
        assert await begin(store, "hello", (inbox_id,), turn_id="t_promised") == ticket
        assert await begin(store, "hello", (inbox_id,), turn_id="t_other") == ticket

    async def test_an_answered_message_begins_nothing(self, store: Store) -> None:
        inbox_id = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "hello", (inbox_id,))
        await store.finish_turn(ticket, ticket.session_id, "done")
        with pytest.raises(StaleTurn):
            await begin(store, "hello", (inbox_id,))
        assert len((await store.load(ticket.session_id)).rows) == 1

    async def test_a_finished_turn_writes_nothing_more(self, store: Store) -> None:
        ticket = await begin(store)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        with pytest.raises(StaleTurn):
            await store.append(ticket, ticket.session_id, (said("late"),))
        with pytest.raises(StaleTurn):
            await store.finish_turn(
                ticket,
                ticket.session_id,
                "done",
                final=said("late"),
                outbox=(OutboxDraft(CHAT, "x"),),
            )
        assert len((await store.load(ticket.session_id)).rows) == 1
        assert await store.owed() == []

    async def test_a_session_that_is_not_the_tip_takes_nothing(self, store: Store) -> None:
        ticket = await begin(store)
        await store.start_conversation(KEY, OWNER, PREFIX)
        with pytest.raises(SessionEnded):
            await store.append(ticket, ticket.session_id, (said("late"),))
        with pytest.raises(SessionEnded):
            await store.finish_turn(ticket, ticket.session_id, "done", final=said("late"))
        await store.finish_turn(ticket, ticket.session_id, "failed")

    async def test_another_conversations_session_takes_nothing(self, store: Store) -> None:
        mine = await begin(store)
        other = await begin(store, session_key=session_key("discord", "1", "5", None, None))
        for session_id in (other.session_id, "s_none"):
            with pytest.raises(SessionEnded):
                await store.append(mine, session_id, (said("wrong"),))

    async def test_open_calls_are_answered_before_the_next_message(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a", "b"), result("a")))
        await store.finish_turn(ticket, ticket.session_id, "failed")
        again = await begin(store, "hi")
        loaded = await store.load(again.session_id)
        assert [row.message["role"] for row in loaded.rows] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]
        stub = loaded.rows[3]
        assert (stub.kind, stub.message["tool_call_id"]) == ("stub", "b")
        assert loaded.session.revision == 0
        assert loaded.session.message_count == 5

    async def test_looking_at_a_running_turn_does_not_answer_its_calls(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a"),))
        looked = await store.load(ticket.session_id)
        assert [row.message["role"] for row in looked.rows] == ["user", "assistant", "tool"]
        await store.append(ticket, ticket.session_id, (result("a", "the real one"),))
        loaded = await store.load(ticket.session_id, ticket=ticket)
        assert [row.message["content"] for row in loaded.rows][2:] == ["the real one"]
        assert loaded.session.revision == 0

    async def test_the_running_turn_itself_may_repair(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a"),))
        loaded = await store.load(ticket.session_id, ticket=ticket)
        assert loaded.rows[2].kind == "stub"
        assert (await store.active_rows(ticket.session_id))[2].id == loaded.rows[2].id

    async def test_an_identity_stays_with_its_store(self, store: Store) -> None:
        first = await store.identity()
        await begin(store)
        assert await store.identity() == first != ""

    async def test_active_rows_are_the_list_as_it_stands(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a"),))
        rows = await store.active_rows(ticket.session_id)
        assert [row.message["role"] for row in rows] == ["user", "assistant"]
        with pytest.raises(SessionNotFound):
            await store.active_rows("s_never")

    async def test_inbox_rows_are_found_by_id(self, store: Store) -> None:
        first = (await store.accept(inbound(1))).inbox_id
        second = (await store.accept(inbound(2))).inbox_id
        found = await store.inbox_items([second, 999_999, first])
        assert [item.id for item in found] == [first, second]
        assert {item.state for item in found} == {"new"}

    async def test_user_rows_carry_both_forms(self, store: Store) -> None:
        parts = [{"type": "text", "text": "看"}, {"type": "image_url", "image_url": {"url": "x"}}]
        ticket = await begin(
            store, message=Draft({"role": "user", "content": parts}, wire_content="[Ann] 看")
        )
        (row,) = (await store.load(ticket.session_id)).rows
        assert (row.message["content"], row.wire_content) == (parts, "[Ann] 看")

    async def test_an_orderly_interruption_is_resumed(self, store: Store) -> None:
        inbox_id = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "hello", (inbox_id,))
        await store.append(ticket, ticket.session_id, (calling("c1"),))
        await store.interrupt_turn(ticket)
        with pytest.raises(StaleTurn):
            await store.append(ticket, ticket.session_id, (said("x"),))
        (found,) = await store.recover_turns()
        assert (found.ticket, found.orderly, found.crashes) == (ticket, True, 0)
        assert (found.inbox_ids, found.session_key, found.owner) == ((inbox_id,), KEY, OWNER)
        loaded = await store.resume_turn(ticket)
        assert [row.kind for row in loaded.rows] == [None, None, "stub"]
        await store.append(ticket, ticket.session_id, (said("done"),))
        await store.finish_turn(ticket, ticket.session_id, "done")
        assert await store.recover_turns() == []
        with pytest.raises(StaleTurn):
            await store.resume_turn(ticket)
        await store.interrupt_turn(ticket)
        assert await store.recover_turns() == []

    async def test_crashes_without_progress_set_a_turn_aside(self, store: Store) -> None:
        inbox_id = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "boom", (inbox_id,))
        other = await begin(store, session_key=session_key("discord", "1", "5", None, None))

        async def crash() -> list[tuple[str, int]]:
            return [(t.ticket.turn_id, t.crashes) for t in await store.recover_turns()]

        for crashes in (1, 2):
            # A crash without a step in between is one more; a step makes it the first again.
            assert await crash() == [(ticket.turn_id, crashes), (other.turn_id, 1)]
            await store.resume_turn(ticket)
            loaded = await store.resume_turn(other)
            await store.append(other, loaded.session.id, (said("step"),))
        assert await crash() == [(other.turn_id, 1)]
        (notice,) = await store.owed()
        assert (notice.draft.kind, notice.draft.address.chat_id) == ("notice", "111")
        assert notice.draft.address.reply_to_message_id == "1"
        assert await store.open_inbox() == []
        with pytest.raises(StaleTurn):
            await store.resume_turn(ticket)
        assert (await begin(store, "next")).session_id == ticket.session_id

    async def test_a_counted_crash_is_not_counted_again(self, store: Store) -> None:
        await begin(store)
        assert [t.crashes for t in await store.recover_turns()] == [1]
        assert [t.crashes for t in await store.recover_turns()] == [1]

    async def test_a_set_aside_turn_without_message_tells_its_chat(self, store: Store) -> None:
        await begin(store)
        assert await store.recover_turns(crash_limit=1) == []
        (notice,) = await store.owed()
        assert notice.draft.address == Address("telegram", "7", "111", None)


class RepairContract:
    async def test_a_sound_list_is_left_alone(self, store: Store) -> None:
        loaded = await talk(store, calling("a"), result("a"), said("ok"))
        again = await store.load(loaded.session.id)
        assert again == loaded
        assert again.session.revision == 0

    async def test_a_missing_result_at_the_end_is_an_append(self, store: Store) -> None:
        loaded = await talk(store, calling("a", "b"))
        assert [row.kind for row in loaded.rows] == [None, None, "stub", "stub"]
        assert loaded.session.revision == 0
        assert await store.load(loaded.session.id) == loaded

    async def test_a_hole_in_the_middle_is_a_revision(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(
            ticket, ticket.session_id,
            (calling("a"), said("moved on"), result("a"), result("ghost"), thinking("late")),
            anchor_usage=Usage(9, 9),
        )  # fmt: skip
        await store.finish_turn(ticket, ticket.session_id, "failed")
        loaded = await store.load(ticket.session_id)
        messages = [row.message for row in loaded.rows]
        assert unanswered_calls(messages) == []
        assert orphan_results(messages) == []
        assert [m["role"] for m in messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "assistant",
        ]
        assert loaded.rows[2].kind == "stub"
        assert "anthropic_content_blocks" not in messages[-1]
        assert (loaded.session.revision, loaded.session.anchor) == (1, None)
        assert await store.load(ticket.session_id) == loaded
        everything = await store.all_rows(ticket.session_id)
        assert {"12:00"} <= {row.message["content"] for row in everything}

    async def test_an_ended_session_is_shown_repaired_but_not_changed(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a"),))
        await store.start_conversation(KEY, OWNER, PREFIX)
        loaded = await store.load(ticket.session_id)
        assert [row.message["role"] for row in loaded.rows] == ["user", "assistant", "tool"]
        assert loaded.rows[-1].id < 0
        assert len(await store.all_rows(ticket.session_id)) == 2


class SplitContract:
    async def test_a_split_moves_the_conversation_on(self, store: Store) -> None:
        parent = await talk(store, said("one"), thinking("two"), said("three"))
        keep = [Keep(row.id) for row in parent.rows[2:]]
        request = split_of(parent, SUMMARY, *keep, manifest={"kept": ["x"]})
        changed = await store.split(request)
        assert changed.applied
        child = await store.load(changed.tip.id)
        assert texts(child) == [SUMMARY.message["content"], "two", "three"]
        assert [row.kind for row in child.rows] == ["summary", None, None]
        assert [row.origin_id for row in child.rows] == [None, parent.rows[2].id, parent.rows[3].id]
        assert "anthropic_content_blocks" not in child.rows[1].message
        assert [row.created_at for row in child.rows[1:]] == [r.created_at for r in parent.rows[2:]]
        session = child.session
        assert session == changed.tip
        assert (session.parent_session_id, session.link, session.revision) == (
            parent.session.id, "continuation", 0,
        )  # fmt: skip
        assert (session.prefix, session.anchor, session.message_count) == (PREFIX, None, 3)
        assert (session.compression, session.manifest) == (request.compression, {"kept": ["x"]})
        closed = await store.load(parent.session.id)
        assert closed.session.end_reason == "compression"
        assert closed.rows == parent.rows
        assert (await begin(store, "next")).session_id == session.id
        for stale in (parent.session.id, session.id):
            assert (await store.tip(stale)).id == session.id
            assert [s.id for s in await store.lineage(stale)] == [parent.session.id, session.id]

    async def test_a_copy_keeps_its_thinking_where_it_stays_valid(self, store: Store) -> None:
        parent = await talk(store, thinking("one"), calling("c"), result("c"), thinking("two"))
        ticket = await begin(store, "meanwhile")
        await store.append(ticket, ticket.session_id, (thinking("late"),))
        keep = [Keep(row.id, with_thinking=True) for row in parent.rows[2:]]
        changed = await store.split(split_of(parent, SUMMARY, *keep))
        child = await store.load(changed.tip.id)
        copy, original = child.rows[3], parent.rows[4]
        assert (copy.message, copy.tokens) == (original.message, original.tokens)
        assert copy.origin_id == original.id
        # What came later was thought behind another prefix than the new one.
        assert texts(child)[-1] == "late"
        assert "anthropic_content_blocks" not in child.rows[-1].message

    async def test_origins_are_first_originals_over_many_splits(self, store: Store) -> None:
        loaded = await talk(store, said("keep me"))
        root = loaded.rows[1].id
        for _ in range(3):
            changed = await store.split(split_of(loaded, SUMMARY, Keep(loaded.rows[-1].id)))
            loaded = await store.load(changed.tip.id)
            assert loaded.rows[-1].origin_id == root
        assert len(await store.lineage(loaded.session.id)) == 4

    async def test_rows_that_came_later_are_carried_over(self, store: Store) -> None:
        parent = await talk(store, said("one"), said("two"))
        ticket = await begin(store, "meanwhile")
        await store.append(ticket, ticket.session_id, (calling("c"), result("c")))
        changed = await store.split(split_of(parent, SUMMARY, Keep(parent.rows[-1].id)))
        assert changed.applied
        child = await store.load(changed.tip.id)
        assert texts(child)[1:] == ["two", "meanwhile", None, "12:00"]
        with pytest.raises(SessionEnded):
            await store.append(ticket, ticket.session_id, (said("old"),))
        await store.append(ticket, child.session.id, (said("new"),))

    async def test_two_splits_at_once_make_one_child(self, store: Store) -> None:
        parent = await talk(store, said("one"), said("two"))
        requests = [split_of(parent, SUMMARY, Keep(parent.rows[-1].id)) for _ in range(5)]
        results = await asyncio.gather(*(store.split(request) for request in requests))
        assert [r.applied for r in results].count(True) == 1
        assert len({r.tip.id for r in results}) == 1
        assert len(await store.lineage(parent.session.id)) == 2

    @pytest.mark.parametrize(
        "stale", [{"expected_revision": 5}, {"covered_row_id": 99_999}, {"covered_row_id": 0}]
    )
    async def test_a_stale_plan_is_not_applied(self, store: Store, stale: dict[str, int]) -> None:
        parent = await talk(store, said("one"))
        changed = await store.split(split_of(parent, SUMMARY, **stale))
        assert not changed.applied
        assert changed.tip == parent.session
        assert await store.load(parent.session.id) == parent

    async def test_after_a_reset_the_plan_is_void(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        await store.start_conversation(KEY, OWNER, PREFIX)
        changed = await store.split(split_of(parent, SUMMARY))
        assert (changed.applied, changed.tip.id) == (False, parent.session.id)
        assert (await store.session(parent.session.id)).end_reason == "reset"

    async def test_a_plan_that_loses_or_doubles_is_refused(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        later = await talk(store, said("two"), text="more")
        first, last = parent.rows[0].id, later.rows[-1].id
        for entries in ((), (Keep(first), Keep(first)), (Keep(last + 7),)):
            with pytest.raises(ValueError, match=r"plan|kept"):
                await store.split(split_of(later, *entries))
            with pytest.raises(ValueError, match=r"plan|kept"):
                await store.rewrite(rewrite_of(later, *entries))
        # A row that came later is carried over by itself; naming it would double it.
        with pytest.raises(ValueError, match="kept twice"):
            await store.split(split_of(parent, SUMMARY, Keep(last)))
        assert await store.load(later.session.id) == later

    async def test_unknown_ids(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        with pytest.raises(SessionNotFound):
            await store.split(split_of(parent, SUMMARY, parent_id="s_none"))
        with pytest.raises(SessionNotFound):
            await store.split(split_of(parent, SUMMARY, conversation_id="c_none"))
        with pytest.raises(SessionNotFound):
            await store.rewrite(rewrite_of(parent, SUMMARY, session_id="s_none"))

    async def test_a_split_drops_its_own_lease(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        cid = parent.session.conversation_id
        await store.acquire_lease(cid, "me", 60)
        await store.split(split_of(parent, SUMMARY, lease_holder="somebody else"))
        assert not await store.acquire_lease(cid, "other", 60)
        child = await store.load((await store.tip(parent.session.id)).id)
        await store.split(split_of(child, SUMMARY, lease_holder="me"))
        assert await store.acquire_lease(cid, "other", 60)

    async def test_a_switch_brings_a_new_prefix(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        prefix = SessionPrefix("telegram", "other-model", "Be brief.")
        keep = [Keep(row.id) for row in parent.rows]
        changed = await store.split(split_of(parent, *keep, prefix=prefix, end_reason="switch"))
        assert changed.tip.prefix == prefix
        assert (await store.session(parent.session.id)).end_reason == "switch"


class RewriteContract:
    async def test_a_rewrite_is_a_revision(self, store: Store) -> None:
        loaded = await talk(store, thinking("one"), calling("c"), result("c"), thinking("two"))
        stub = Draft(
            {"role": "tool", "content": "[cut]", "tool_call_id": "c", "name": "clock"},
            kind="stub",
            origin_id=loaded.rows[3].id,
        )
        keep = [Keep(row.id) for row in loaded.rows]
        state = CompressionState(count=2)
        changed = await store.rewrite(
            rewrite_of(loaded, *keep[:3], stub, keep[4], compression=state, manifest={"n": 1})
        )
        assert changed.applied
        after = await store.load(loaded.session.id)
        assert after.session == changed.tip
        assert texts(after) == ["hello", "one", None, "[cut]", "two"]
        # In front of the change everything is as it was; behind it thinking is gone.
        assert after.rows[:3] == loaded.rows[:3]
        assert "anthropic_content_blocks" not in after.rows[4].message
        assert after.rows[4].origin_id == loaded.rows[4].id
        assert after.rows[3].origin_id == loaded.rows[3].id
        assert (after.session.revision, after.session.anchor) == (1, None)
        assert (after.session.compression, after.session.manifest) == (state, {"n": 1})
        assert [row.seq for row in after.rows] == sorted({row.seq for row in after.rows})
        originals = {row.id: row.message for row in await store.all_rows(loaded.session.id)}
        assert all(originals[row.id] == row.message for row in loaded.rows)

    async def test_thinking_that_stays_valid_survives_a_rewrite(self, store: Store) -> None:
        loaded = await talk(store, said("one"), thinking("two"), text="u1")
        await talk(store, thinking("late"), text="u2")
        keep = Keep(loaded.rows[2].id, with_thinking=True)
        await store.rewrite(rewrite_of(loaded, SUMMARY, keep))
        after = await store.load(loaded.session.id)
        assert texts(after)[1:] == ["two", "u2", "late"]
        assert after.rows[1].message == loaded.rows[2].message
        assert after.rows[1].id == loaded.rows[2].id
        assert "anthropic_content_blocks" not in after.rows[3].message

    async def test_later_rows_stay_behind(self, store: Store) -> None:
        loaded = await talk(store, said("one"), said("two"))
        await talk(store, said("four"), text="three")
        changed = await store.rewrite(rewrite_of(loaded, SUMMARY))
        assert changed.applied
        assert texts(await store.load(loaded.session.id))[1:] == ["three", "four"]
        await talk(store, said("six"), text="five")
        assert texts(await store.load(loaded.session.id))[1:] == ["three", "four", "five", "six"]

    async def test_a_rewrite_moves_the_plan_of_others(self, store: Store) -> None:
        loaded = await talk(store, said("one"), said("two"))
        keep = [Keep(row.id) for row in loaded.rows]
        first = await store.rewrite(rewrite_of(loaded, SUMMARY, keep[-1]))
        second = await store.rewrite(rewrite_of(loaded, SUMMARY, keep[-1]))
        third = await store.split(split_of(loaded, SUMMARY))
        assert (first.applied, second.applied, third.applied) == (True, False, False)
        assert second.tip == third.tip == first.tip

    async def test_a_rewrite_at_rest_meets_nobody_at_work(self, store: Store) -> None:
        loaded = await talk(store, said("one"), said("two"))
        at_rest = rewrite_of(loaded, SUMMARY, Keep(loaded.last_row_id), at_rest=True)
        ticket = await begin(store, "three")
        seen = await store.load(loaded.session.id)
        refused = await store.rewrite(at_rest)
        assert (refused.applied, refused.tip.revision) == (False, 0)
        # Nor where it has seen all there is, while a turn runs.
        covering = rewrite_of(seen, SUMMARY, Keep(seen.last_row_id), at_rest=True)
        assert not (await store.rewrite(covering)).applied
        await store.finish_turn(ticket, ticket.session_id, "done")
        assert not (await store.rewrite(at_rest)).applied
        assert texts(await store.load(loaded.session.id)) == texts(seen)
        assert (await store.rewrite(covering)).applied

    async def test_an_option_belongs_to_the_session_and_its_children(self, store: Store) -> None:
        loaded = await talk(store, said("one"), said("two"))
        assert await store.set_option(loaded.session.id, "shade", "dark")
        assert await store.set_option(loaded.session.id, "size", "s")
        assert await store.set_option(loaded.session.id, "size", None)
        assert await store.set_option(loaded.session.id, "size", None)
        session = await store.session(loaded.session.id)
        assert session.prefix.model_config == {**PREFIX.model_config, "shade": "dark"}
        assert (session.revision, session.anchor) == (
            loaded.session.revision,
            loaded.session.anchor,
        )
        child = (await store.split(split_of(loaded, SUMMARY))).tip
        assert child.prefix.model_config == session.prefix.model_config
        assert not await store.set_option(loaded.session.id, "shade", "light")
        new = await store.start_conversation(KEY, OWNER, PREFIX)
        assert new.prefix.model_config == PREFIX.model_config
        with pytest.raises(SessionNotFound):
            await store.set_option("s_none", "shade", "dark")

    async def test_a_lifted_message_keeps_its_place_in_the_plan(self, store: Store) -> None:
        loaded = await talk(store, said("one"), said("two"), said("three"))
        u, one, _, three = (Keep(row.id) for row in loaded.rows)
        await store.rewrite(rewrite_of(loaded, one, SUMMARY, u, three))
        after = await store.load(loaded.session.id)
        assert texts(after) == ["one", SUMMARY.message["content"], "hello", "three"]
        # The newest row in the list's order is covered even where ids no longer rise.
        again = await store.rewrite(rewrite_of(after, SUMMARY, Keep(after.rows[2].id)))
        assert again.applied
        assert texts(await store.load(loaded.session.id)) == [SUMMARY.message["content"], "hello"]


class MailboxContract:
    async def test_a_message_is_stored_once(self, store: Store) -> None:
        first = await store.accept(inbound(1))
        assert first.fresh
        again = await store.accept(inbound(1))
        assert (again.inbox_id, again.fresh) == (first.inbox_id, False)
        same_message = await store.accept(inbound(1, update_id="77"))
        same_update = await store.accept(inbound(9, update_id="1001"))
        assert (same_message.fresh, same_update.fresh) == (False, False)
        (item,) = await store.open_inbox()
        assert (item.id, item.record, item.state) == (first.inbox_id, inbound(1), "new")

    async def test_what_differs_is_another_message(self, store: Store) -> None:
        await store.accept(inbound(1))
        others = [
            inbound(1, kind="command"),
            inbound(1, address=Address("telegram", "8", "111")),
            inbound(1, address=Address("discord", "7", "111")),
            inbound(1, address=Address("telegram", "7", "112"), update_id=None),
            inbound(2, update_id=None),
            inbound(3, update_id=None),
        ]
        assert [(await store.accept(record)).fresh for record in others] == [True] * 6

    async def test_update_ids_may_begin_anew_after_a_week(self, store: Store) -> None:
        await store.accept(inbound(1))
        week = 7 * 86_400.0
        late = 1_800_000_001.0 + week
        assert not (await store.accept(inbound(8, update_id="1001", received_at=late))).fresh
        assert (await store.accept(inbound(8, update_id="1001", received_at=late + 1))).fresh
        items = await store.inbox_items([item.id for item in await store.open_inbox()])
        assert [item.record.update_id for item in items] == [None, "1001"]

    async def test_repeats_at_once_are_one(self, store: Store) -> None:
        receipts = await asyncio.gather(*(store.accept(inbound(1)) for _ in range(20)))
        assert [r.fresh for r in receipts].count(True) == 1
        assert len({r.inbox_id for r in receipts}) == 1

    async def test_what_a_turn_has_claimed_is_open_no_more(self, store: Store) -> None:
        await store.accept(inbound(1))
        await store.accept(inbound(2))
        assert [item.id for item in await store.open_inbox()] == [1, 2]
        await begin(store, inbox=(1,))
        assert [item.id for item in await store.open_inbox()] == [2]

    async def test_an_unreadable_update_does_not_block(self, store: Store) -> None:
        for _ in range(2):
            await store.quarantine("telegram", "7", "1001", "{broken \ud800", "no chat")
        assert (await store.accept(inbound(1))).fresh
        assert len(await store.open_inbox()) == 1

    async def test_commands_are_answered_without_a_turn(self, store: Store) -> None:
        receipt = await store.accept(inbound(1, kind="command"))
        (item,) = await store.answer_inbox(
            (receipt.inbox_id, 999), (OutboxDraft(CHAT, "ok", "command"),)
        )
        assert await store.open_inbox() == []
        assert await store.owed() == [item]
        assert (item.conversation_id, item.draft.kind, item.state) == (None, "command", "planned")

    async def test_what_belongs_to_an_answer_is_kept_with_it(self, store: Store) -> None:
        draft = OutboxDraft(
            Address("telegram", "900", "111"),
            "May I?",
            "notice",
            buttons=(Button("Yes \U0001f44d", "/approve 3f9a"), Button("No", "/deny 3f9a")),
            files=("0" * 32 + ".png",),
            files_owner="telegram:222",
            interaction="token \"'",
            edits_message_id="77",
        )
        item = await store.owe(draft)
        assert item.draft == draft
        assert [owed.draft for owed in await store.owed()] == [draft]

    async def test_an_answer_given_again_is_owed_once(self, store: Store) -> None:
        """As after a commit whose outcome nobody learned."""
        receipt = await store.accept(inbound(1, kind="command"))
        draft = OutboxDraft(CHAT, "ok", "command")
        owed = await store.answer_inbox((receipt.inbox_id,), (draft,))
        assert await store.answer_inbox((receipt.inbox_id,), (draft,)) == ()
        assert await store.owed() == list(owed)

    async def test_parts_are_planned_once(self, store: Store) -> None:
        item = await store.owe(OutboxDraft(CHAT, "long"))
        parts = await store.plan_parts(
            item.id, [PartDraft({"text": "lo"}), PartDraft({"text": "ng"})]
        )
        assert [(p.n, p.state, p.payload) for p in parts] == [
            (0, "planned", {"text": "lo"}), (1, "planned", {"text": "ng"}),
        ]  # fmt: skip
        assert await store.plan_parts(item.id, [PartDraft({"text": "other"})]) == parts
        assert (await store.owed())[0].parts == parts

    async def test_an_answer_follows_its_parts(self, store: Store) -> None:
        item = await store.owe(OutboxDraft(CHAT, "long"))
        a, b = await store.plan_parts(item.id, [PartDraft({"n": 0}), PartDraft({"n": 1})])
        await store.mark_part(a.id, "sending")
        (now,) = await store.owed()
        assert (now.state, now.parts[0].attempts) == ("sending", 1)
        await store.mark_part(a.id, "unknown", error="timed out")
        assert (await store.owed())[0].state == "sending"
        await store.mark_part(b.id, "sent", platform_message_id="902")
        (now,) = await store.owed()
        assert (now.state, now.error) == ("unknown", "timed out")
        assert now.parts[1].platform_message_id == "902"
        await store.mark_part(a.id, "sending")
        await store.mark_part(a.id, "sent", platform_message_id="901")
        assert await store.owed() == []

    async def test_a_failed_part_fails_the_answer(self, store: Store) -> None:
        item = await store.owe(OutboxDraft(CHAT, "long"))
        a, _ = await store.plan_parts(item.id, [PartDraft({"n": 0}), PartDraft({"n": 1})])
        await store.mark_part(a.id, "failed", error="blocked")
        assert await store.owed() == []

    async def test_giving_up(self, store: Store) -> None:
        item = await store.owe(OutboxDraft(CHAT, "a"))
        other = await store.owe(OutboxDraft(CHAT, "b"))
        await store.plan_parts(item.id, [PartDraft({})])
        await store.fail_outbox(item.id, "too old")
        assert [i.id for i in await store.owed()] == [other.id]

    async def test_an_answer_of_no_parts_is_sent(self, store: Store) -> None:
        item = await store.owe(OutboxDraft(CHAT, ""))
        assert await store.plan_parts(item.id, []) == ()
        assert await store.owed() == []

    async def test_an_answer_that_is_over_gets_no_parts(self, store: Store) -> None:
        nothing = await store.owe(OutboxDraft(CHAT, ""))
        await store.plan_parts(nothing.id, [])
        given_up = await store.owe(OutboxDraft(CHAT, "b"))
        await store.fail_outbox(given_up.id, "too old")
        for item in (nothing, given_up):
            assert await store.plan_parts(item.id, [PartDraft({"text": "late"})]) == ()
        assert await store.owed() == []

    async def test_ids_that_never_were(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.plan_parts(99, [PartDraft({})])
        with pytest.raises(StoreError):
            await store.mark_part(99, "sent")
        with pytest.raises(StoreError):
            await store.fail_outbox(99, "gone")

    async def test_cursors_move_forward_only(self, store: Store) -> None:
        async def at(message_id: str) -> str:
            await store.set_cursor(Cursor("discord", "1", "c", message_id))
            return (await store.cursors("discord", "1"))["c"]

        assert await store.cursors("discord", "1") == {}
        assert await at("99") == "99"
        assert await at("100") == "100"  # as numbers, not as text
        assert await at("99") == "100"
        assert await at("1234567890123456789") == "1234567890123456789"
        receipt = await store.accept(inbound(1), Cursor("discord", "1", "d", "5"))
        assert receipt.fresh
        await store.accept(inbound(1), Cursor("discord", "1", "d", "6"))
        assert (await store.cursors("discord", "1"))["d"] == "6"
        assert await store.cursors("discord", "2") == {}


class ArchiveContract:
    async def test_found_and_not_found(self, store: Store) -> None:
        loaded = await talk(store, said("The invoice number is E-4711."), said("unrelated"))
        (hit,) = await store.search("what was the invoice number?", SearchScope())
        assert hit.message_id == loaded.rows[1].id
        assert (hit.session_id, hit.role) == (loaded.session.id, "assistant")
        assert "E-4711" in hit.snippet
        assert await store.search("zanzibar", SearchScope()) == []

    @pytest.mark.parametrize("query", ["/srv/harbor/rates.csv", "部署计划", "77314"])
    async def test_what_a_call_was_given_is_found(self, store: Store, query: str) -> None:
        given = json.dumps({"path": "/srv/harbor/rates.csv", "rows": [{"n": 77314}, "部署计划"]})
        function: FunctionCall = {"name": "write_file", "arguments": given}
        call = Draft(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "t1", "type": "function", "function": function}],
            }
        )
        result = Draft({"role": "tool", "tool_call_id": "t1", "content": "written"})
        loaded = await talk(store, call, result, said("done"))
        hits = await store.search(query, SearchScope())
        assert [hit.message_id for hit in hits] == [loaded.rows[1].id]

    @pytest.mark.parametrize("query", ["墨", "墨水", "墨水瓶", "水瓶在哪里？", "瓶"])
    async def test_chinese_by_any_length(self, store: Store, query: str) -> None:
        loaded = await talk(store, said("我把墨水瓶放在桌上了"), said("今天天气很好"))
        hits = await store.search(query, SearchScope())
        assert [hit.message_id for hit in hits] == [loaded.rows[1].id]

    @pytest.mark.parametrize(
        "query",
        ["", " ", "\x00", '"', "'", "a\"b' OR *", "NEAR(", "-", "^x", "AND", "OR OR", "{a b}:c",
         "\ud83d", "a\x00b", "🎉", "%", "_", "\\", "的", "what is the", "col:val",
         "x" * 5000, "💩" * 900, "i̇İß"],
    )  # fmt: skip
    async def test_any_text_is_a_query(self, store: Store, query: str) -> None:
        await talk(store, said("party 🎉 at 100% 的"))
        hits = await store.search(query, SearchScope(), limit=3)
        assert len(hits) <= 3

    async def test_what_only_a_scan_can_find(self, store: Store) -> None:
        loaded = await talk(store, said("party 🎉 tonight"))
        assert [h.message_id for h in await store.search("🎉", SearchScope())] == [
            loaded.rows[1].id
        ]

    async def test_copies_fold_into_their_original(self, store: Store) -> None:
        parent = await talk(store, said("the password is swordfish"))
        changed = await store.split(split_of(parent, SUMMARY, Keep(parent.rows[1].id)))
        scope = SearchScope(conversation_id=changed.tip.conversation_id)
        (hit,) = await store.search("swordfish", scope)
        assert (hit.message_id, hit.session_id) == (parent.rows[1].id, parent.session.id)

    async def test_replaced_originals_stay_findable_and_stand_ins_do_not(
        self, store: Store
    ) -> None:
        loaded = await talk(store, calling("c"), result("c", "error code 7731"))
        stub = Draft(
            {"role": "tool", "content": "error gone", "tool_call_id": "c"},
            kind="stub",
            origin_id=loaded.rows[2].id,
        )
        await store.rewrite(rewrite_of(loaded, *(Keep(r.id) for r in loaded.rows[:2]), stub))
        (hit,) = await store.search("error", SearchScope())
        assert (hit.message_id, hit.role) == (loaded.rows[2].id, "tool")

    async def test_scopes(self, store: Store) -> None:
        mine = await talk(store, said("secret alpha"))
        other_key = session_key("discord", "1", "5", None, "5")
        theirs = await begin(store, "secret beta", session_key=other_key, owner="discord:5")
        new = await store.start_conversation(KEY, OWNER, PREFIX)
        await talk(store, said("secret gamma"))

        async def found(**scope: str) -> set[str]:
            hits = await store.search("secret", SearchScope(**scope))
            return {hit.snippet for hit in hits}

        assert await found() == {"secret alpha", "secret beta", "secret gamma"}
        assert await found(owner=OWNER) == {"secret alpha", "secret gamma"}
        assert await found(owner="discord:5") == {"secret beta"}
        assert await found(conversation_id=mine.session.conversation_id) == {"secret alpha"}
        assert await found(conversation_id=new.conversation_id, owner="discord:5") == set()
        assert await found(conversation_id=theirs.conversation_id) == {"secret beta"}

    async def test_limits_and_order(self, store: Store) -> None:
        await talk(store, *(said(f"budget {n} figures") for n in range(15)))
        hits = await store.search("budget", SearchScope(), limit=4)
        assert len(hits) == 4
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
        assert hits[0].snippet == "budget 14 figures"  # equal otherwise: the newest
        assert await store.search("budget", SearchScope(), limit=0) == []
        assert await store.search("budget", SearchScope(), limit=-1) == []

    async def test_who_asks_is_not_found(self, store: Store) -> None:
        """Nor named as newer, nor is the answer just before the question lifted by it."""
        code, between = said("My locker code is 4711."), [said("well")] * 4
        told = await talk(store, code, *between, said("It rained 12 days."))
        fact, unrelated = told.rows[1].id, told.rows[-1].id
        asking = await begin(store, "what is my locker code number?")
        answer = [said("your locker code is being looked up"), said("my locker code, 1 moment")]
        await store.append(asking, asking.session_id, answer)
        scope = SearchScope(conversation_id=asking.conversation_id)
        query = "what is my locker code number?"
        hits = await store.search(query, scope, before_id=asking.user_row_id)
        assert (hits[0].message_id, hits[0].newer_id) == (fact, None)
        assert unrelated not in {h.message_id for h in hits}
        assert all(h.message_id < asking.user_row_id for h in hits)
        unbound = await store.search(query, scope)
        assert unrelated in {h.message_id for h in unbound}

    async def test_who_asks_is_not_found_in_a_copy_either(self, store: Store) -> None:
        """A compression in the same turn carries the question on; its original is what counts."""
        told = await talk(store, said("the locker code is ZEBRA-1"))
        asking = await begin(store, "the locker code?")
        await store.append(asking, asking.session_id, [calling("c"), result("c", "no locker")])
        loaded = await store.load(asking.session_id)
        kept = (Keep(row.id) for row in loaded.rows if row.id >= asking.user_row_id)
        await store.split(split_of(loaded, SUMMARY, *kept))
        scope = SearchScope(conversation_id=asking.conversation_id)
        found = await store.search("locker code", scope, before_id=asking.user_row_id)
        assert {h.message_id: h.role for h in found} == {
            told.rows[1].id: "assistant",
            loaded.rows[-1].id: "tool",
        }

    @pytest.mark.parametrize("before_id", [-1, 0, 1, 2, 10**15])
    async def test_any_bound_of_a_search(self, store: Store, before_id: int) -> None:
        loaded = await talk(store, said("swordfish"), said("marlin, not swordfish"))
        found = await store.search("swordfish", SearchScope(), before_id=before_id)
        expected = {row.id for row in loaded.rows[1:] if row.id < before_id}
        assert {h.message_id for h in found} == expected

    async def test_a_long_turn_leaves_the_places_to_others(self, store: Store) -> None:
        told = await talk(store, said(f"the swordfish swam {'on and ' * 40}away"))
        asking = await begin(store, "swordfish?")
        await store.append(asking, asking.session_id, [said("swordfish")] * 150)
        scope = SearchScope(conversation_id=asking.conversation_id)
        (hit,) = await store.search("swordfish", scope, before_id=asking.user_row_id)
        assert hit.message_id == told.rows[1].id

    async def test_a_window_shows_the_originals_around(self, store: Store) -> None:
        loaded = await talk(store, *(said(str(n)) for n in range(6)))
        middle = loaded.rows[3]
        changed = await store.split(
            split_of(loaded, SUMMARY, *(Keep(r.id) for r in loaded.rows[3:]))
        )

        async def around(message_id: int, before: int, after: int) -> list[Any]:
            rows = await store.window(message_id, before=before, after=after)
            return [row.message["content"] for row in rows]

        assert await around(middle.id, 2, 1) == ["0", "1", "2", "3"]
        assert await around(middle.id, 0, 0) == ["2"]
        assert await around(loaded.rows[0].id, 5, 1) == ["hello", "0"]
        assert await around(loaded.rows[-1].id, 1, 5) == ["4", "5"]
        assert await around(99_999, 5, 5) == []
        copied = (await store.load(changed.tip.id)).rows[1]
        assert await around(copied.id, 5, 5) == ["2"]

    async def test_whose_message_it_is(self, store: Store) -> None:
        loaded = await talk(store, said("x"))
        found = await store.conversation_of_message(loaded.rows[0].id)
        assert found == await store.conversation_for_key(KEY)
        assert await store.conversation_of_message(99_999) is None

    async def test_listings(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        child = (await store.split(split_of(parent, SUMMARY))).tip
        other = await store.start_conversation("other", OWNER, PREFIX)
        listed = await store.list_sessions()
        assert [info.id for info in listed] == [other.id, child.id, parent.session.id]
        assert [i.id for i in await store.list_sessions(limit=1)] == [other.id]
        conversation_id = child.conversation_id
        in_one = await store.list_sessions(conversation_id=conversation_id)
        assert [info.id for info in in_one] == [child.id, parent.session.id]
        asked = await store.session_infos([parent.session.id, "s_none", child.id])
        assert asked == [listed[2], listed[1]]
        info = asked[0]
        assert (info.source, info.model, info.message_count) == ("telegram", "claude-test", 2)
        assert info.tokens == sum(row.tokens for row in parent.rows)
        assert (info.end_reason, asked[1].link) == ("compression", "continuation")
        assert await store.all_rows("s_none") == []

    async def test_ids_by_their_beginning(self, store: Store) -> None:
        made = sorted(
            [(await store.start_conversation(f"k{n}", OWNER, PREFIX)).id for n in range(12)]
        )
        one = made[3]
        assert await store.session_ids("", limit=99) == made
        assert await store.session_ids("", limit=3) == made[:3]
        assert await store.session_ids("", limit=-1) == []
        assert await store.session_ids(one) == [i for i in made if i.startswith(one)]
        assert await store.session_ids(one[:-1]) == [i for i in made if i.startswith(one[:-1])][:10]
        for nothing in (f"{one}x", one.upper(), "%", "_", "s%", "\x00", "' OR 1=1 --", "ü"):
            assert await store.session_ids(nothing) == []


class TextContract:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "a\x00b",
            "𠀀 👩‍👩‍👧",
            "\u202eabc",
            "\ufeffx",
            "[1]",
            '{"a":1}',
            "null",
            "e\u0301",
            "\r\n\u2028",
        ],
    )
    async def test_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        loaded = await talk(store, said(text), result("x", text), text=text)
        assert texts(loaded)[:2] == [text, text]

    async def test_half_surrogates_are_replaced(self, store: Store) -> None:
        loaded = await talk(store, said("a\ud83d"), text="\udc00b")
        assert texts(loaded) == ["\ufffdb", "a\ufffd"]
        item = await store.owe(OutboxDraft(CHAT, "x\ud83d"))
        assert item.draft.text == "x\ufffd"
        await store.plan_parts(item.id, [PartDraft({"text": "\ud83d"})])
        assert (await store.owed())[0].parts[0].payload == {"text": "\ufffd"}
        await store.accept(inbound(1, text="\ud83d", payload={"quote": "\ud83d"}))
        record = (await store.open_inbox())[0].record
        assert (record.text, record.payload) == ("\ufffd", {"quote": "\ufffd"})

    async def test_raw_blocks_are_identical_to_the_character(self, store: Store) -> None:
        draft = thinking("hi")
        loaded = await talk(store, draft)
        message: Message = loaded.rows[1].message
        assert message["anthropic_content_blocks"] == draft.message["anthropic_content_blocks"]

    async def test_a_stored_row_is_not_the_callers_list(self, store: Store) -> None:
        draft = calling("a")
        loaded = await talk(store, draft, result("a"))
        draft.message["tool_calls"][0]["function"]["arguments"] = "changed"
        loaded.rows[1].message["tool_calls"][0]["function"]["name"] = "changed"
        (await store.all_rows(loaded.session.id))[0].message["content"] = "changed"
        (await store.active_rows(loaded.session.id))[0].message["content"] = "changed"
        again = await store.load(loaded.session.id)
        assert again.rows[0].message["content"] == "hello"
        function = again.rows[1].message["tool_calls"][0]["function"]
        assert function == {"name": "clock", "arguments": "{}"}

    async def test_private_keys_are_not_stored(self, store: Store) -> None:
        message: Message = {
            "role": "user",
            "content": "x",
            "_row": 3,
            "cache_control": {"type": "e"},
        }
        ticket = await begin(store, message=Draft(message))
        assert (await store.load(ticket.session_id)).rows[0].message == {
            "role": "user",
            "content": "x",
        }

    async def test_a_megabyte(self, store: Store) -> None:
        text = "字 word " * 150_000
        loaded = await talk(store, said(text))
        assert texts(loaded)[1] == text

    async def test_closing_twice(self, store: Store) -> None:
        await store.close()
        await store.close()


class StoreSuite(
    ConversationContract, LeaseContract, TurnContract, RepairContract, SplitContract,
    RewriteContract, MailboxContract, ArchiveContract, TextContract,
):  # fmt: skip
    """The whole contract."""
