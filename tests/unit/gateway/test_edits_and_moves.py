"""What changes behind a message's back: edits, and chats that get another id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from gateway.intake.intake import IntakeLimits
from gateway.platforms.contract import Attachment, InboundMessage
from tests.fakes.clock import FakeClock
from tests.fakes.door import Door, letting_in
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

GROUP = {"chat_kind": "group", "chat_id": "-100"}


@pytest.fixture
def door(clock: FakeClock) -> Door:
    return Door(clock, {"fake": letting_in("111", chats=("-100",))})


async def texts(door: Door) -> list[str]:
    return [row.record.text for row in await door.rows()]


# --- edits --------------------------------------------------------------------------------------


async def test_a_waiting_message_says_the_new_text(door: Door) -> None:
    await door.intake.receive(inbound("buy two"))
    await door.intake.edited(inbound("buy three"))
    await door.intake.edited(inbound("buy three"))
    assert await texts(door) == ["buy three"]
    assert len(door.dispatcher.items) == 1


async def test_the_turn_asks_what_the_message_says_by_then(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("long", gate)
    await rig.intake.receive(inbound("long", message_id="1"))
    await rig.settle()
    await rig.intake.receive(inbound("buy two", message_id="2"))
    await rig.settle()
    await rig.intake.edited(inbound("buy three", message_id="2"))
    await rig.intake.edited(inbound("too late", message_id="1"))
    gate.set()
    await rig.settle()
    await clock.advance(5)
    assert rig.platform.texts()[-1] == "re: buy three"
    assert [m["content"] for m in rig.loop.seen[-1]] == ["long", "re: long", "buy three"]


async def test_an_answered_message_stays_as_it_was_read(clock: FakeClock) -> None:
    rig = Rig(clock)
    await rig.intake.receive(inbound("first"))
    await rig.settle()
    await clock.advance(5)
    before = rig.platform.texts()
    await rig.intake.edited(inbound("second"))
    await rig.settle()
    await clock.advance(5)
    assert rig.platform.texts() == before
    assert [i.record.text for i in await rig.store.inbox_items([1, 2, 3])] == ["first"]


@pytest.mark.parametrize("text", ["never said before", "/new", "", "   ", "x" * 200_000])
async def test_an_edit_never_becomes_a_message(door: Door, text: str) -> None:
    await door.intake.edited(inbound(text, message_id="77"))
    assert await door.traces() == []


@pytest.mark.parametrize("text", ["/new", "/stop now", "/STOP", "  /reset  ", "/unknown"])
async def test_a_command_that_was_edited_in_is_not_run(door: Door, text: str) -> None:
    await door.intake.receive(inbound("hello"))
    await door.intake.edited(inbound(text))
    assert await texts(door) == ["hello"]
    assert len(door.dispatcher.items) == 1


@pytest.mark.parametrize("text", ["/new", "hello", "/stop"])
async def test_a_waiting_command_stays_what_it_was(door: Door, text: str) -> None:
    await door.intake.receive(inbound("/compress the trip"))
    await door.intake.edited(inbound(text))
    assert await texts(door) == ["/compress the trip"]
    (row,) = await door.rows()
    assert row.record.kind == "command"


@pytest.mark.parametrize("text", ["", " \u200b", "x" * 51])
async def test_an_edit_that_would_not_be_taken_changes_nothing(clock: FakeClock, text: str) -> None:
    door = Door(clock, {"fake": letting_in("111")}, limits=IntakeLimits(max_message_chars=50))
    await door.intake.receive(inbound("hello"))
    await door.intake.edited(inbound(text))
    assert await texts(door) == ["hello"]
    assert door.said == []


async def test_strangers_edit_nothing(door: Door) -> None:
    await door.intake.receive(inbound("hello", chat_kind="direct"))
    for changes in (
        {"sender_id": "222"},
        {"sender_id": ""},
        {"sender_is_bot": True},
        {"platform": "other"},
    ):
        await door.intake.edited(inbound("overwritten", **changes))
    assert await texts(door) == ["hello"]


async def test_a_lost_mention_does_not_lose_the_edit(door: Door) -> None:
    await door.intake.receive(inbound("buy two", **GROUP))
    await door.intake.edited(inbound("buy three", addressed=False, **GROUP))
    await door.intake.edited(inbound("for me?", addressed=True, message_id="8", **GROUP))
    assert await texts(door) == ["buy three"]


async def test_files_follow_an_edit(door: Door) -> None:
    one, two = Attachment("image", "ref 1"), Attachment("file", "ref 2", "\ud83d\0.pdf")
    await door.intake.receive(inbound("see", attachments=(one,)))
    await door.intake.edited(inbound("", attachments=(two,)))
    (row,) = await door.rows()
    assert row.record.text == ""
    assert [a["ref"] for a in row.record.payload["attachments"]] == ["ref 2"]
    assert "\0" not in row.record.payload["attachments"][0]["file_name"]


async def test_an_edit_that_is_not_stored_comes_again(door: Door) -> None:
    await door.intake.receive(inbound("one"))
    real = door.store.revise

    async def down(record: Any) -> bool:
        raise StoreUnavailable("a test")

    door.store.revise = down
    with pytest.raises(StoreUnavailable):
        await door.intake.edited(inbound("two"))
    door.store.revise = real
    await door.intake.edited(inbound("two"))
    assert await texts(door) == ["two"]


# --- files without words ------------------------------------------------------------------------


async def test_a_file_without_words_is_a_message(door: Door) -> None:
    picture = Attachment("image", "ref")
    await door.intake.receive(inbound("", attachments=(picture,)))
    await door.intake.receive(inbound("", message_id="2", attachments=(picture,), **GROUP))
    assert len(door.dispatcher.items) == 2
    assert door.said == []


async def test_a_picture_among_friends_is_no_question(door: Door) -> None:
    picture = Attachment("image", "ref")
    said = inbound("", attachments=(picture,), addressed=False, **GROUP)
    await door.intake.receive(said)
    assert await door.traces() == []


# --- moved chats --------------------------------------------------------------------------------


def there(chat_id: str, text: str = "hi", **changes: Any) -> InboundMessage:
    return inbound(text, **{"sender_id": "222", **GROUP, "chat_id": chat_id, **changes})


async def test_a_listed_chat_stays_listed_under_its_new_id(door: Door) -> None:
    await door.intake.moved("fake", "900", "-100", "-1000100")
    await door.intake.receive(there("-1000100"))
    assert door.texts == ["hi"]
    door.open()
    await door.intake.receive(there("-1000100", "after a restart", message_id="2"))
    await door.intake.receive(there("7", "in a thread", parent_chat_id="-1000100", message_id="3"))
    assert door.texts == ["after a restart", "in a thread"]
    # and over a second move
    await door.intake.moved("fake", "900", "-1000100", "-1000200")
    await door.intake.receive(there("-1000200", "again", message_id="4"))
    assert door.texts[-1] == "again"


async def test_another_chat_is_not_let_in_by_a_move(door: Door) -> None:
    await door.intake.moved("fake", "900", "-5", "-1000005")
    await door.intake.moved("fake", "900", "-1000005", "-100000")
    await door.intake.moved("other", "900", "-100", "-7")
    for chat in ("-5", "-1000005", "-100000", "-7"):
        await door.intake.receive(there(chat))
    assert await door.traces() == []


async def test_a_move_in_one_bots_world_is_none_in_anothers(door: Door) -> None:
    await door.intake.moved("fake", "900", "-100", "-1000100")
    await door.intake.receive(there("-1000100", bot_id="42"))
    assert door.texts == []


async def test_what_waits_in_a_chat_of_friends_moves_with_it(clock: FakeClock) -> None:
    """Nobody has listed the chat, but somebody who is listed talks there."""
    door = Door(clock, {"fake": letting_in("111")})
    await door.intake.receive(inbound("hello", chat_kind="group", chat_id="-5"))
    await door.intake.moved("fake", "900", "-5", "-1000005")
    (row,) = await door.rows()
    assert row.record.address.chat_id == "-1000005"
    assert '"-1000005"' in row.record.session_key
    # said again, from the other side
    await door.intake.moved("fake", "900", "-5", "-1000005")
    assert [r.record.address.chat_id for r in await door.rows()] == ["-1000005"]


async def test_a_waiting_message_is_still_allowed_after_a_move_and_a_restart(
    clock: FakeClock,
) -> None:
    rig = Rig(clock, policy=letting_in(chats=("-100",), require_mention=False))
    rig.hold("one", asyncio.Event())
    await rig.intake.receive(there("-100", "one"))
    await rig.intake.receive(there("-100", "two", message_id="2"))
    await rig.settle()
    await rig.intake.moved("fake", "900", "-100", "-1000100")
    rig.kill()
    del rig.loop.scripts["one"]
    rig.boot()
    report = await rig.recovery.run()
    assert report.refused == 0
    await rig.settle()
    await clock.advance(5)
    assert "re: two" in rig.platform.texts()
    assert await rig.store.open_inbox() == []
    conversation = await rig.store.conversation_for_key('["fake","900","-1000100",null,"222"]')
    assert conversation is not None


async def test_lanes_hear_of_moves_as_the_store_knows_them(door: Door) -> None:
    """To the end of several moves, in no circle."""
    for old, new in (("-100", "-1"), ("-1", "-2"), ("-2", "-100"), ("-100", "-9")):
        door.dispatcher.moves.clear()
        await door.intake.moved("fake", "900", old, new)
        told = dict(door.dispatcher.moves)
        assert all(heir not in told for heir in told.values())
    assert told == {"-100": "-2", "-1": "-2"}


async def test_a_move_that_is_not_stored_is_said_again(door: Door) -> None:
    real = door.store.move_chat

    async def down(*_: object) -> bool:
        await real(*_)
        raise StoreUnavailable("outcome unknown")

    door.store.move_chat = down
    with pytest.raises(StoreUnavailable):
        await door.intake.moved("fake", "900", "-100", "-1000100")
    door.store.move_chat = real
    await door.intake.moved("fake", "900", "-100", "-1000100")
    await door.intake.receive(there("-1000100"))
    assert door.texts == ["hi"]
