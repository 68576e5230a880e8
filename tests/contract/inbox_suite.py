"""Owns the contract of the inbox beyond one message: repeats in time, edits, rows in one turn."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import StaleTurn
from agent.mail import Address
from agent.store_ports import Store
from tests.contract.store_suite import begin, calling, inbound, result, said, texts
from tests.fakes.clock import FakeClock

DAY = 86_400.0
WEEK = 7 * DAY
NOW = 1_800_000_000.0


class InboxContract:
    @pytest.mark.parametrize(
        ("apart", "fresh"),
        [(0.0, False), (WEEK, False), (WEEK + 1, True), (-WEEK, False), (-WEEK - 1, True)],
    )
    async def test_an_updates_id_is_its_own_for_a_week(
        self, store: Store, apart: float, fresh: bool
    ) -> None:
        """Either way: a clock that was a year ahead must not swallow a year's messages."""
        await store.accept(inbound(1, update_id="5", received_at=NOW))
        again = inbound(2, update_id="5", received_at=NOW + apart)
        assert (await store.accept(again)).fresh is fresh
        assert len(await store.open_inbox()) == 1 + fresh
        # From then on the newer one has it.
        assert not (
            await store.accept(inbound(3, update_id="5", received_at=again.received_at))
        ).fresh

    async def test_the_newest_of_a_bot(self, store: Store) -> None:
        """In any state, oldest first; what could not be read and what others were sent counts."""
        assert await store.newest_items("telegram", "7", among=5) == []
        first = await store.accept(inbound(1))
        await store.quarantine("telegram", "7", "77", "{", "not JSON")
        for n, bot_id in ((2, "7"), (3, "8"), (4, "7")):
            await store.accept(inbound(n, address=Address("telegram", bot_id, "111")))
        await store.answer_inbox([first.inbox_id])

        async def numbers(among: int) -> list[str]:
            newest = await store.newest_items("telegram", "7", among=among)
            return [item.record.message_id for item in newest]

        assert await numbers(5) == await numbers(99) == ["1", "2", "4"]
        assert await numbers(4) == await numbers(3) == ["2", "4"]
        assert await numbers(2) == await numbers(1) == ["4"]

    async def test_a_message_is_itself_for_ever(self, store: Store) -> None:
        first = await store.accept(inbound(1, update_id="5", received_at=NOW))
        for n, apart in enumerate((0.0, WEEK + 1, 400 * DAY, -400 * DAY)):
            for update_id in ("5", f"60{n}", None):
                again = inbound(1, update_id=update_id, received_at=NOW + apart)
                repeat = await store.accept(again)
                assert (repeat.inbox_id, repeat.fresh) == (first.inbox_id, False)

    async def test_an_old_update_and_an_old_message_in_one(self, store: Store) -> None:
        """The id of one row, the message of another: the message decides."""
        await store.accept(inbound(1, update_id="5", received_at=NOW))
        second = await store.accept(inbound(2, update_id="6", received_at=NOW))
        again = inbound(2, update_id="5", received_at=NOW + WEEK + 1)
        repeat = await store.accept(again)
        assert (repeat.inbox_id, repeat.fresh) == (second.inbox_id, False)

    async def test_ids_of_updates_begin_anew_for_the_unreadable_too(
        self, store: Store, clock: FakeClock
    ) -> None:
        async def ids_given() -> int:
            return (await store.accept(inbound(next(numbers)))).inbox_id

        numbers = iter(range(9))
        await store.quarantine("telegram", "7", "5", "{", "not JSON")
        first = await ids_given()
        await store.quarantine("telegram", "7", "5", "{", "not JSON")
        assert await ids_given() == first + 1
        await clock.advance(WEEK + 1)
        await store.quarantine("telegram", "7", "5", "[", "another one")
        assert await ids_given() == first + 3

    async def test_messages_without_a_number_are_not_each_other(self, store: Store) -> None:
        for update_id in ("1", "2", None, None):
            assert (await store.accept(inbound(0, message_id="", update_id=update_id))).fresh
        assert {item.record.message_id for item in await store.open_inbox()} == {""}

    @pytest.mark.parametrize(
        "other",
        [
            {"kind": "command"},
            {"address": Address("telegram", "7", "112")},
            {"address": Address("telegram", "8", "111")},
            {"address": Address("discord", "7", "111")},
            {"message_id": "2"},
            {"message_id": ""},
        ],
    )
    async def test_an_edit_of_another_message(self, store: Store, other: dict[str, Any]) -> None:
        await store.accept(inbound(1))
        before = await store.open_inbox()
        assert not await store.revise(inbound(1, **{**other, "text": "x"}))
        assert await store.open_inbox() == before

    async def test_an_edit_shows_in_what_waits(self, store: Store) -> None:
        await store.accept(inbound(1))
        edit = inbound(
            1, text="new \ud83d", payload={"files": ["a"]}, update_id="2000", sent_at=9.0,
            received_at=9.0, session_key="other", owner="other",
        )  # fmt: skip
        assert await store.revise(edit)
        (item,) = await store.open_inbox()
        assert item.record == inbound(1, text="new \ufffd", payload={"files": ["a"]})
        # It is still the same message, and the same update.
        assert not (await store.accept(inbound(1))).fresh
        assert (await store.open_inbox()) == [item]

    async def test_the_newest_edit_stays(self, store: Store) -> None:
        await store.accept(inbound(1))
        shown = []
        for update_id, text in (("2000", "b"), ("999", "a"), ("2000", "b"), ("10000", "c")):
            assert await store.revise(inbound(1, text=text, update_id=update_id))
            shown.append((await store.open_inbox())[0].record.text)
        assert shown == ["b", "b", "b", "c"]
        # Where nothing tells which is newer, the last one said is.
        assert await store.revise(inbound(1, text="d", update_id=None))
        assert (await store.open_inbox())[0].record.text == "d"
        assert await store.revise(inbound(1, text="a", update_id="999"))
        assert (await store.open_inbox())[0].record.text == "d"

    async def test_what_was_read_stays_as_it_was_read(self, store: Store) -> None:
        first, second = [(await store.accept(inbound(n))).inbox_id for n in (1, 2)]
        await begin(store, "x", (first,))
        await store.answer_inbox((second,))
        for n in (1, 2, 3):
            assert not await store.revise(inbound(n, text="changed"))
        assert [i.record.text for i in await store.inbox_items((first, second))] == [
            "message 1", "message 2",
        ]  # fmt: skip


