"""Owns the contract of when something was last said; a subclass gives the ``store`` fixture."""

from __future__ import annotations

from agent.sessions import LastSaid
from agent.store_ports import Store
from tests.contract.lineage_suite import compress
from tests.contract.moving_suite import NEW, OLD, key, move
from tests.contract.store_suite import KEY, OWNER, PREFIX, begin, said, talk
from tests.fakes.clock import FakeClock


class LastSaidContract:
    async def test_nothing_was_said(self, store: Store) -> None:
        assert await store.last_said(KEY) is None
        await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.last_said(KEY) is None
        assert await store.silent_since(9e12) == []

    async def test_the_newest_message_counts_also_behind_a_compression(
        self, store: Store, clock: FakeClock
    ) -> None:
        loaded = await talk(store, said("hello"))
        at = clock.now()
        await clock.advance(600)
        tip = await compress(store, loaded)
        found = await store.last_said(KEY)
        assert found == LastSaid(KEY, loaded.session.conversation_id, tip.session.id, OWNER, at)
        assert await store.silent_since(at) == []
        assert await store.silent_since(at + 1) == [found]

    async def test_the_longest_silent_come_first(self, store: Store, clock: FakeClock) -> None:
        for place in (key(OLD), KEY):
            ticket = await begin(store, "hello", session_key=place)
            await store.finish_turn(ticket, ticket.session_id, "done")
            await clock.advance(60)
        silent = await store.silent_since(9e12)
        assert [one.session_key for one in silent] == [key(OLD), KEY]
        assert len(await store.silent_since(9e12, limit=1)) == 1
        (later,) = await store.silent_since(9e12, after=silent[0].at)
        assert later == silent[1]
        await move(store)
        moved = await store.last_said(key(OLD))
        assert moved is not None
        assert moved.session_key == key(NEW)
