"""Owns the contract of `agent.lineages.Lineages`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.brought import fenced, onto
from agent.errors import SessionEnded, SessionNotFound, StaleTurn
from agent.lineages import Answering, UncompressRequest, Undone
from agent.mail import OutboxDraft
from agent.messages import Draft, Keep, Row, orphan_results, unanswered_calls
from agent.ports import Usage
from agent.sessions import (
    ChangeResult,
    CompressionState,
    LoadedSession,
    SearchScope,
    Session,
    SessionPrefix,
    TurnOpening,
    session_key,
)
from agent.store_ports import Store
from tests.contract.store_suite import (
    CHAT,
    KEY,
    OWNER,
    PREFIX,
    SUMMARY,
    begin,
    calling,
    inbound,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
    texts,
    thinking,
    user,
)
from tests.fakes.clock import FakeClock

OTHER_KEY = session_key("telegram", "7", "-500", None, None)


def contents(rows: Sequence[Row]) -> list[Any]:
    return [row.message["content"] for row in rows]


async def compress(store: Store, loaded: LoadedSession, keep: int = 1) -> LoadedSession:
    """Split: a summary and the last rows."""
    state = loaded.session.compression.changed(count=loaded.session.compression.count + 1)
    kept = [Keep(row.id) for row in loaded.rows[len(loaded.rows) - keep :]]
    changed = await store.split(split_of(loaded, SUMMARY, *kept, compression=state))
    assert changed.applied
    return await store.load(changed.tip.id)


async def compress_in_place(store: Store, loaded: LoadedSession, keep: int = 1) -> LoadedSession:
    state = loaded.session.compression.changed(count=loaded.session.compression.count + 1)
    kept = [Keep(row.id) for row in loaded.rows[len(loaded.rows) - keep :]]
    changed = await store.rewrite(rewrite_of(loaded, SUMMARY, *kept, compression=state))
    assert changed.applied
    return await store.load(changed.tip.id)


async def refreeze(store: Store, loaded: LoadedSession, **changes: Any) -> ChangeResult:
    """As a new model or prompt reaches a conversation."""
    fields: dict[str, Any] = {
        "prefix": SessionPrefix("telegram", "other-model", "Be brief."),
        "end_reason": "switch",
        "compression": loaded.session.compression,
    }
    keep = [Keep(row.id) for row in loaded.rows]
    return await store.split(split_of(loaded, *keep, **{**fields, **changes}))


def uncompress_of(loaded: LoadedSession, **changes: Any) -> UncompressRequest:
    fields: dict[str, Any] = {
        "conversation_id": loaded.session.conversation_id,
        "tip_id": loaded.session.id,
        "expected_revision": loaded.session.revision,
        "covered_row_id": loaded.last_row_id,
        "compression": loaded.session.compression.changed(hold_tokens=500),
    }
    return UncompressRequest(**{**fields, **changes})


async def found(store: Store, query: str, **scope: str) -> list[int]:
    return [hit.message_id for hit in await store.search(query, SearchScope(**scope))]


class RefreezeContract:
    async def test_a_switch_keeps_everything_but_the_prefix(self, store: Store) -> None:
        ticket = await begin(store, "hello")
        rows = (calling("c"), result("c"), thinking("two"))
        await store.append(ticket, ticket.session_id, rows, anchor_usage=Usage(90, 9))
        await store.finish_turn(ticket, ticket.session_id, "done")
        await store.set_title(ticket.conversation_id, "Trip")
        state = CompressionState(count=4, told_reason="no key")
        await store.set_compression(ticket.session_id, state)
        parent = await store.load(ticket.session_id)
        assert parent.session.anchor is not None
        changed = await refreeze(store, parent)
        child = await store.load(changed.tip.id)
        assert texts(child) == texts(parent)
        assert [row.root_id for row in child.rows] == [row.id for row in parent.rows]
        assert "anthropic_content_blocks" not in child.rows[-1].message
        session = child.session
        # A new prompt and new tools make another size: what was measured is void. And a switch is
        # no compression: neither the count nor the number in the title rises.
        assert (session.anchor, session.title, session.compression) == (None, "Trip", state)
        assert (await store.session(parent.session.id)).end_reason == "switch"
        compressed = await compress(store, child)
        assert compressed.session.title == "Trip #2"

    async def test_a_stale_switch_is_not_applied(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        await talk(store, said("two"), text="more")
        assert (await refreeze(store, parent)).applied  # what came later is carried over
        assert not (await refreeze(store, parent)).applied
        assert len(await store.lineage(parent.session.id)) == 2


class UncompressContract:
    async def test_the_whole_list_and_what_came_since(self, store: Store) -> None:
        parent = await talk(store, thinking("one"), calling("a"), result("a"), said("two"))
        await compress(store, parent, keep=1)
        tip = await talk(store, calling("b"), result("b", "13:00"), said("three"), text="next")
        whole = ["hello", "one", None, "12:00", "two", "next", None, "13:00", "three"]
        for any_id in (parent.session.id, tip.session.id):
            assert contents(await store.uncompressed(any_id)) == whole
        request = uncompress_of(tip)
        changed = await store.uncompress(request)
        child = await store.load(changed.tip.id)
        assert changed.applied
        assert child.session == changed.tip
        assert texts(child) == whole
        assert "anthropic_content_blocks" not in child.rows[1].message
        assert [row.origin_id for row in child.rows[:5]] == [row.id for row in parent.rows]
        assert all(row.origin_id is not None for row in child.rows)
        session = child.session
        assert (session.parent_session_id, session.link) == (tip.session.id, "continuation")
        assert (session.compression, session.anchor) == (request.compression, None)
        ended = await store.session(tip.session.id)
        assert (ended.end_reason, ended.ended_at is None) == ("uncompress", False)
        assert (await begin(store, "go on")).session_id == session.id

    async def test_a_conversation_that_was_never_compressed(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        assert await store.uncompressed(loaded.session.id) == ()
        changed = await store.uncompress(uncompress_of(loaded))
        assert (changed.applied, changed.tip) == (False, loaded.session)
        assert await store.load(loaded.session.id) == loaded

    async def test_each_undoes_one_more(self, store: Store) -> None:
        first = await talk(store, said("one"), text="u1")
        await compress(store, first, keep=1)
        second = await talk(store, said("two"), text="u2")
        await compress(store, second, keep=1)
        tip = await talk(store, said("three"), text="u3")
        half = [SUMMARY.message["content"], "one", "u2", "two", "u3", "three"]
        assert contents(await store.uncompressed(tip.session.id)) == half
        tip = await store.load((await store.uncompress(uncompress_of(tip))).tip.id)
        whole = ["u1", "one", "u2", "two", "u3", "three"]
        assert contents(await store.uncompressed(tip.session.id)) == whole
        tip = await store.load((await store.uncompress(uncompress_of(tip))).tip.id)
        assert texts(tip) == whole
        assert await store.uncompressed(tip.session.id) == ()
        assert not (await store.uncompress(uncompress_of(tip))).applied
        # Compressed again after all of that: this one is the newest.
        await talk(store, said("four"), text="u4")
        again = await compress(store, await store.load(tip.session.id), keep=2)
        assert contents(await store.uncompressed(again.session.id)) == [*whole, "u4", "four"]

    async def test_refreezes_are_looked_through(self, store: Store) -> None:
        parent = await talk(store, said("one"), text="u1")
        child = await compress(store, parent)
        await refreeze(store, child)
        tip = await talk(store, said("two"), text="u2")
        await refreeze(store, tip)
        tip = await talk(store, said("three"), text="u3")
        whole = ["u1", "one", "u2", "two", "u3", "three"]
        assert contents(await store.uncompressed(tip.session.id)) == whole

    async def test_a_compression_inside_the_session(self, store: Store) -> None:
        loaded = await talk(store, said("one"), thinking("two"), text="u1")
        await compress_in_place(store, loaded)
        tip = await talk(store, said("three"), text="u2")
        whole = ["u1", "one", "two", "u2", "three"]
        assert contents(await store.uncompressed(tip.session.id)) == whole
        tip = await compress_in_place(store, tip, keep=2)
        once = [SUMMARY.message["content"], "two", "u2", "three"]
        assert contents(await store.uncompressed(tip.session.id)) == once
        tip = await store.load((await store.uncompress(uncompress_of(tip))).tip.id)
        assert texts(tip) == once
        assert contents(await store.uncompressed(tip.session.id)) == whole

    async def test_a_list_that_an_undo_emptied(self, store: Store) -> None:
        """Where the compression left rows out and put no summary in their place."""
        await talk(store, said("one"), text="u1")
        loaded = await talk(store, said("two"), text="u2")
        keep = [Keep(row.id) for row in loaded.rows]
        tip = (await store.split(split_of(loaded, *keep[2:]))).tip
        tip = (await store.undo(tip.conversation_id)).session
        request = UncompressRequest(
            tip.conversation_id, tip.id, tip.revision, 0, CompressionState(count=1)
        )
        for stale in (
            replace(request, expected_revision=tip.revision - 1),
            replace(request, covered_row_id=loaded.last_row_id),
        ):
            assert not (await store.uncompress(stale)).applied
        changed = await store.uncompress(request)
        assert changed.applied
        assert contents((await store.load(changed.tip.id)).rows) == ["u1", "one"]
        assert not (await store.uncompress(request)).applied

    async def test_what_is_no_compression_is_nothing_to_undo(self, store: Store) -> None:
        loaded = await talk(store, calling("a"), result("a", "long output"), said("ok"))
        stub = Draft(
            {"role": "tool", "content": "[cut]", "tool_call_id": "a", "name": "clock"},
            kind="stub",
            origin_id=loaded.rows[2].id,
        )
        keep = [Keep(row.id) for row in loaded.rows]
        await store.rewrite(rewrite_of(loaded, *keep[:2], stub, keep[3]))
        assert await store.uncompressed(loaded.session.id) == ()

    async def test_a_pruned_result_comes_back_whole(self, store: Store) -> None:
        await compress(store, await talk(store, said("one"), text="u1"))
        tip = await talk(store, calling("a"), result("a", "long output"), said("ok"), text="u2")
        stub = Draft(
            {"role": "tool", "content": "[cut]", "tool_call_id": "a", "name": "clock"},
            kind="stub",
            origin_id=tip.rows[-2].id,
        )
        keep = [Keep(row.id) for row in tip.rows]
        await store.rewrite(rewrite_of(tip, *keep[:-2], stub, keep[-1]))
        rows = await store.uncompressed(tip.session.id)
        assert contents(rows) == ["u1", "one", "u2", None, "long output", "ok"]

    async def test_tool_groups_over_the_border_are_whole(self, store: Store) -> None:
        """The compression happened while the tools were at work."""
        ticket = await begin(store, "u1")
        await store.append(ticket, ticket.session_id, (calling("a", "b"), result("a", "first")))
        parent = await store.load(ticket.session_id, ticket=None)
        cut = await store.active_rows(ticket.session_id)
        changed = await store.split(
            split_of(parent, SUMMARY, *(Keep(r.id) for r in cut[1:]), covered_row_id=cut[-1].id)
        )
        child = changed.tip.id
        await store.append(ticket, child, (result("b", "second"), said("done")))
        await store.finish_turn(ticket, child, "done")
        rows = await store.uncompressed(child)
        assert contents(rows) == ["u1", None, "first", "second", "done"]

    async def test_a_hole_that_was_repaired_late_is_no_hole(self, store: Store) -> None:
        await compress(store, await talk(store, said("one"), text="u1"))
        ticket = await begin(store, "u2")
        await store.append(ticket, ticket.session_id, (calling("a"), said("x"), result("ghost")))
        await store.finish_turn(ticket, ticket.session_id, "failed")
        tip = await store.load(ticket.session_id)
        rows = await store.uncompressed(tip.session.id)
        messages = [row.message for row in rows]
        assert unanswered_calls(messages) == []
        assert orphan_results(messages) == []
        assert contents(rows)[:4] == ["u1", "one", "u2", None]
        assert (rows[4].kind, rows[5].message["content"]) == ("stub", "x")

    async def test_what_an_engine_made_up_is_not_what_was_said(self, store: Store) -> None:
        parent = await talk(store, said("one"), text="u1")
        invented = user("A plain message without any mark that sums it all up.")
        changed = await store.split(split_of(parent, invented, Keep(parent.rows[-1].id)))
        await talk(store, said("two"), text="u2")
        assert contents(await store.uncompressed(changed.tip.id)) == ["u1", "one", "u2", "two"]

    async def test_what_was_taken_back_stays_away(self, store: Store) -> None:
        await talk(store, said("one"), text="u1")
        parent = await talk(store, said("two"), text="u2")
        tip = await compress(store, parent, keep=2)
        assert contents((await store.undo(tip.session.conversation_id)).removed) == ["u2", "two"]
        await talk(store, said("three"), text="u3")
        rows = await store.uncompressed(tip.session.id)
        assert contents(rows) == ["u1", "one", "u3", "three"]

    @pytest.mark.parametrize(
        "stale",
        [
            {"expected_revision": 7},
            {"covered_row_id": 99_999},
            {"tip_id": "s_none"},
        ],
    )
    async def test_a_stale_wish_is_not_granted(self, store: Store, stale: dict[str, Any]) -> None:
        tip = await compress(store, await talk(store, said("one")))
        changed = await store.uncompress(uncompress_of(tip, **stale))
        assert (changed.applied, changed.tip) == (False, tip.session)
        with pytest.raises(SessionNotFound):
            await store.uncompress(uncompress_of(tip, conversation_id="c_none"))
        with pytest.raises(SessionNotFound):
            await store.uncompressed("s_none")

    async def test_two_at_once_leave_one_tip(self, store: Store) -> None:
        tip = await compress(store, await talk(store, said("one")))
        calls = [store.uncompress(uncompress_of(tip)) for _ in range(3)]
        calls += [store.split(split_of(tip, SUMMARY)) for _ in range(2)]
        results = await asyncio.gather(*calls)
        assert [r.applied for r in results].count(True) == 1
        assert len({r.tip.id for r in results}) == 1
        live = [s for s in await store.lineage(tip.session.id) if s.ended_at is None]
        assert len(live) == 1


class BranchContract:
    async def test_a_fork_and_what_it_came_from_live_on(self, store: Store) -> None:
        loaded = await talk(store, thinking("one"), calling("a"), result("a"), said("two"))
        cid = loaded.session.conversation_id
        await store.set_title(cid, "Trip")
        await store.set_compression(loaded.session.id, CompressionState(count=3))
        fork = await store.branch(loaded.session.id, KEY, OWNER)
        assert (fork.parent_session_id, fork.link) == (loaded.session.id, "branch")
        assert fork.conversation_id != cid
        assert (fork.prefix, fork.title, fork.anchor) == (PREFIX, "Trip (2)", None)
        assert (fork.compression, fork.message_count) == (CompressionState(count=3), 5)
        forked = await store.load(fork.id)
        assert texts(forked) == texts(loaded)
        assert [row.origin_id for row in forked.rows] == [row.id for row in loaded.rows]
        assert "anthropic_content_blocks" not in forked.rows[1].message
        found = await store.conversation_for_key(KEY)
        assert found is not None
        assert (found.id, found.owner) == (fork.conversation_id, OWNER)
        # The other one is as it was, and is nobody's continuation.
        assert (await store.load(loaded.session.id)).rows == loaded.rows
        assert (await store.tip(loaded.session.id)).id == loaded.session.id
        assert (await store.session(loaded.session.id)).ended_at is None
        assert [s.id for s in await store.lineage(fork.id)] == [fork.id]
        counts = {c.id: c.message_count for c in await store.conversations_of(OWNER)}
        assert counts == {cid: 5, fork.conversation_id: 5}
        assert (await begin(store, "there")).session_id == fork.id

    async def test_a_fork_in_a_group_reaches_what_was_said_before_it(self, store: Store) -> None:
        """There recall asks for one conversation alone."""
        before = await compress(store, await talk(store, said("swordfish")))
        loaded = await talk(store, said("marlin"))
        fork = await store.branch(loaded.session.id, KEY, OWNER)
        await store.resume(KEY, loaded.session.conversation_id)
        await talk(store, said("sturgeon"))
        own = {"conversation_id": fork.conversation_id}
        oldest = before.rows[-1].root_id
        assert await found(store, "swordfish", **own) == [oldest]
        assert await found(store, "marlin", **own) == [loaded.rows[-1].id]
        assert await found(store, "sturgeon", **own) == []
        assert await store.in_scope(SearchScope(**own), oldest)

    async def test_a_fork_of_a_running_turn_is_whole(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a", "b"), result("a")))
        fork = await store.load((await store.branch(ticket.session_id, OTHER_KEY, OWNER)).id)
        assert [row.kind for row in fork.rows] == [None, None, None, "stub"]
        assert fork.session.revision == 0
        await store.append(ticket, ticket.session_id, (result("b", "in time"),))
        assert contents(await store.active_rows(ticket.session_id))[-1] == "in time"

    async def test_what_can_not_be_forked(self, store: Store) -> None:
        empty = await store.start_conversation(KEY, OWNER, PREFIX)
        with pytest.raises(SessionEnded):
            await store.branch(empty.id, KEY, OWNER)
        parent = await talk(store, said("one"))
        await compress(store, parent)
        with pytest.raises(SessionEnded):
            await store.branch(parent.session.id, KEY, OWNER)
        with pytest.raises(SessionNotFound):
            await store.branch("s_none", KEY, OWNER)

    async def test_a_fork_has_no_compression_to_undo(self, store: Store) -> None:
        tip = await compress(store, await talk(store, said("one")))
        fork = await store.branch(tip.session.id, KEY, OWNER)
        assert await store.uncompressed(fork.id) == ()
        assert await store.uncompressed(tip.session.id) != ()


class UndoContract:
    async def test_the_last_turns_are_taken_back(self, store: Store) -> None:
        for n in range(3):
            loaded = await talk(store, calling("c"), result("c"), said(f"a{n}"), text=f"u{n}")
        cid, before = loaded.session.conversation_id, loaded.session
        undone = await store.undo(cid)
        assert contents(undone.removed) == ["u2", None, "12:00", "a2"]
        assert undone.removed == loaded.rows[-4:]
        assert undone.said == user("u2")
        assert undone.session.revision == before.revision + 1
        after = await store.load(before.id)
        assert after.session == undone.session
        assert after.rows == loaded.rows[:-4]
        assert after.session.message_count == 8
        assert {row.id for row in await store.all_rows(before.id)} >= {r.id for r in loaded.rows}
        undone = await store.undo(cid, 9)
        assert contents(undone.removed)[0] == "u0"
        assert not undone.behind_summary
        empty = await store.load(before.id)
        assert empty.rows == ()
        assert (await store.undo(cid)).removed == ()
        assert (await store.undo(cid)).said is None
        again = await talk(store, said("fresh"), text="u9")
        assert texts(again) == ["u9", "fresh"]
        assert again.session.id == before.id

    async def test_nothing_asked_nothing_taken(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        for turns in (0, -1):
            assert (await store.undo(loaded.session.conversation_id, turns)).removed == ()
        assert await store.load(loaded.session.id) == loaded
        with pytest.raises(SessionNotFound):
            await store.undo("c_none")

    async def test_the_measurement_goes_with_it(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=Usage(9, 9))
        await store.finish_turn(ticket, ticket.session_id, "done")
        ticket = await begin(store, "more")
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        undone = await store.undo(ticket.conversation_id)
        assert contents(undone.removed) == ["more"]
        assert undone.session.anchor is None

    async def test_never_beyond_a_summary(self, store: Store) -> None:
        await talk(store, said("one"), text="u1")
        loaded = await talk(store, said("two"), text="u2")
        keep = [Keep(row.id) for row in loaded.rows]
        changed = await store.split(split_of(loaded, keep[0], keep[1], SUMMARY, *keep[2:]))
        undone = await store.undo(changed.tip.conversation_id, 5)
        assert contents(undone.removed) == ["u2", "two"]
        assert undone.behind_summary
        again = await store.undo(changed.tip.conversation_id)
        assert (again.removed, again.behind_summary) == ((), True)

    async def test_not_while_a_turn_is_at_work(self, store: Store) -> None:
        ticket = await begin(store)
        with pytest.raises(StaleTurn):
            await store.undo(ticket.conversation_id)
        await store.interrupt_turn(ticket)
        with pytest.raises(StaleTurn):
            await store.undo(ticket.conversation_id)
        await store.resume_turn(ticket)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        assert contents((await store.undo(ticket.conversation_id)).removed) == ["hello"]

    async def test_no_search_shows_what_was_taken_back(self, store: Store) -> None:
        await talk(store, said("the answer is swordfish"), text="u1")
        loaded = await talk(store, said("and also swordfish 墨水"), text="which fish?")
        cid = loaded.session.conversation_id
        kept, gone = loaded.rows[1].id, loaded.rows[3].id
        assert set(await found(store, "swordfish")) == {kept, gone}
        await store.undo(cid)
        assert await found(store, "swordfish") == [kept]
        assert await found(store, "墨水") == []
        assert loaded.rows[2].id not in await found(store, "which fish")
        assert [r.id for r in await store.window(kept)] == [r.id for r in loaded.rows[:2]]
        assert await store.window(gone) == []

    async def test_nor_the_original_of_a_copy(self, store: Store) -> None:
        await talk(store, said("one"), text="u1")
        parent = await talk(store, said("the word is swordfish"), text="u2")
        tip = await compress(store, parent, keep=2)
        undone = await store.undo(tip.session.conversation_id)
        assert contents(undone.removed) == ["u2", "the word is swordfish"]
        assert await found(store, "swordfish") == []
        # The ended session itself says what it said.
        assert contents(await store.active_rows(parent.session.id))[-1] == "the word is swordfish"

    async def test_what_a_fork_takes_back_stays_where_it_came_from(self, store: Store) -> None:
        loaded = await talk(store, said("the word is swordfish"), text="u1")
        fork = await store.branch(loaded.session.id, KEY, OWNER)
        assert contents((await store.undo(fork.conversation_id)).removed)[0] == "u1"
        assert await found(store, "swordfish") == [loaded.rows[1].id]

    async def test_an_ended_conversation_keeps_what_it_has(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        await store.start_conversation(KEY, OWNER, PREFIX)
        undone = await store.undo(loaded.session.conversation_id)
        assert undone.removed == ()
        assert (await store.load(loaded.session.id)).rows == loaded.rows

    async def test_a_stale_plan_meets_another_revision(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        await talk(store, said("two"), text="more")
        await store.undo(loaded.session.conversation_id)
        assert not (await store.split(split_of(loaded, SUMMARY))).applied
        assert not (await store.rewrite(rewrite_of(loaded, SUMMARY))).applied

    async def test_the_command_is_answered_with_its_effect(self, store: Store) -> None:
        loaded = await talk(store, said("one"), text="u1")
        command = (await store.accept(inbound(5, kind="command"))).inbox_id

        def words(undone: Undone) -> OutboxDraft:
            return OutboxDraft(CHAT, f"took {len(undone.removed)}", "command")

        cid = loaded.session.conversation_id
        undone = await store.undo(cid, answering=Answering(command, words))
        assert [item.draft.text for item in undone.owed] == ["took 2"]
        assert await store.owed() == list(undone.owed)
        assert await store.open_inbox() == []
        with pytest.raises(StaleTurn):
            await store.undo(cid, answering=Answering(command, words))
        assert len(await store.owed()) == 1


class RetryContract:
    async def test_the_last_message_is_asked_again(self, store: Store) -> None:
        await talk(store, said("one"), text="u1")
        asked = Draft({"role": "user", "content": "u2"}, wire_content="[Ann] u2")
        first = await begin(store, message=asked)
        await store.append(first, first.session_id, (said("bad answer"),))
        await store.finish_turn(first, first.session_id, "done")
        inbox_id = (await store.accept(inbound(1, kind="command"))).inbox_id
        opening = TurnOpening(KEY, OWNER, (inbox_id,), user("not used"), PREFIX)
        ticket = await store.retry(opening)
        assert ticket is not None
        rows = await store.active_rows(ticket.session_id)
        assert contents(rows) == ["u1", "one", "u2"]
        assert (rows[-1].id, rows[-1].wire_content) == (ticket.user_row_id, "[Ann] u2")
        assert rows[-1].id != first.user_row_id
        assert rows[-1].origin_id is None
        assert await store.retry(opening) == ticket
        assert await found(store, "bad answer") == []
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("better"))
        with pytest.raises(StaleTurn):
            await store.retry(opening)

    async def test_what_rides_in_it_is_brought_anew(self, store: Store) -> None:
        old, new = fenced("notes", "- old"), fenced("notes", "- new")
        asked = onto(Draft({"role": "user", "content": "u1"}), old)
        first = await begin(store, message=asked)
        await store.finish_turn(first, first.session_id, "done")
        again = TurnOpening(KEY, OWNER, (), user(""), PREFIX, brought=new)
        ticket = await store.retry(again)
        assert ticket is not None
        (row,) = await store.active_rows(ticket.session_id)
        assert (row.message["content"], row.wire_content) == ("u1", f"{new}u1")
        await store.finish_turn(ticket, ticket.session_id, "done")
        ticket = await store.retry(replace(again, brought=""))
        assert ticket is not None
        (row,) = await store.active_rows(ticket.session_id)
        assert (row.message["content"], row.wire_content) == ("u1", None)

    async def test_nothing_to_ask_again(self, store: Store) -> None:
        opening = TurnOpening(KEY, OWNER, (), user("not used"), PREFIX)
        assert await store.retry(opening) is None
        assert await store.conversation_for_key(KEY) is None
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.retry(opening) is None
        assert await store.session(session.id) == session

    async def test_not_while_a_turn_is_at_work(self, store: Store) -> None:
        ticket = await begin(store)
        with pytest.raises(StaleTurn):
            await store.retry(TurnOpening(KEY, OWNER, (), user(""), PREFIX))
        assert len(await store.active_rows(ticket.session_id)) == 1


class TitleContract:
    @pytest.mark.parametrize(
        ("wanted", "title"),
        [
            ("  Trip\tto \n Rome ", "Trip to Rome"),
            ("a\u200b\u202eb\x00c", "abc"),
            ("\u200b \u2800 \x07", None),
            ("", None),
            (None, None),
            ("half \ud83d surrogate", "half \ufffd surrogate"),
            ("family 👩\u200d👩\u200d👧", "family 👩\u200d👩\u200d👧"),
            ("旅行", "旅行"),
            ("x" * 300, "x" * 100),
            ("y" * 99 + "e\u0301tail", "y" * 99),
        ],
    )
    async def test_what_of_a_name_is_kept(
        self, store: Store, wanted: str | None, title: str | None
    ) -> None:
        session = await store.start_conversation(KEY, OWNER, PREFIX)
        named = await store.set_title(session.conversation_id, wanted)
        assert (named.id, named.title) == (session.id, title)
        assert await store.session(session.id) == named

    async def test_a_name_that_is_taken_gets_a_number(self, store: Store) -> None:
        ids = [
            (await store.start_conversation(f"key {n}", OWNER, PREFIX)).conversation_id
            for n in range(3)
        ]
        stranger = await store.start_conversation("key 9", "telegram:9", PREFIX)
        names = [(await store.set_title(cid, "Trip")).title for cid in ids]
        assert names == ["Trip", "Trip (2)", "Trip (3)"]
        assert (await store.set_title(stranger.conversation_id, "Trip")).title == "Trip"
        assert (await store.set_title(ids[1], "Trip (2)")).title == "Trip (2)"
        assert (await store.set_title(ids[2], "x" * 100)).title == "x" * 100
        assert (await store.set_title(ids[1], "X" * 100)).title == "X" * 96 + " (2)"
        assert (await store.set_title(ids[0], None)).title is None
        assert (await store.set_title(ids[1], "Trip")).title == "Trip"
        with pytest.raises(SessionNotFound):
            await store.set_title("c_none", "Trip")

    async def test_numbers_of_continuations_stay_beside_it(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        other = await store.start_conversation(OTHER_KEY, OWNER, PREFIX)
        await store.set_title(loaded.session.conversation_id, "Trip")
        tip = await compress(store, await store.load(loaded.session.id))
        assert tip.session.title == "Trip #2"
        assert (await store.set_title(other.conversation_id, "Trip")).title == "Trip (2)"
        assert (await store.session(loaded.session.id)).title == "Trip"
        named = await store.set_title(tip.session.conversation_id, "Tour")
        assert (named.id, named.title) == (tip.session.id, "Tour")
        tip = await compress(store, await store.load(named.id))
        assert tip.session.title == "Tour #2"
        await store.set_title(tip.session.conversation_id, "Ticket #42")
        assert (
            await compress(store, await store.load(tip.session.id))
        ).session.title == "Ticket #43"
        infos = {info.id: info for info in await store.conversations_of(OWNER)}
        info = infos[tip.session.conversation_id]
        assert (info.title, info.name) == ("Ticket #43", "Ticket #42")


class ListingContract:
    async def test_an_owners_conversations(self, store: Store, clock: FakeClock) -> None:
        started = clock.now()
        parent = await talk(store, said("one"), text="first words " * 40)
        await store.set_title(parent.session.conversation_id, "Trip")
        await clock.advance(10)
        tip = await compress(store, parent)
        await store.start_conversation(OTHER_KEY, "telegram:999", PREFIX)
        newer = await begin(store, "newer", session_key="key 3", owner=OWNER)
        await clock.advance(10)
        newest = await talk(store, said("newest"), text="more")
        info, other = await store.conversations_of(OWNER)
        assert (info.id, info.owner, info.session_key) == (
            parent.session.conversation_id, OWNER, KEY,
        )  # fmt: skip
        assert (info.tip_session_id, info.title) == (tip.session.id, "Trip #2")
        assert (info.name, other.name) == ("Trip", None)
        assert (info.started_at, info.last_message_at) == (started, newest.rows[-1].created_at)
        assert (info.message_count, info.session_count, info.routed) == (4, 2, True)
        assert info.opening == ("first words " * 40)[:200]
        assert (other.id, other.opening, other.title) == (newer.conversation_id, "newer", None)
        asked = [info.id, other.id, other.id, "c_none"]
        openings = await store.openings(asked)
        assert openings == {info.id: info.opening, other.id: "newer"}
        assert [i.id for i in await store.conversations_of(OWNER, limit=1)] == [info.id]
        assert await store.conversations_of(OWNER, limit=0) == []
        assert await store.conversations_of("telegram:none") == []
        assert list(await store.conversations_at("key 3")) == [other]

    async def test_what_a_new_start_leaves_behind(self, store: Store) -> None:
        old = await talk(store, said("one"))
        new = await store.start_conversation(KEY, OWNER, PREFIX)
        empty, left = sorted(await store.conversations_of(OWNER), key=lambda i: i.message_count)
        assert (empty.id, empty.last_message_at, empty.opening) == (new.conversation_id, None, "")
        assert await store.openings([empty.id]) == {}
        assert (left.id, left.routed, empty.routed) == (old.session.conversation_id, False, True)

    async def test_copies_are_no_news(self, store: Store) -> None:
        """A compression in the background moves nobody to the top of the list."""
        old = await talk(store, said("one"))
        await begin(store, "newer", session_key=OTHER_KEY)
        await compress(store, old)
        listed = await store.conversations_of(OWNER)
        assert [info.id for info in listed][1] == old.session.conversation_id

    async def test_what_was_taken_back_is_not_counted(self, store: Store) -> None:
        await talk(store, said("one"), text="u1")
        loaded = await talk(store, said("two"), text="u2")
        await store.undo(loaded.session.conversation_id)
        (info,) = await store.conversations_of(OWNER)
        assert (info.message_count, info.opening) == (2, "u1")
        await store.undo(loaded.session.conversation_id)
        (info,) = await store.conversations_of(OWNER)
        assert (info.message_count, info.opening, info.last_message_at) == (0, "", None)

    async def test_what_requests_took(self, store: Store) -> None:
        ticket = await begin(store)
        cid = ticket.conversation_id
        assert (await store.usage_totals("c_none")).requests == 0
        assert (await store.usage_totals(cid)).hit_share is None
        usage = Usage(10, 5, 100, 20, "m", "ttl")
        await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=usage)
        await store.append(ticket, ticket.session_id, (said("b"),), anchor_usage=Usage())
        await store.append(ticket, ticket.session_id, (said("c"),))
        await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("d"), anchor_usage=usage
        )
        tip = await compress(store, await store.load(ticket.session_id))
        ticket = await begin(store, "more")
        other = Usage(1, 1, 0, 7, "m", "tools changed \ud83d")
        await store.append(ticket, tip.session.id, (said("e"),), anchor_usage=other)
        totals = await store.usage_totals(cid)
        assert (totals.requests, totals.input_tokens, totals.output_tokens) == (3, 21, 11)
        assert (totals.cache_read_tokens, totals.cache_write_tokens) == (200, 47)
        assert totals.misses == {"ttl": 2, "tools changed \ufffd": 1}
        assert totals.hit_share == pytest.approx(200 / 268)

    async def test_a_stale_step_is_not_entered(self, store: Store) -> None:
        ticket = await begin(store)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        with pytest.raises(StaleTurn):
            await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=Usage(5, 5))
        assert (await store.usage_totals(ticket.conversation_id)).requests == 0


class ResumeContract:
    async def test_an_older_conversation_comes_back(self, store: Store) -> None:
        old = await talk(store, said("one"))
        new = await store.start_conversation(KEY, OWNER, PREFIX)
        await talk(store, said("two"))
        resumed = await store.resume(KEY, old.session.conversation_id)
        assert (resumed.id, resumed.ended_at, resumed.end_reason) == (old.session.id, None, None)
        assert (await begin(store, "go on")).session_id == old.session.id
        # The one in between is alive and waits.
        assert (await store.session(new.id)).ended_at is None
        listed = {info.id: info.routed for info in await store.conversations_of(OWNER)}
        assert listed == {old.session.conversation_id: True, new.conversation_id: False}

    async def test_a_conversation_has_one_way_to_it(self, store: Store) -> None:
        here = await talk(store, said("one"))
        cid = here.session.conversation_id
        await store.resume(OTHER_KEY, cid)
        assert await store.conversation_for_key(KEY) is None
        moved = await store.conversation_for_key(OTHER_KEY)
        assert moved is not None
        assert (moved.id, moved.session_key) == (cid, OTHER_KEY)
        assert [info.id for info in await store.conversations_at(OTHER_KEY)] == [cid]
        assert await store.conversations_at(KEY) == []
        assert (await begin(store, "fresh")).conversation_id != cid

    async def test_again_is_no_change(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        resumed = await store.resume(KEY, loaded.session.conversation_id)
        assert resumed == loaded.session
        with pytest.raises(SessionNotFound):
            await store.resume(KEY, "c_none")
        assert (await begin(store)).session_id == loaded.session.id

    async def test_not_while_another_keys_turn_is_at_work(self, store: Store) -> None:
        ticket = await begin(store)
        with pytest.raises(StaleTurn):
            await store.resume(OTHER_KEY, ticket.conversation_id)
        await store.interrupt_turn(ticket)
        with pytest.raises(StaleTurn):
            await store.resume(OTHER_KEY, ticket.conversation_id)
        assert (await store.resume(KEY, ticket.conversation_id)).id == ticket.session_id

    async def test_resuming_leads_to_the_newest_session(self, store: Store) -> None:
        parent = await talk(store, said("one"))
        tip = await compress(store, parent)
        await store.start_conversation(KEY, OWNER, PREFIX)
        resumed: Session = await store.resume(KEY, parent.session.conversation_id)
        assert resumed.id == tip.session.id
        assert (await store.tip(parent.session.id)).ended_at is None


class LineageContract(
    RefreezeContract, UncompressContract, BranchContract, UndoContract, RetryContract,
    TitleContract, ListingContract, ResumeContract,
):  # fmt: skip
    """The whole contract."""
