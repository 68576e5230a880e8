"""Owns the contract of messages that show what running turns have so far, over every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import StaleTurn
from agent.mail import OutboxDraft, PartDraft
from agent.sessions import TurnTicket, session_key
from agent.store_ports import Store
from tests.contract.store_suite import (
    CHAT,
    SUMMARY,
    begin,
    inbound,
    said,
    split_of,
)

REPLY = replace(CHAT, reply_to_message_id="41")
OTHER = replace(CHAT, chat_id=CHAT.chat_id + "0")


async def previewed(store: Store, *inbox_ids: int) -> TurnTicket:
    ticket = await begin(store, "u1", inbox_ids)
    assert await store.note_preview(ticket, REPLY, "500")
    return ticket


class PreviewContract:
    async def test_the_answer_takes_the_place_of_the_preview(self, store: Store) -> None:
        ticket = await previewed(store)
        assert await store.preview_of(ticket) == "500"
        drafts = [OutboxDraft(REPLY, "answer"), OutboxDraft(REPLY, "notice", "notice")]
        items = await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("answer"), outbox=drafts
        )
        assert [item.draft.edits_message_id for item in items] == ["500", None]
        assert items[0].draft == replace(drafts[0], edits_message_id="500")
        assert await store.owed() == list(items)
        assert await store.preview_of(ticket) is None

    async def test_only_an_answer_to_the_same_place_does(self, store: Store) -> None:
        ticket = await previewed(store)
        thread = replace(REPLY, thread_id="9")
        drafts = [OutboxDraft(a, "x") for a in (OTHER, thread, REPLY, REPLY)]
        items = await store.finish_turn(ticket, ticket.session_id, "failed", outbox=drafts)
        assert [i.draft.edits_message_id for i in items] == [None, None, "500", None]

    async def test_a_turn_that_owes_nothing_leaves_no_trace(self, store: Store) -> None:
        ticket = await previewed(store)
        assert await store.finish_turn(ticket, ticket.session_id, "stopped") == ()
        assert await store.preview_of(ticket) is None

    async def test_the_newest_preview_counts_and_each_turn_has_its_own(self, store: Store) -> None:
        ticket = await previewed(store)
        assert await store.note_preview(ticket, CHAT, "501")
        other = await begin(store, "u2", session_key=session_key("telegram", "7", "42", None, None))
        assert await store.preview_of(other) is None
        (item,) = await store.finish_turn(
            other, other.session_id, "done", final=said("x"), outbox=[OutboxDraft(CHAT, "x")]
        )
        assert item.draft.edits_message_id is None
        assert await store.preview_of(ticket) == "501"

    async def test_it_outlives_a_split_an_interruption_and_a_restart(self, store: Store) -> None:
        ticket = await previewed(store)
        loaded = await store.load(ticket.session_id, ticket=ticket)
        tip = (await store.split(split_of(loaded, SUMMARY))).tip
        await store.interrupt_turn(ticket)
        (turn,) = await store.recover_turns()
        assert await store.preview_of(turn.ticket) == "500"
        await store.resume_turn(turn.ticket)
        (item,) = await store.finish_turn(
            turn.ticket, tip.id, "done", final=said("x"), outbox=[OutboxDraft(REPLY, "x")]
        )
        assert item.draft.edits_message_id == "500"

    async def test_a_turn_that_is_not_running_gets_none(self, store: Store) -> None:
        ticket = await previewed(store)
        await store.interrupt_turn(ticket)
        with pytest.raises(StaleTurn):
            await store.note_preview(ticket, CHAT, "501")
        assert await store.preview_of(ticket) == "500"
        await store.resume_turn(ticket)
        await store.finish_turn(ticket, ticket.session_id, "stopped")
        with pytest.raises(StaleTurn):
            await store.note_preview(ticket, CHAT, "501")
        assert await store.preview_of(ticket) is None

    async def test_the_notice_of_a_turn_set_aside_takes_its_place(self, store: Store) -> None:
        await store.recover_turns()
        inbox_id = (await store.accept(inbound(1))).inbox_id
        await previewed(store, inbox_id)
        assert await store.recover_turns(crash_limit=1) == []
        (item,) = await store.owed()
        assert (item.draft.kind, item.draft.edits_message_id) == ("notice", "500")

    async def test_numbers_of_messages_mean_nothing_where_a_chat_moves_to(
        self, store: Store
    ) -> None:
        ticket = await previewed(store)
        done = await begin(store, "u2", session_key=session_key("telegram", "7", "42", None, None))
        await store.note_preview(done, CHAT, "499")
        (owed,) = await store.finish_turn(
            done, done.session_id, "done", final=said("x"), outbox=[OutboxDraft(CHAT, "x")]
        )
        await store.plan_parts(owed.id, [PartDraft({"text": "x", "edits": "499"})])
        assert await store.move_chat(CHAT.platform, CHAT.bot_id, CHAT.chat_id, "-100777")
        assert await store.preview_of(ticket) is None
        assert not await store.note_preview(ticket, CHAT, "502")
        assert await store.preview_of(ticket) is None
        (moved,) = await store.owed()
        assert moved.draft.edits_message_id is None
        assert [part.payload for part in moved.parts] == [{"text": "x"}]
        items = await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("x"), outbox=[OutboxDraft(CHAT, "x")]
        )
        assert [i.draft.edits_message_id for i in items] == [None]

    async def test_one_that_is_left_stays_what_it_is(self, store: Store) -> None:
        ticket = await previewed(store)
        assert await store.left_preview_of(ticket) is None
        await store.leave_preview(ticket)
        await store.leave_preview(ticket)
        await store.interrupt_turn(ticket)
        (turn,) = await store.recover_turns()
        assert await store.preview_of(turn.ticket) is None
        assert await store.left_preview_of(turn.ticket) == "500"
        with pytest.raises(StaleTurn):
            await store.leave_preview(ticket)
        await store.resume_turn(turn.ticket)
        (item,) = await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("x"), outbox=[OutboxDraft(REPLY, "x")]
        )
        assert item.draft.edits_message_id is None
        assert await store.left_preview_of(ticket) is None

    async def test_behind_one_that_is_left_there_may_be_another(self, store: Store) -> None:
        ticket = await begin(store, "u1")
        await store.leave_preview(ticket)
        assert await store.left_preview_of(ticket) is None
        await store.note_preview(ticket, REPLY, "500")
        await store.leave_preview(ticket)
        assert await store.note_preview(ticket, REPLY, "501")
        assert await store.left_preview_of(ticket) is None
        (item,) = await store.finish_turn(
            ticket, ticket.session_id, "done", final=said("x"), outbox=[OutboxDraft(REPLY, "x")]
        )
        assert item.draft.edits_message_id == "501"

    async def test_hostile_ids_are_kept_or_cleaned(self, store: Store) -> None:
        ticket = await begin(store, "u1")
        for odd in ("", "x" * 5000, "\ud83d", "\x00"):
            await store.note_preview(ticket, CHAT, odd)
            assert isinstance(await store.preview_of(ticket), str)
