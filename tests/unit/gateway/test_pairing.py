"""Pairing: a stranger gets a code, the operator's word lets them in, and nothing else does."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from agent import pairings
from agent.errors import StoreUnavailable
from agent.mail import Cursor
from gateway.intake.pairing import draw_code
from gateway.intake.pairing_office import PairingOffice
from gateway.platforms.contract import InboundMessage
from tests.fakes.clock import FakeClock
from tests.fakes.door import Door, letting_in
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

PAIRING = letting_in("111", chats=("-100",), pairing=True)


def stranger(text: str = "let me in", user: str = "222", **changes: Any) -> InboundMessage:
    return inbound(text, **{"sender_id": user, "chat_id": user, "sender_name": "Eve", **changes})


@pytest.fixture
def door(clock: FakeClock) -> Door:
    return Door(clock, {"fake": PAIRING})


async def approve(door: Door, code: str) -> dict[str, Any]:
    return await door.office.answer({"action": "approve", "code": code})


async def test_a_stranger_gets_a_code_and_leaves_nothing_else(door: Door) -> None:
    await door.intake.receive(stranger("my secret words"), Cursor("fake", "900", "222", "1"))
    assert await door.traces() == ["pairing", "said"]
    ((address, text),) = door.said
    assert (address.chat_id, address.bot_id) == ("222", "900")
    (code,) = door.codes
    assert f"posthouse pair approve {code}" in text
    assert "60 minutes" in text
    (request,) = (await door.store.pairings()).requests
    assert "secret" not in repr(request)
    assert code not in repr(request)
    assert (request.user_id, request.shown_name) == ("222", "Eve")


async def test_the_operators_word_counts_at_once_and_for_good(door: Door) -> None:
    await door.intake.receive(stranger("before"))
    answer = await approve(door, door.codes[0].lower())
    assert answer["outcome"] == "approved"
    assert answer["person"]["user_id"] == "222"
    await door.intake.receive(stranger("after", message_id="2"))
    assert door.texts == ["after"]
    door.open()
    await door.intake.receive(stranger("after a restart", message_id="3"))
    # like somebody in allow_from: in groups as well
    there = {"chat_kind": "group", "chat_id": "-5"}
    await door.intake.receive(stranger("in a group", message_id="4", **there))
    assert door.texts == ["after a restart", "in a group"]


async def test_who_was_let_in_is_no_admin(door: Door) -> None:
    door.policies["fake"] = replace(
        PAIRING, access=replace(PAIRING.access, admins=frozenset({"111", "*"}))
    )
    await door.intake.receive(stranger())
    await approve(door, door.codes[0])
    await door.intake.receive(stranger("hi", message_id="2"))
    verdict = door.gate.decide(stranger())
    assert (verdict.allowed, verdict.admin) == (True, False)


async def test_a_yes_is_taken_back_at_once(door: Door) -> None:
    await door.intake.receive(stranger())
    await approve(door, door.codes[0])
    revoke = {"action": "revoke", "platform": "fake", "user_id": "222"}
    assert await door.office.answer(revoke) == {"revoked": True}
    await door.intake.receive(stranger("hello?", message_id="2"))
    assert door.texts == []
    assert await door.office.answer(revoke) == {"revoked": True}  # what it has asked just now
    assert await door.office.answer(revoke) == {"revoked": False}


async def test_somebody_elses_id_is_not_let_in(door: Door) -> None:
    await door.intake.receive(stranger())
    await approve(door, door.codes[0])
    for message in (
        stranger("x", "2222"),
        stranger("x", "22"),
        stranger("x", "333", sender_name="222"),
        stranger("x", "333", chat_id="222"),
    ):
        await door.intake.receive(message)
    assert door.texts == []


@pytest.mark.parametrize(
    "message",
    [
        stranger(chat_kind="group", chat_id="-5"),
        stranger(chat_kind="group", chat_id="-5", addressed=True, text="/start"),
        stranger(sender_is_bot=True),
        stranger(user="900"),
        stranger(user=""),
        stranger(user="  "),
        stranger(platform="other"),
    ],
)
async def test_who_gets_no_code(door: Door, message: InboundMessage) -> None:
    await door.intake.receive(message)
    await door.intake.edited(message)
    assert await door.traces() == []


async def test_edits_and_moves_of_strangers_get_no_code(door: Door) -> None:
    await door.intake.edited(stranger())
    await door.intake.moved("fake", "900", "222", "-1222")
    assert await door.traces() == []


async def test_with_pairing_off_strangers_hear_nothing(clock: FakeClock) -> None:
    door = Door(clock, {"fake": letting_in("111")})
    await door.intake.receive(stranger())
    assert await door.traces() == []


async def test_switched_off_it_lets_nobody_in_any_more(door: Door) -> None:
    await door.intake.receive(stranger())
    await approve(door, door.codes[0])
    door.policies["fake"] = replace(PAIRING, pairing=False)
    door.open()
    await door.intake.receive(stranger("hi", message_id="2"))
    assert door.texts == []
    listed = await door.office.answer({"action": "list"})
    assert [p["in_force"] for p in listed["paired"]] == [False]
    door.policies["fake"] = PAIRING
    door.open()
    await door.intake.receive(stranger("hi", message_id="2"))
    assert door.texts == ["hi"]


async def test_asked_again_too_soon_there_is_silence(door: Door, clock: FakeClock) -> None:
    for n in range(50):
        await door.intake.receive(stranger(f"{n}", message_id=str(n)))
    assert len(door.said) == 1
    clock.jump(pairings.ASK_AGAIN_SECONDS)
    await door.intake.receive(stranger("again", message_id="99"))
    assert len(door.said) == 2
    assert (await approve(door, door.codes[0]))["outcome"] == "wrong"
    assert (await approve(door, door.codes[-1]))["outcome"] == "approved"


async def test_a_crowd_gets_three_codes(door: Door) -> None:
    crowd = [stranger(user=str(300 + n), message_id=str(n)) for n in range(100)]
    await asyncio.gather(*map(door.intake.receive, crowd))
    assert len(door.said) == 3
    listed = await door.office.answer({"action": "list"})
    assert len(listed["requests"]) == 3


async def test_a_hostile_name_is_shown_on_one_line(door: Door) -> None:
    name = '\u202eadmin\u0000\n"] 222 \ud83d' + "x" * 10_000
    await door.intake.receive(stranger(sender_name=name))
    (request,) = (await door.store.pairings()).requests
    assert len(request.shown_name) <= 64
    assert request.shown_name.isprintable()
    request.shown_name.encode()


async def test_nothing_is_said_that_is_not_stored(door: Door) -> None:
    async def down(request: object) -> bool:
        raise StoreUnavailable("a test")

    door.store.ask_pairing = down
    with pytest.raises(StoreUnavailable):
        await door.intake.receive(stranger())
    assert door.said == []


async def test_the_first_message_waits_until_it_is_known_who_was_let_in(door: Door) -> None:
    real = door.store.pairings

    async def down() -> None:
        raise StoreUnavailable("a test")

    door.store.pairings = down
    with pytest.raises(StoreUnavailable):
        await door.intake.receive(stranger())
    door.store.pairings = real
    assert await door.traces() == []
    await door.intake.receive(stranger())
    assert await door.traces() == ["pairing", "said"]


async def test_a_yes_whose_outcome_nobody_knows_counts_if_it_was_stored(door: Door) -> None:
    await door.intake.receive(stranger())
    real = door.store.approve_pairing

    async def unknown(code: str) -> None:
        await real(code)
        raise StoreUnavailable("outcome unknown")

    door.store.approve_pairing = unknown
    assert "outcome unknown" in (await approve(door, door.codes[0]))["error"]
    await door.intake.receive(stranger("hi", message_id="2"))
    assert door.texts == ["hi"]


async def test_a_reading_that_a_yes_has_overtaken_does_not_count(door: Door) -> None:
    await door.intake.receive(stranger())
    door.open()
    real, begun, gate = door.store.pairings, asyncio.Event(), asyncio.Event()

    async def slow() -> Any:
        book = await real()
        begun.set()
        await gate.wait()
        return book

    door.store.pairings = slow
    waiting = asyncio.ensure_future(door.intake.receive(stranger("hi", message_id="2")))
    await begun.wait()
    door.store.pairings = real
    assert (await approve(door, door.codes[0]))["outcome"] == "approved"
    gate.set()
    await waiting
    assert door.texts == ["hi"]


@pytest.mark.parametrize(
    "request_",
    [{}, {"action": "approve"}, {"action": "approve", "code": 5}, {"action": "revoke"}, {"x": []}],
)
async def test_requests_that_make_no_sense_are_told(door: Door, request_: dict[str, Any]) -> None:
    assert "error" in await door.office.answer(request_)
    assert await door.traces() == []


async def test_wrong_codes_lock_the_office(door: Door) -> None:
    await door.intake.receive(stranger())
    for _ in range(4):
        assert (await approve(door, "WRONGONE"))["locked_until"] is None
    fifth = await approve(door, "WRONGONE")
    assert fifth["outcome"] == "wrong"
    assert fifth["locked_until"] == door.clock.now() + pairings.LOCK_SECONDS
    assert (await approve(door, door.codes[0]))["outcome"] == "locked"
    listed = await door.office.answer({"action": "list"})
    assert listed["locked_until"] == fifth["locked_until"]


def test_codes_are_of_letters_that_nobody_mistakes() -> None:
    assert len(set(pairings.CODE_LETTERS)) == 32
    assert not set(pairings.CODE_LETTERS) & set("0O1I")
    drawn = [draw_code() for _ in range(500)]
    assert len(set(drawn)) == 500
    letters = "".join(drawn)
    assert re.fullmatch(f"[{pairings.CODE_LETTERS}]{{4000}}", letters)
    assert set(letters) == set(pairings.CODE_LETTERS)
    for code in drawn:
        assert pairings.typed(f" {code[:4]}-{code[4:]} ".lower()) == code


@pytest.mark.parametrize("text", ["waiting", "/new", "/compress"])
async def test_what_waits_of_somebody_who_is_shut_out_is_not_answered(
    clock: FakeClock, text: str
) -> None:
    rig = Rig(clock, policy=PAIRING)
    await rig.intake.receive(stranger())
    office = PairingOffice(rig.store, clock, pairing_on=lambda: {"fake"}, changed=rig.gate.changed)
    code = "CODEZZZ1"
    assert (await office.answer({"action": "approve", "code": code}))["outcome"] == "approved"
    rig.hold("long", asyncio.Event())
    await rig.intake.receive(stranger("long", message_id="2"))
    await rig.settle()
    await rig.intake.receive(stranger(text, message_id="3"))
    await rig.settle()
    await office.answer({"action": "revoke", "platform": "fake", "user_id": "222"})
    before = len(rig.platform.texts())
    rig.lanes.stop('["fake","900","222",null,"222"]')
    await rig.settle()
    await clock.advance(30)
    assert await rig.store.open_inbox() == []
    assert [i.state for i in await rig.store.inbox_items([1, 2])] == ["answered", "answered"]
    assert rig.platform.texts()[before:] == []
    assert not any("waiting" in str(seen) for seen in rig.loop.seen)
