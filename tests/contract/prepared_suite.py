"""Owns the contract of `agent.prepared.Shelf`: kept for one state of a session, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import SessionNotFound
from agent.messages import Draft, Keep
from agent.ports import Usage
from agent.prepared import Prepared
from agent.sessions import LoadedSession
from agent.store_ports import Store
from tests.contract.lineage_suite import refreeze, uncompress_of
from tests.contract.store_suite import (
    KEY,
    OWNER,
    PREFIX,
    SUMMARY,
    begin,
    calling,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
    thinking,
)
from tests.fakes.clock import FakeClock


def prepared_of(loaded: LoadedSession, *entries: Any, **changes: Any) -> Prepared:
    """A summary of everything but the last message."""
    values: dict[str, Any] = {
        "session_id": loaded.session.id,
        "revision": loaded.session.revision,
        "covered_row_id": loaded.last_row_id,
        "entries": entries or (SUMMARY, Keep(loaded.last_row_id)),
        "tokens": 12,
        "manifest": {"mode": "summary", "text": "墨水 🎉"},
        "cost": {"calls": 1},
    }
    return Prepared(**{**values, **changes})


class PreparedContract:
    async def test_it_comes_back_as_it_was(self, store: Store, clock: FakeClock) -> None:
        loaded = await talk(store, said("one"), thinking("two"))
        odd = Draft(
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "half \ud83d, 墨水"}],
                "tool_calls": calling("a").message["tool_calls"],
                "anthropic_content_blocks": [{"type": "x", "data": "S\u00e9\ud83d1"}],
            },
            wire_content="sent 🎉",
            kind="stub",
            origin_id=loaded.rows[0].id,
        )
        bound = Keep(loaded.rows[-2].id, with_thinking=True)
        kept = prepared_of(loaded, SUMMARY, odd, result("a"), bound, Keep(loaded.last_row_id))
        assert await store.prepared(loaded.session.id) is None
        assert await store.save_prepared(kept)
        back = await store.prepared(loaded.session.id)
        assert back is not None
        assert back.created_at == clock.now()
        assert back.entries == kept.entries
        assert (back.manifest, back.cost, back.tokens) == (kept.manifest, kept.cost, 12)
        assert (back.revision, back.covered_row_id) == (kept.revision, kept.covered_row_id)
        # The session is as it was: nothing is in force.
        assert await store.load(loaded.session.id) == loaded

    async def test_a_newer_one_takes_its_place(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        assert await store.save_prepared(prepared_of(loaded, tokens=1))
        assert await store.save_prepared(prepared_of(loaded, tokens=2))
        back = await store.prepared(loaded.session.id)
        assert back is not None
        assert back.tokens == 2
        assert await store.discard_prepared(loaded.session.id)
        assert not await store.discard_prepared(loaded.session.id)
        assert await store.prepared(loaded.session.id) is None

    async def test_what_is_said_later_leaves_it(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        assert await store.save_prepared(prepared_of(loaded))
        later = await talk(store, said("three"), text="later")
        assert await store.prepared(loaded.session.id) is not None
        # also one that was made before that
        assert await store.save_prepared(prepared_of(loaded, tokens=2))
        change = await store.split(split_of(loaded, SUMMARY, Keep(loaded.last_row_id)))
        assert change.applied
        child = await store.load(change.tip.id)
        assert [r.root_id for r in child.rows[1:]] == [r.id for r in later.rows[1:]]

    async def test_whatever_makes_another_list_takes_it_away(self, store: Store) -> None:
        for step in ("split", "rewrite", "undo", "refreeze", "uncompress", "new", "repair"):
            await store.start_conversation(KEY, OWNER, PREFIX)
            loaded = await talk(store, said("one"), thinking("two"))
            if step == "uncompress":
                change = await store.split(split_of(loaded, SUMMARY, Keep(loaded.last_row_id)))
                loaded = await store.load(change.tip.id)
            if step == "repair":
                ticket = await begin(store)
                rows = (calling("a"), said("x"), result("a"))
                appended = await store.append(ticket, ticket.session_id, rows)
                await store.finish_turn(ticket, ticket.session_id, "failed")
                covered = {"covered_row_id": appended.rows[0].id, "entries": (SUMMARY,)}
                assert await store.save_prepared(prepared_of(loaded, **covered))
            else:
                assert await store.save_prepared(prepared_of(loaded))
            stale = prepared_of(loaded)
            session_id, last = loaded.session.id, Keep(loaded.last_row_id)
            match step:
                case "split":
                    await store.split(split_of(loaded, SUMMARY, last))
                case "rewrite":
                    await store.rewrite(rewrite_of(loaded, SUMMARY, last))
                case "undo":
                    await store.undo(loaded.session.conversation_id)
                case "refreeze":
                    await refreeze(store, loaded)
                case "uncompress":
                    assert (await store.uncompress(uncompress_of(loaded))).applied
                case "new":
                    await store.start_conversation(KEY, OWNER, PREFIX)
                case "repair":
                    await store.load(session_id)
            assert await store.prepared(session_id) is None, step
            # and what comes too late is not kept
            assert not await store.save_prepared(stale), step
            assert await store.prepared(session_id) is None

    async def test_a_fork_takes_nothing_of_it_along(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        assert await store.save_prepared(prepared_of(loaded))
        fork = await store.branch(loaded.session.id, "another", OWNER)
        assert await store.prepared(fork.id) is None
        assert await store.prepared(loaded.session.id) is not None

    async def test_it_is_refused_for_any_other_state(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        assert not await store.save_prepared(prepared_of(loaded, revision=1))
        assert not await store.save_prepared(prepared_of(loaded, covered_row_id=99, entries=()))
        with pytest.raises(SessionNotFound):
            await store.save_prepared(prepared_of(loaded, session_id="nobody"))
        for entries in ((Keep(99),), (Keep(loaded.last_row_id),) * 2):
            with pytest.raises(ValueError, match="kept twice"):
                await store.save_prepared(prepared_of(loaded, *entries))
        assert await store.prepared(loaded.session.id) is None
        assert await store.prepared("nobody") is None
        assert not await store.discard_prepared("nobody")

    async def test_saving_and_splitting_at_once_leave_nothing_behind(self, store: Store) -> None:
        loaded = await talk(store, said("one"))
        await asyncio.gather(
            store.save_prepared(prepared_of(loaded)),
            store.split(split_of(loaded, SUMMARY, Keep(loaded.last_row_id))),
            store.save_prepared(prepared_of(loaded)),
        )
        assert await store.prepared(loaded.session.id) is None

    async def test_conversations_that_are_crowded(self, store: Store, clock: FakeClock) -> None:
        begun = clock.now()
        made = []
        for n, tokens in enumerate((90, 100, 70, 80)):
            ticket = await begin(store, session_key=f"key {n}")
            usage = Usage(tokens, 5)
            await store.finish_turn(
                ticket, ticket.session_id, "done", final=said("x"), anchor_usage=usage
            )
            made.append(ticket)
            await clock.advance(10)
        ids = [ticket.conversation_id for ticket in made]
        assert list(await store.crowded(85, since=begun)) == [ids[3], ids[1], ids[0]]
        assert list(await store.crowded(85, since=begun, limit=1)) == [ids[3]]
        assert list(await store.crowded(85, since=begun + 10)) == [ids[3], ids[1]]
        assert list(await store.crowded(85, since=begun, limit=-1)) == []
        loaded = await store.load(made[3].session_id)
        assert await store.save_prepared(prepared_of(loaded))
        await store.start_conversation("key 1", OWNER, PREFIX)
        assert list(await store.crowded(85, since=begun)) == [ids[0]]
