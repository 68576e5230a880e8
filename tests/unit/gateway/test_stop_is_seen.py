"""Whoever types /stop sees within a second that it took effect, whatever hangs in that chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.messages import Draft
from gateway import texts
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said


async def endless(_loop: Any, _ticket: Any, _loaded: Any, observer: Any) -> Draft:
    observer.on_text("A beginning that is long enough to be shown to people. And more. ")
    await asyncio.Event().wait()
    return said("never")


async def stubborn(*_: Any) -> Draft:
    for _ in range(3):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    return said("never")


async def pass_time(rig: Rig, clock: FakeClock, seconds: float) -> None:
    while seconds > 0:
        await rig.settle()
        step = min(seconds, max(clock.next_wake_seconds or seconds, 0.01))
        await clock.advance(step)
        seconds -= step
    await rig.settle()


@pytest.mark.parametrize("hangs", ["send", "preview", "work"])
async def test_a_stop_is_seen_within_a_second(clock: FakeClock, hangs: str) -> None:
    rig = Rig(clock)
    never = asyncio.Event()
    if hangs == "send":
        rig.platform.gate = never
        await rig.intake.receive(inbound("first", message_id="1"))
        await pass_time(rig, clock, 2)
        rig.platform.gate = None
    if hangs == "preview":
        rig.platform.previews = "message"

        async def hang() -> None:
            await never.wait()

        rig.platform.preview_delay = hang
    rig.loop.scripts["second"] = stubborn if hangs == "work" else endless
    await rig.intake.receive(inbound("second", message_id="2"))
    await pass_time(rig, clock, 3)
    assert rig.platform.texts() == []
    await rig.intake.receive(inbound("/stop", message_id="3"))
    await pass_time(rig, clock, 0.9)
    assert texts.STOPPED in rig.platform.texts()
