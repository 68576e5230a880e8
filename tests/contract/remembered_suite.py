"""Owns the contract of small things that are remembered, over every store."""

from __future__ import annotations

from agent.store_ports import Store


class RememberedContract:
    async def test_a_fact_is_what_was_said_last(self, store: Store) -> None:
        assert await store.fact("menu") is None
        await store.set_fact("menu", "one")
        await store.set_fact("menu", "two")
        await store.set_fact("other", "")
        assert await store.fact("menu") == "two"
        assert await store.fact("other") == ""
        await store.set_fact("menu", None)
        await store.set_fact("never", None)
        assert await store.fact("menu") is None
        assert await store.fact("other") == ""

    async def test_the_stores_own_facts_are_out_of_reach(self, store: Store) -> None:
        await store.set_fact("segmenter", "mine")
        assert await store.fact("segmenter") == "mine"
        assert not await store.maintain()

    async def test_any_text_at_all(self, store: Store) -> None:
        await store.set_fact("\ud83d", "half \ude00")
        assert "half" in (await store.fact("\ud83d") or "")