class SeveralRowsContract:
    @pytest.mark.parametrize("count", [1, 2, 10, 26])
    async def test_pieces_begin_one_turn(self, store: Store, count: int) -> None:
        ids = [(await store.accept(inbound(n))).inbox_id for n in range(count)]
        ticket = await begin(store, "x", tuple(ids[::2] + ids[1::2][::-1]))
        assert await store.open_inbox() == []
        for row in ids:
            assert await begin(store, "again", (row,)) == ticket
        assert await begin(store, "again", tuple(ids)) == ticket
        assert texts(await store.load(ticket.session_id, ticket=ticket)) == ["x"]
        (cut_off,) = await store.recover_turns()
        assert cut_off.inbox_ids == tuple(ids)
        await store.resume_turn(ticket)
        await store.finish_turn(ticket, ticket.session_id, "done")
        assert {item.state for item in await store.inbox_items(ids)} == {"answered"}
        with pytest.raises(StaleTurn):
            await begin(store, "again", tuple(ids))

    async def test_the_same_row_named_twice(self, store: Store) -> None:
        row = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "x", (row, row))
        (cut_off,) = await store.recover_turns()
        assert (cut_off.ticket, cut_off.inbox_ids) == (ticket, (row,))

    @pytest.mark.parametrize("backwards", [False, True])
    async def test_answered_pieces_do_not_hinder_the_others(
        self, store: Store, backwards: bool
    ) -> None:
        ids = [(await store.accept(inbound(n))).inbox_id for n in range(3)]
        await store.answer_inbox(ids[1:2])
        ticket = await begin(store, "x", tuple(ids[::-1] if backwards else ids))
        (cut_off,) = await store.recover_turns()
        assert (cut_off.ticket, cut_off.inbox_ids) == (ticket, (ids[0], ids[2]))

    @pytest.mark.parametrize("backwards", [False, True])
    async def test_a_piece_that_a_turn_has_gives_that_turn(
        self, store: Store, backwards: bool
    ) -> None:
        """The others are not in its message, so they go on waiting."""
        ids = [(await store.accept(inbound(n))).inbox_id for n in range(4)]
        await store.answer_inbox(ids[:1])
        ticket = await begin(store, "x", (ids[2],))
        await store.append(ticket, ticket.session_id, (calling("a"), result("a")))
        await store.interrupt_turn(ticket)
        again = await begin(store, "y", tuple(ids[::-1] if backwards else ids))
        assert again == ticket
        assert texts(await store.load(ticket.session_id, ticket=again))[-1] == "12:00"
        assert [item.id for item in await store.open_inbox()] == [ids[1], ids[3]]
        # It runs again.
        await store.append(ticket, ticket.session_id, (said("ok"),))

    async def test_rows_that_never_were(self, store: Store) -> None:
        row = (await store.accept(inbound(1))).inbox_id
        ticket = await begin(store, "x", (99, row, 98))
        (cut_off,) = await store.recover_turns()
        assert (cut_off.ticket, cut_off.inbox_ids) == (ticket, (row,))
