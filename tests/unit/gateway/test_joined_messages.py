"""Pastes and albums: one turn for a message in pieces, at once for everybody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway import texts
from gateway.intake.intake import IntakeLimits
from gateway.lanes.dispatch import GATHER_SECONDS, LONGEST_GATHER_SECONDS
from gateway.platforms.contract import Attachment
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
LIMIT = 40
FULL = "x" * LIMIT
PICTURE = Attachment("image", "ref")


async def say(rig: Rig, text: str, number: int, **changes: Any) -> None:
    said = {"text_limit": LIMIT, "sent_at": rig.clock.now(), **changes}
    await rig.intake.receive(inbound(text, message_id=str(number), **said))
    await rig.settle()


async def album(rig: Rig, number: int, text: str = "", **changes: Any) -> None:
    await say(rig, text, number, **{"album_id": "g1", "attachments": (PICTURE,), **changes})


def asked(rig: Rig) -> list[Any]:
    return [seen[-1]["content"] for seen in rig.loop.seen]


async def restart(rig: Rig) -> None:
    rig.kill()
    await rig.settle()
    rig.boot()
    await rig.recovery.run()
    await rig.settle()


async def test_a_long_paste_is_one_turn(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, FULL, 1)
    await clock.advance(0.2)
    assert rig.loop.seen == []
    await say(rig, "yz", 2)  # too short to go on: it is the end
    assert asked(rig) == [f"{FULL}yz"]
    assert rig.platform.texts() == [f"re: {FULL}yz"]
    assert rig.platform.chat[0].address.reply_to_message_id == "2"
    assert [item.state for item in await rig.store.inbox_items([1, 2])] == ["answered"] * 2
    assert len(rig.lanes) == 0


async def test_everybody_else_starts_at_once(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "short", 1)
    await say(rig, FULL, 2, text_limit=None)
    assert asked(rig) == ["short", FULL]


async def test_what_stays_alone_waits_a_moment(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, FULL, 1)
    await clock.advance(GATHER_SECONDS - 0.01)
    assert rig.loop.seen == []
    await clock.advance(0.02)
    assert asked(rig) == [FULL]


async def test_one_that_never_ends_does_not_wait_for_ever(clock: FakeClock) -> None:
    rig = Rig(clock)
    pieces = 0
    while not rig.loop.seen:
        pieces += 1
        await say(rig, FULL, pieces)
        await clock.advance(0.5)
    assert 0.5 * pieces == pytest.approx(LONGEST_GATHER_SECONDS, abs=0.6)
    await clock.advance(3)
    assert sum(len(text) for text in asked(rig)) == LIMIT * pieces


async def test_a_command_behind_a_paste_is_a_command(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, FULL, 1)
    await say(rig, "/title road", 2)
    await say(rig, "tail", 3)
    await clock.advance(2)
    assert asked(rig) == [FULL, "tail"]
    assert len(rig.platform.texts()) == 3


async def test_an_album_with_its_caption_on_the_second(clock: FakeClock) -> None:
    rig = Rig(clock)
    for n, text in enumerate(["", "look", ""], 1):
        await album(rig, n, text)
        await clock.advance(0.1)
    await album(rig, 1, "", chat_id="other")
    await clock.advance(1.0)
    assert asked(rig) == ["look", ""]
    assert (await rig.store.inbox_items([1]))[0].state == "answered"
    await clock.advance(5)
    await album(rig, 4, "late")
    await clock.advance(2)
    assert asked(rig) == ["look", "", "late"]


async def test_pieces_join_while_they_wait_behind_a_turn(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("first", gate)
    await say(rig, "first", 1)
    await say(rig, FULL, 2)
    await clock.advance(2)
    await say(rig, "end", 3)
    await album(rig, 4)
    await clock.advance(20)
    await album(rig, 5, "late")
    assert rig.lanes.waiting(KEY) == 2
    assert rig.dispatch.waiting(KEY) == 4
    gate.set()
    await clock.advance(2)
    assert asked(rig) == ["first", f"{FULL}end", "late"]


@pytest.mark.parametrize("orderly", [True, False])
async def test_an_end_during_the_wait_loses_nothing(clock: FakeClock, orderly: bool) -> None:
    rig = Rig(clock)
    await say(rig, FULL, 1)
    await say(rig, FULL, 2)
    if orderly:
        report = await rig.lanes.drain(20)
        assert (report.finished, report.interrupted) == (True, 0)
    assert [item.state for item in await rig.store.open_inbox()] == ["new", "new"]
    await restart(rig)
    await say(rig, "end", 3)  # what the platform had kept meanwhile
    assert asked(rig) == [f"{FULL}{FULL}end"]
    assert rig.platform.texts() == [f"re: {FULL}{FULL}end"[: len(rig.platform.texts()[0])]]
    assert await rig.store.open_inbox() == []


async def test_rows_of_before_the_restart_join_by_the_same_rule(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("first", asyncio.Event())
    await say(rig, "first", 1)
    await say(rig, FULL, 2)
    await say(rig, "end", 3)
    await say(rig, FULL, 4, sent_at=clock.now() + 1)
    await say(rig, "other", 5, sent_at=clock.now() + 60)
    rig.loop.scripts.clear()
    await restart(rig)
    await clock.advance(2)
    assert asked(rig)[-3:] == [f"{FULL}end", FULL, "other"]


async def test_killed_when_the_group_had_begun(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold(f"{FULL}end", asyncio.Event())
    await say(rig, FULL, 1)
    await say(rig, "end", 2)
    rig.loop.scripts.clear()
    await restart(rig)
    assert rig.platform.texts() == [f"re: {FULL}end"]
    assert [item.state for item in await rig.store.inbox_items([1, 2])] == ["answered"] * 2


async def test_the_limit_holds_for_all_of_it(clock: FakeClock) -> None:
    rig = Rig(clock, limits=IntakeLimits(max_message_chars=100))
    for n in range(3):
        await say(rig, FULL, n)
    await clock.advance(2)
    assert rig.loop.seen == []
    assert rig.platform.texts() == [f"{texts.too_long(120, 100)} {texts.JOINED_TOO_LONG}"]
    assert await rig.store.open_inbox() == []
    await say(rig, "shorter", 9)
    assert asked(rig) == ["shorter"]


async def test_a_stop_while_it_gathers(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, FULL, 1)
    await say(rig, "/stop", 2)
    await say(rig, "again", 3)
    assert rig.platform.texts() == [texts.STOPPED, "re: again"]
    assert [text for role, text in await rig.rows(KEY) if role == "user"] == [FULL, "again"]
    assert "/stop" not in str(rig.loop.seen)


async def test_the_queue_is_bounded_by_rows(clock: FakeClock) -> None:
    rig = Rig(clock, limits=IntakeLimits(queue_limit=4))
    for n in range(12):
        await album(rig, n, f"p{n}")
    await clock.advance(2)
    assert asked(rig) == ["\n\n".join(f"p{n}" for n in range(5))]
    assert rig.platform.texts()[0] == texts.queue_full(4)


async def test_an_edit_of_what_waits_is_what_is_asked(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("first", gate)
    await say(rig, "first", 1)
    await say(rig, "wrong", 2)
    await rig.intake.edited(inbound("right", message_id="2", sent_at=clock.now()))
    gate.set()
    await rig.settle()
    assert asked(rig) == ["first", "right"]
