"""Owns the contract of words that come into a running turn, over every store."""

from __future__ import annotations

import pytest

from agent.errors import SessionEnded, StaleTurn
from agent.mail import OutboxDraft
from agent.messages import Keep
from agent.sessions import SearchScope, TurnOpening, TurnTicket
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
    texts,
    user,
)

AGAIN = TurnOpening(KEY, OWNER, (), said("not used"), PREFIX)


async def waiting(store: Store, *numbers: int) -> tuple[int, ...]:
    return tuple([(await store.accept(inbound(n))).inbox_id for n in numbers])


async def at_work(store: Store, *inbox_ids: int, text: str = "u1") -> TurnTicket:
    """A turn after its first step."""
    ticket = await begin(store, text, inbox_ids)
    await store.append(ticket, ticket.session_id, (calling("a"), result("a")))
    return ticket


async def steered_turn(store: Store, *words: str) -> TurnTicket:
    """A finished turn into which these words came."""
    ticket = await at_work(store)
    for n, text in enumerate(words):
        rows = await waiting(store, 50 + n)
        assert await store.steer(ticket, ticket.session_id, rows, user(text)) is not None
        await store.append(ticket, ticket.session_id, (said(f"about {text}"),))
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("bye"))
    return ticket


class SteeringContract:
    async def test_words_come_into_the_turn(self, store: Store) -> None:
        first, *further = await waiting(store, 1, 2, 3)
        ticket = await at_work(store, first)
        stored = await store.steer(
            ticket, ticket.session_id, further, user("and Rome?", wire_content="[Ann] and Rome?")
        )
        assert stored is not None
        (row,) = stored.rows
        assert (row.message["content"], row.wire_content) == ("and Rome?", "[Ann] and Rome?")
        loaded = await store.load(ticket.session_id, ticket=ticket)
        assert loaded.rows[-1] == row
        assert loaded.session.message_count == 4
        assert [i.state for i in await store.inbox_items((first, *further))] == ["claimed"] * 3
        assert await store.open_inbox() == []
        owed = (OutboxDraft(CHAT, "both"),)
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("x"), outbox=owed)
        assert {i.state for i in await store.inbox_items((first, *further))} == {"answered"}

    async def test_they_are_found_like_any_others(self, store: Store) -> None:
        await steered_turn(store, "swordfish")
        hits = await store.search("swordfish", SearchScope(owner=OWNER))
        assert {hit.role for hit in hits} == {"user", "assistant"}

    async def test_messages_that_do_not_wait_come_into_nothing(self, store: Store) -> None:
        first, second = await waiting(store, 1, 2)
        ticket = await at_work(store, first)
        before = await store.load(ticket.session_id, ticket=ticket)
        for rows in ((), (first,), (second, first), (second, 99)):
            assert await store.steer(ticket, ticket.session_id, rows, user("x")) is None
        assert await store.load(ticket.session_id, ticket=ticket) == before
        assert [item.id for item in await store.open_inbox()] == [second]
        assert await store.steer(ticket, ticket.session_id, (second, second), user("x"))
        assert await store.steer(ticket, ticket.session_id, (second,), user("x")) is None

    async def test_words_do_not_come_between_a_call_and_its_result(self, store: Store) -> None:
        (row,) = await waiting(store, 1)
        ticket = await begin(store)
        await store.append(ticket, ticket.session_id, (calling("a", "b"), result("a")))
        assert await store.steer(ticket, ticket.session_id, (row,), user("x")) is None
        await store.append(ticket, ticket.session_id, (result("b"),))
        assert await store.steer(ticket, ticket.session_id, (row,), user("x")) is not None
        loaded = await store.load(ticket.session_id, ticket=ticket)
        assert texts(loaded)[-2:] == ["12:00", "x"]
        assert loaded.session.revision == 0  # nothing had to be repaired

    async def test_a_turn_that_is_over_takes_nothing(self, store: Store) -> None:
        (row,) = await waiting(store, 1)
        ticket = await at_work(store)
        await store.interrupt_turn(ticket)
        with pytest.raises(StaleTurn):
            await store.steer(ticket, ticket.session_id, (row,), user("x"))
        await store.resume_turn(ticket)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        with pytest.raises(StaleTurn):
            await store.steer(ticket, ticket.session_id, (row,), user("x"))
        assert [item.id for item in await store.open_inbox()] == [row]

    async def test_a_session_that_is_not_the_tip_takes_nothing(self, store: Store) -> None:
        (row,) = await waiting(store, 1)
        ticket = await at_work(store)
        loaded = await store.load(ticket.session_id, ticket=ticket)
        tip = (await store.split(split_of(loaded, SUMMARY))).tip
        with pytest.raises(SessionEnded):
            await store.steer(ticket, ticket.session_id, (row,), user("x"))
        assert [item.id for item in await store.open_inbox()] == [row]
        assert await store.steer(ticket, tip.id, (row,), user("x")) is not None

    async def test_a_cut_off_turn_knows_what_came_into_it(self, store: Store) -> None:
        first, second, third = await waiting(store, 1, 2, 3)
        ticket = await at_work(store, second)
        await store.steer(ticket, ticket.session_id, (third, first), user("x"))
        (cut_off,) = await store.recover_turns()
        assert cut_off.inbox_ids == (first, second, third)
        assert cut_off.crashes == 1
        resumed = await store.resume_turn(cut_off.ticket)
        assert texts(resumed)[-1] == "x"
        for row in (first, third):
            assert await begin(store, "again", (row,)) == ticket
        # What somebody says meanwhile is no progress of the turn's own.
        (fourth,) = await waiting(store, 4)
        await store.steer(ticket, ticket.session_id, (fourth,), user("y"))
        (cut_off,) = await store.recover_turns()
        assert (cut_off.crashes, len(cut_off.inbox_ids)) == (2, 4)
        await store.resume_turn(ticket)
        assert await store.recover_turns() == []
        rows = await store.inbox_items(cut_off.inbox_ids)
        assert {item.state for item in rows} == {"answered"}
        (notice,) = await store.owed()
        assert notice.draft.address.reply_to_message_id == "4"

    async def test_an_undo_takes_the_turn_with_what_came_into_it(self, store: Store) -> None:
        await begin_and_end(store, "u0")
        ticket = await steered_turn(store, "rome", "oslo")
        undone = await store.undo(ticket.conversation_id)
        assert undone.said == user("u1")
        said_back = [r.message["content"] for r in undone.removed if r.message["role"] == "user"]
        assert said_back == ["u1", "rome", "oslo"]
        assert texts(await store.load(ticket.session_id)) == ["u0", "ok"]
        assert await store.search("rome", SearchScope(owner=OWNER)) == []

    async def test_an_undo_counts_turns_not_words(self, store: Store) -> None:
        await begin_and_end(store, "u0")
        ticket = await steered_turn(store, "rome", "oslo")
        await begin_and_end(store, "u2")
        undone = await store.undo(ticket.conversation_id, 2)
        assert (undone.said, undone.turns) == (user("u1"), 2)
        assert texts(await store.load(ticket.session_id)) == ["u0", "ok"]

    async def test_an_undo_knows_them_behind_a_compression(self, store: Store) -> None:
        """In copies, and where the beginning of the turn is in the summary."""
        ticket = await steered_turn(store, "rome")
        loaded = await store.load(ticket.session_id)
        whole = [Keep(row.id) for row in loaded.rows]
        tip = (await store.split(split_of(loaded, SUMMARY, *whole))).tip
        undone = await store.undo(ticket.conversation_id)
        assert undone.said == user("u1")
        assert texts(await store.load(tip.id)) == [SUMMARY.message["content"]]

    async def test_an_undo_takes_what_is_left_of_the_turn(self, store: Store) -> None:
        ticket = await steered_turn(store, "rome", "oslo")
        loaded = await store.load(ticket.session_id)
        rest = [Keep(row.id) for row in loaded.rows[3:]]
        await store.rewrite(rewrite_of(loaded, SUMMARY, *rest))
        undone = await store.undo(ticket.conversation_id, 2)
        assert (undone.said, undone.turns) == (user("rome"), 1)
        assert texts(await store.load(ticket.session_id)) == [SUMMARY.message["content"]]

    async def test_the_rest_of_a_turn_counts_beside_whole_ones(self, store: Store) -> None:
        ticket = await steered_turn(store, "rome")
        await begin_and_end(store, "u2")
        loaded = await store.load(ticket.session_id)
        rest = [Keep(row.id) for row in loaded.rows[3:]]
        await store.rewrite(rewrite_of(loaded, SUMMARY, *rest))
        undone = await store.undo(ticket.conversation_id, 2)
        assert (undone.said, undone.turns, undone.rest) == (user("rome"), 2, True)

    async def test_the_rest_of_a_turn_without_a_summary_in_front(self, store: Store) -> None:
        """An engine may leave rows out and put nothing in their place, in a copy as well."""
        ticket = await steered_turn(store, "rome", "oslo")
        fork = await store.branch(ticket.session_id, KEY, OWNER)
        loaded = await store.load(fork.id)
        await store.split(split_of(loaded, *(Keep(row.id) for row in loaded.rows[2:])))
        undone = await store.undo(fork.conversation_id, 3)
        assert (undone.said, undone.turns, undone.rest) == (user("rome"), 1, True)
        assert not undone.behind_summary
        # Its beginning, and what came of that, is not lost.
        whole = await store.uncompressed(undone.session.id)
        assert [row.message["content"] for row in whole] == ["u1", None, "12:00"]

    async def test_a_retry_asks_all_of_it_again(self, store: Store) -> None:
        ticket = await steered_turn(store, "rome", "oslo")
        again = await store.retry(AGAIN)
        assert again is not None
        loaded = await store.load(ticket.session_id, ticket=again)
        assert texts(loaded) == ["u1", "rome", "oslo"]
        assert again.user_row_id == loaded.rows[0].id
        await store.append(again, again.session_id, (said("one"),))
        await store.finish_turn(again, again.session_id, "done")
        # And is one turn still, for the next who takes it back.
        undone = await store.undo(ticket.conversation_id, 2)
        assert (len(undone.removed), undone.turns) == (4, 1)
        assert texts(await store.load(ticket.session_id)) == []

    async def test_a_fork_takes_them_along(self, store: Store) -> None:
        await begin_and_end(store, "u0")
        ticket = await steered_turn(store, "rome")
        fork = await store.branch(ticket.session_id, KEY, OWNER)
        undone = await store.undo(fork.conversation_id)
        assert undone.said == user("u1")
        assert texts(await store.load(fork.id)) == ["u0", "ok"]


async def begin_and_end(store: Store, text: str) -> None:
    ticket = await begin(store, text)
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("ok"))
