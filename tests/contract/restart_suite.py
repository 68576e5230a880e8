"""Owns the contract of restarts that chats wait for; a subclass gives the ``store`` fixture."""

from __future__ import annotations

from dataclasses import replace

from agent.mail import Address, OutboxDraft
from agent.store_ports import Store
from tests.contract.store_suite import CHAT, inbound

RESTARTING = OutboxDraft(CHAT, "restarting", "command")


class RestartContract:
    """Who asked for a restart hears of it once."""

    async def test_who_asked_hears_of_it_once(self, store: Store) -> None:
        receipt = await store.accept(inbound(1, kind="command"))
        (owed,) = await store.await_restart(receipt.inbox_id, (RESTARTING,))
        assert owed.draft == RESTARTING
        assert await store.open_inbox() == []
        (told,) = await store.say_restarted("back")
        assert told.draft == OutboxDraft(CHAT, "back", "notice")
        assert [item.id for item in await store.owed()] == [owed.id, told.id]
        assert await store.say_restarted("back again") == ()

    async def test_a_row_asks_once(self, store: Store) -> None:
        receipt = await store.accept(inbound(1, kind="command"))
        await store.await_restart(receipt.inbox_id, (RESTARTING,))
        assert await store.await_restart(receipt.inbox_id, (RESTARTING,)) == ()
        again = await store.accept(inbound(1, kind="command", update_id="9999"))
        assert not again.fresh
        await store.say_restarted("back")
        assert await store.await_restart(again.inbox_id, (RESTARTING,)) == ()
        assert await store.say_restarted("back") == ()

    async def test_a_row_that_was_answered_otherwise_asks_nothing(self, store: Store) -> None:
        receipt = await store.accept(inbound(1, kind="command"))
        await store.answer_inbox((receipt.inbox_id,))
        assert await store.await_restart(receipt.inbox_id, (RESTARTING,)) == ()
        assert await store.say_restarted("back") == ()

    async def test_each_chat_hears_it_once_however_often_it_asked(self, store: Store) -> None:
        places = [CHAT, CHAT, replace(CHAT, thread_id="5"), Address("discord", "8", "111")]
        for n, place in enumerate(places):
            receipt = await store.accept(inbound(n, kind="command", address=place))
            await store.await_restart(receipt.inbox_id)
        told = [item.draft.address for item in await store.say_restarted("back")]
        assert told == [Address("discord", "8", "111"), CHAT, replace(CHAT, thread_id="5")]

    async def test_where_it_was_a_reply_the_news_is_none(self, store: Store) -> None:
        place = replace(CHAT, reply_to_message_id="77")
        receipt = await store.accept(inbound(1, kind="command", address=place))
        await store.await_restart(receipt.inbox_id)
        (told,) = await store.say_restarted("back")
        assert told.draft.address == CHAT
