"""Owns the contract of chats that get another id, over every store."""

from __future__ import annotations

import pytest

from agent.mail import Address, Cursor, OutboxDraft, PartDraft
from agent.sessions import Session, TurnOpening, session_key
from agent.store_ports import Store
from tests.contract.store_suite import OWNER, PREFIX, begin, inbound, said, texts, user

OLD, NEW = "-5", "-100777"


def key(chat: str, thread: str | None = None, person: str | None = None, bot: str = "7") -> str:
    return session_key("telegram", bot, chat, thread, person)


def address(chat: str, thread: str | None = None, reply_to: str | None = None) -> Address:
    return Address("telegram", "7", chat, thread, reply_to)


async def move(store: Store, old: str = OLD, new: str = NEW) -> bool:
    return await store.move_chat("telegram", "7", old, new)


async def leads(store: Store, chat_key: str) -> str | None:
    found = await store.conversation_for_key(chat_key)
    return None if found is None else found.id


async def started(store: Store, chat_key: str) -> Session:
    return await store.start_conversation(chat_key, OWNER, PREFIX)


class MovingContract:
    async def test_every_key_of_the_chat_follows(self, store: Store) -> None:
        shared = await started(store, key(OLD))
        ann = await started(store, key(OLD, person="ann"))
        thread = await started(store, key(OLD, thread="3", person="bob"))
        others = [
            await started(store, other)
            for other in (key(OLD + "0"), key(NEW + "0"), key(OLD, bot="8"), key(OLD[:-1]))
        ]
        assert await move(store)
        assert await leads(store, key(NEW)) == shared.conversation_id
        assert await leads(store, key(NEW, person="ann")) == ann.conversation_id
        assert await leads(store, key(NEW, person="bob")) == thread.conversation_id
        assert [
            await leads(store, other)
            for other in (key(OLD + "0"), key(NEW + "0"), key(OLD, bot="8"), key(OLD[:-1]))
        ] == [other.conversation_id for other in others]
        found = await store.conversation(ann.conversation_id)
        assert found is not None
        assert found.session_key == key(NEW, person="ann")
        assert (await begin(store, session_key=key(NEW))).session_id == shared.id

    async def test_a_chats_own_key_comes_before_those_of_its_threads(self, store: Store) -> None:
        threads = [await started(store, key(OLD, thread=n)) for n in "12"]
        whole = await started(store, key(OLD))
        await move(store)
        assert await leads(store, key(NEW)) == whole.conversation_id
        listed = {info.id: info.routed for info in await store.conversations_at(key(NEW))}
        assert listed == {
            whole.conversation_id: True, **{s.conversation_id: False for s in threads}
        }  # fmt: skip

    async def test_the_old_conversation_goes_on_and_the_new_one_is_kept(self, store: Store) -> None:
        old = await started(store, key(OLD))
        early = await begin(store, "before anybody knew", session_key=key(NEW))
        assert await move(store)
        assert await leads(store, key(NEW)) == old.conversation_id
        listed = {info.id: info.routed for info in await store.conversations_at(key(NEW))}
        assert listed == {old.conversation_id: True, early.conversation_id: False}
        # Its turn goes on where it is, and somebody may come back to it.
        await store.finish_turn(early, early.session_id, "done", final=said("hello"))
        assert (await store.resume(key(NEW), early.conversation_id)).id == early.session_id
        assert await leads(store, key(NEW)) == early.conversation_id

    async def test_what_waits_and_what_is_owed_follows(self, store: Store) -> None:
        place = address(OLD, "3", "9")
        first, second, other = [
            (await store.accept(record, cursor)).inbox_id
            for record, cursor in (
                (inbound(1, address=place, session_key=key(OLD)), None),
                (inbound(2, address=place, session_key=key(OLD, person="ann")), None),
                (inbound(3), Cursor("telegram", "7", OLD, "40")),
            )
        ]
        ticket = await begin(store, "x", (first,), session_key=key(OLD))
        sent = await store.owe(OutboxDraft(place, "sent"))
        part, late = await store.plan_parts(sent.id, [PartDraft({"n": 1}), PartDraft({"n": 2})])
        await store.mark_part(part.id, "sent", platform_message_id="77")
        done = await store.owe(OutboxDraft(place, "done"))
        await store.fail_outbox(done.id, "gone")
        assert await move(store)
        items = {item.id: item.record for item in await store.inbox_items((first, second, other))}
        for row, person in ((first, None), (second, "ann")):
            assert items[row].address == address(NEW)
            assert items[row].session_key == key(NEW, person=person)
            assert items[row].message_id == ""
        assert items[other] == inbound(3)
        (item,) = await store.owed()
        assert item.draft.address == address(NEW)
        assert [p.platform_message_id for p in item.parts] == [None, None]
        assert [p.state for p in item.parts] == ["sent", "planned"]
        assert await store.cursors("telegram", "7") == {}
        (cut_off,) = await store.recover_turns()
        assert (cut_off.session_key, cut_off.ticket) == (key(NEW), ticket)
        assert late.id == item.parts[1].id

    async def test_numbers_of_messages_begin_anew(self, store: Store) -> None:
        """The new chat's first message is none that the old chat ever had."""
        old = await store.accept(inbound(1, address=address(OLD), session_key=key(OLD)))
        await move(store)
        fresh = inbound(1, address=address(NEW), session_key=key(NEW), update_id="9000")
        new = await store.accept(fresh)
        assert new.fresh
        assert [item.id for item in await store.open_inbox()] == [old.inbox_id, new.inbox_id]
        # Given again by its update, the old one is known.
        again = await store.accept(inbound(1, address=address(OLD), session_key=key(OLD)))
        assert (again.inbox_id, again.fresh) == (old.inbox_id, False)

    async def test_whatever_names_the_old_id_later_means_the_new_one(self, store: Store) -> None:
        session = await started(store, key(OLD))
        await move(store)
        assert await leads(store, key(OLD)) == session.conversation_id
        assert len(await store.conversations_at(key(OLD))) == 1
        late = inbound(5, address=address(OLD, "3", "5"), session_key=key(OLD, person="ann"))
        receipt = await store.accept(late, Cursor("telegram", "7", OLD, "6"))
        (stored,) = await store.inbox_items([receipt.inbox_id])
        assert receipt.record == stored.record
        (item,) = await store.open_inbox()
        assert item.record.address == address(NEW)
        assert (item.record.session_key, item.record.message_id) == (key(NEW, person="ann"), "")
        assert await store.cursors("telegram", "7") == {}
        ticket = await begin(store, "x", (item.id,), session_key=key(OLD, person="ann"))
        place = OutboxDraft(address(OLD, "3", "5"), "answer")
        (owed,) = await store.finish_turn(ticket, ticket.session_id, "done", outbox=(place,))
        assert owed.draft.address == address(NEW)
        assert await leads(store, key(NEW, person="ann")) == ticket.conversation_id
        again = await store.start_conversation(key(OLD), OWNER, PREFIX)
        assert await leads(store, key(NEW)) == again.conversation_id
        await store.resume(key(OLD), session.conversation_id)
        assert await leads(store, key(NEW)) == session.conversation_id

    async def test_a_fork_and_a_retry_at_the_old_id(self, store: Store) -> None:
        ticket = await begin(store, "u1", session_key=key(OLD))
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("a1"))
        await move(store)
        fork = await store.branch(ticket.session_id, key(OLD), OWNER)
        assert await leads(store, key(NEW)) == fork.conversation_id
        again = await store.retry(TurnOpening(key(OLD), OWNER, (), user("-"), PREFIX))
        assert again is not None
        assert texts(await store.load(fork.id, ticket=again)) == ["u1"]
        (cut_off,) = await store.recover_turns()
        assert cut_off.session_key == key(NEW)

    async def test_said_again_it_is_known(self, store: Store) -> None:
        await started(store, key(OLD))
        assert await move(store)
        new = await started(store, key(NEW))
        assert not await move(store)
        assert await leads(store, key(NEW)) == new.conversation_id
        assert await store.moved_chats("telegram", "7") == {OLD: NEW}
        assert await store.moved_chats("telegram", "8") == {}
        assert await store.moved_chats("discord", "7") == {}

    async def test_over_several_moves(self, store: Store) -> None:
        session = await started(store, key("a"))
        assert await move(store, "a", "b")
        assert await move(store, "b", "c")
        assert await store.moved_chats("telegram", "7") == {"a": "c", "b": "c"}
        assert not await move(store, "a", "b")
        assert not await move(store, "a", "c")
        for chat in "abc":
            assert await leads(store, key(chat)) == session.conversation_id

    async def test_moves_that_are_told_in_the_wrong_order(self, store: Store) -> None:
        session = await started(store, key("a"))
        assert await move(store, "b", "c")
        assert await move(store, "a", "b")
        assert await store.moved_chats("telegram", "7") == {"a": "c", "b": "c"}
        assert await leads(store, key("c")) == session.conversation_id

    @pytest.mark.parametrize(
        "lie", [[("a", "a")], [("a", "b"), ("b", "a")], [("a", "b"), ("b", "c"), ("c", "a")]]
    )
    async def test_no_circle(self, store: Store, lie: list[tuple[str, str]]) -> None:
        session = await started(store, key("a"))
        told = [await move(store, *step) for step in (*lie, *lie)]
        assert told == [True] * (len(lie) - 1) + [False] * (len(lie) + 1)
        for old, new in lie:
            for chat in (old, new):
                assert await leads(store, key(chat)) == session.conversation_id
        moved = await store.moved_chats("telegram", "7")
        assert all(heir not in moved for heir in moved.values())

    async def test_what_was_said_first_stays(self, store: Store) -> None:
        await started(store, key("a"))
        other = await started(store, key("c"))
        assert await move(store, "a", "b")
        assert not await move(store, "a", "c")
        assert await store.moved_chats("telegram", "7") == {"a": "b"}
        assert await leads(store, key("c")) == other.conversation_id

    async def test_two_chats_become_one(self, store: Store) -> None:
        first, second = await started(store, key("a")), await started(store, key("b"))
        assert await move(store, "a", "c")
        assert await move(store, "b", "c")
        assert await leads(store, key("c")) == second.conversation_id
        assert len(await store.conversations_at(key("c"))) == 2
        assert (await store.resume(key("c"), first.conversation_id)).id == first.id

    @pytest.mark.parametrize("chat", ['"', "\\", "é🎉", "%", "a,b", "\U0010ffff", ""])
    async def test_any_id(self, store: Store, chat: str) -> None:
        session = await started(store, key(chat))
        close = await started(store, key(chat + "!"))
        assert await move(store, chat, NEW)
        assert await leads(store, key(NEW)) == session.conversation_id
        assert await leads(store, key(chat + "!")) == close.conversation_id

    async def test_whether_anything_leads_to_a_chat(self, store: Store) -> None:
        async def knows(chat: str) -> bool:
            return await store.knows_chat("telegram", "7", chat)

        assert not await knows(OLD)
        await started(store, key(OLD, thread="2", person="ann"))
        assert await knows(OLD)
        assert not await knows(OLD + "0")
        assert not await store.knows_chat("telegram", "8", OLD)
        await move(store)
        assert await knows(OLD)
        assert await knows(NEW)
        receipt = await store.accept(inbound(1, address=address("x"), session_key=key("x")))
        assert await knows("x")
        await store.answer_inbox((receipt.inbox_id,), (OutboxDraft(address("y"), "hm"),))
        assert not await knows("x")
        assert await knows("y")
