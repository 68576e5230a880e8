"""Owns the contract of `agent.ledger.Ledger`: what is entered, for whom, and how it adds up."""

from __future__ import annotations

import math

import pytest

from agent.errors import StaleTurn
from agent.ledger import LedgerLine, LedgerScope, Purpose, RequestEntry
from agent.ports import Usage
from agent.store_ports import Store
from tests.contract.lineage_suite import compress, compress_in_place
from tests.contract.store_suite import KEY, OWNER, PREFIX, begin, said, talk
from tests.fakes.clock import FakeClock

OTHER_KEY = '["telegram","7","222",null,"222"]'
OTHER = "telegram:999"
USAGE = Usage(10, 5, 100, 20, "model-1", "expired", cache_write_1h_tokens=8)


def entry(purpose: Purpose = "summary", model: str = "model-2", **changes: object) -> RequestEntry:
    return RequestEntry(purpose, model, **changes)  # type: ignore[arg-type]


class LedgerContract:
    async def test_an_empty_ledger(self, store: Store) -> None:
        for scope in (LedgerScope(), LedgerScope(owner=OWNER), LedgerScope(conversation_id="c")):
            assert list(await store.ledger_lines(scope)) == []
            assert await store.compressions(scope) == 0

    async def test_answers_are_entered_with_their_message(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=USAGE)
        await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("b"), anchor_usage=USAGE
        )
        assert list(await store.ledger_lines(LedgerScope())) == [
            LedgerLine(OWNER, "turn", "model-1", "expired", 2, 20, 10, 200, 40, 16)
        ]

    async def test_a_refused_step_is_not_entered(self, store: Store) -> None:
        ticket = await begin(store)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        with pytest.raises(StaleTurn):
            await store.append(ticket, ticket.session_id, (said("a"),), anchor_usage=USAGE)
        assert list(await store.ledger_lines(LedgerScope())) == []

    async def test_other_answers_are_entered_by_themselves(self, store: Store) -> None:
        ticket = await begin(store)
        cid = ticket.conversation_id
        await store.enter_request(entry(conversation_id=cid, input_tokens=7, output_tokens=3))
        await store.enter_request(entry("background", conversation_id=cid, cache_read_tokens=9))
        lines = await store.ledger_lines(LedgerScope(conversation_id=cid))
        assert [(line.owner, line.purpose, line.prompt_tokens) for line in lines] == [
            (OWNER, "background", 9),
            (OWNER, "summary", 7),
        ]
        # The figures of the prompt cache are those of the conversation itself.
        assert (await store.usage_totals(cid)).requests == 0

    async def test_whose_turn_runs_is_charged_else_whose_it_is(self, store: Store) -> None:
        ticket = await begin(store)
        cid = ticket.conversation_id
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("b"))
        guest = await begin(store, "me too", owner=OTHER)
        assert guest.conversation_id == cid
        await store.append(guest, guest.session_id, (said("a"),), anchor_usage=USAGE)
        await store.enter_request(entry(conversation_id=cid))
        await store.interrupt_turn(guest)
        await store.enter_request(entry("other", conversation_id=cid))
        lines = await store.ledger_lines(LedgerScope())
        assert [(line.owner, line.purpose) for line in lines] == [
            (OWNER, "other"),
            (OTHER, "summary"),
            (OTHER, "turn"),
        ]

    @pytest.mark.parametrize("purpose", ["background", "micro"])
    async def test_what_is_made_beside_is_not_charged_to_whoever_speaks(
        self, store: Store, purpose: Purpose
    ) -> None:
        """Whose conversation it is was asked whether they may; a guest was not."""
        ticket = await begin(store)
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("b"))
        guest = await begin(store, "me too", owner=OTHER)
        await store.enter_request(entry(purpose, conversation_id=guest.conversation_id))
        (line,) = await store.ledger_lines(LedgerScope())
        assert (line.owner, line.purpose) == (OWNER, purpose)

    async def test_an_entry_of_no_conversation(self, store: Store) -> None:
        await store.enter_request(entry("other"))
        await store.enter_request(entry("other", conversation_id="c_unknown"))
        await store.enter_request(entry("other", conversation_id="c_unknown", owner=OTHER))
        lines = await store.ledger_lines(LedgerScope())
        assert [(line.owner, line.requests) for line in lines] == [("", 2), (OTHER, 1)]
        assert list(await store.ledger_lines(LedgerScope(conversation_id="c_unknown"))) == []

    async def test_fallbacks_stand_under_their_own_name(self, store: Store) -> None:
        ticket = await begin(store)
        for model in ("b", "a", "b", "odd \ud83d", "模型"):
            usage = Usage(1, 1, model=model)
            await store.append(ticket, ticket.session_id, (said("x"),), anchor_usage=usage)
        lines = await store.ledger_lines(LedgerScope(owner=OWNER))
        assert [(line.model, line.requests) for line in lines] == [
            ("a", 1),
            ("b", 2),
            ("odd \ufffd", 1),
            ("模型", 1),
        ]

    async def test_scopes_cut_by_time_owner_and_conversation(
        self, store: Store, clock: FakeClock
    ) -> None:
        ticket = await begin(store)
        other = await begin(store, session_key=OTHER_KEY, owner=OTHER)
        started = clock.now()
        for offset, where in ((0, ticket), (10, ticket), (20, other)):
            clock.set_wall(started + offset)
            await store.append(where, where.session_id, (said("x"),), anchor_usage=USAGE)

        async def count(**scope: object) -> int:
            lines = await store.ledger_lines(LedgerScope(**scope))  # type: ignore[arg-type]
            return sum(line.requests for line in lines)

        assert await count() == 3
        assert await count(since=started + 10) == 2  # included
        assert await count(until=started + 10) == 1  # not included
        assert await count(since=started, until=started) == 0
        assert await count(owner=OWNER, since=started + 5) == 1
        assert await count(owner=OTHER) == 1
        assert await count(owner=OTHER, conversation_id=ticket.conversation_id) == 0
        assert await count(owner=OWNER, conversation_id=ticket.conversation_id) == 2
        assert await count(owner="nobody \ud83d") == 0
        assert await count(since=-math.inf, until=math.inf) == 3

    async def test_the_ledger_outlives_a_new_conversation(self, store: Store) -> None:
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (said("x"),), anchor_usage=USAGE)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        await store.start_conversation(KEY, OWNER, PREFIX)
        (line,) = await store.ledger_lines(LedgerScope(owner=OWNER))
        assert line.requests == 1

    async def test_compressions_are_counted_of_either_kind(
        self, store: Store, clock: FakeClock
    ) -> None:
        loaded = await compress(store, await talk(store, said("one")))
        cid = loaded.session.conversation_id
        halfway = clock.now() + 5
        clock.set_wall(halfway)
        await compress_in_place(store, loaded)
        clock.set_wall(halfway + 5)
        assert await store.compressions(LedgerScope()) == 2
        assert await store.compressions(LedgerScope(conversation_id=cid)) == 2
        assert await store.compressions(LedgerScope(conversation_id="c_other")) == 0
        assert await store.compressions(LedgerScope(owner=OWNER, until=halfway)) == 1
        assert await store.compressions(LedgerScope(owner=OWNER, since=halfway)) == 1
        assert await store.compressions(LedgerScope(owner=OTHER)) == 0

    async def test_other_ends_are_no_compressions(self, store: Store) -> None:
        await talk(store, said("one"))
        await store.start_conversation(KEY, OWNER, PREFIX)
        assert await store.compressions(LedgerScope()) == 0

    async def test_a_mark_is_new_once(self, store: Store) -> None:
        assert await store.first_time(OWNER, "monday")
        assert not await store.first_time(OWNER, "monday")
        assert await store.first_time(OTHER, "monday")
        assert await store.first_time(OWNER, "tuesday")
        assert not await store.first_time(OWNER, "tuesday")
