"""Owns the contract of what a turn's tools gave back; a subclass gives the ``store`` fixture."""

from __future__ import annotations

from dataclasses import replace

from agent.messages import Keep
from agent.store_ports import Store
from tests.contract.store_suite import (
    KEY,
    SUMMARY,
    begin,
    calling,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
)


class ResultsContract:
    """It is there for as long as the turn is, whatever became of its place in the list."""

    async def test_results_outlive_compressions_and_a_restart(self, store: Store) -> None:
        await talk(store, calling("x"), result("x", "of the turn before"), said("done"))
        ticket = await begin(store, "next")
        assert await store.results_of_turn(ticket) == []
        steps = (calling("a", "b"), result("a", "one"), result("b", "two"))
        await store.append(ticket, ticket.session_id, steps)
        loaded = await store.load(ticket.session_id)
        kept = [Keep(row.id) for row in loaded.rows[:-2]]
        pruned = [replace(result(name, "(pruned)"), kind="stub") for name in "ab"]
        assert (await store.rewrite(rewrite_of(loaded, *kept, *pruned))).applied
        loaded = await store.load(ticket.session_id)
        change = await store.split(split_of(loaded, SUMMARY, Keep(ticket.user_row_id)))
        assert change.applied
        await store.append(ticket, change.tip.id, (calling("c"), result("c", "three")))
        assert len(await store.recover_turns()) == 1
        await store.resume_turn(ticket)
        results = await store.results_of_turn(ticket)
        assert [row.message["content"] for row in results] == ["one", "two", "three"]
        results[0].message["content"] = "changed"
        assert (await store.results_of_turn(ticket))[0].message["content"] == "one"

    async def test_results_are_of_one_conversation(self, store: Store) -> None:
        ticket = await begin(store)
        other = await begin(store, session_key=KEY.replace("222", "223"))
        await store.append(other, other.session_id, (calling("a"), result("a", "theirs")))
        assert await store.results_of_turn(ticket) == []
        assert len(await store.results_of_turn(other)) == 1
