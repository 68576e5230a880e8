"""Conversations that start anew by themselves: after a silence, once a day, and never otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.errors import StoreUnavailable
from agent.turn_companions import Boundary
from gateway import texts
from gateway.turns.resetting import ResetRules, SessionResets
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.job_rig import BERLIN, JobRig, at

KEY = '["fake","900","111",null,"111"]'
IDLE = ResetRules("idle", 3600.0, 4, BERLIN)
DAILY = ResetRules("daily", 3600.0, 4, BERLIN)


class ResetRig(JobRig):
    rules = IDLE

    def boot(self) -> None:
        super().boot()
        self.crossings: list[Boundary] = []
        self.resets = SessionResets(
            self.store,
            self.clock,
            self.compactors,
            rules=lambda: self.rules,
            prefix_for=self.prefix_for,
            crossed=self._crossed,
        )
        self.turns._resets = self.resets
        self.dispatch._commands._host = replace(
            self.dispatch._commands._host, crossed=self.resets.crossed
        )

    async def _crossed(self, boundary: Boundary) -> None:
        self.crossings.append(boundary)

    async def say(self, text: str) -> list[str]:
        before = len(self.platform.texts())
        self._sent = getattr(self, "_sent", 0) + 1
        await self.intake.receive(
            inbound(text, message_id=str(self._sent), sent_at=self.clock.now())
        )
        await self.settle()
        return self.platform.texts()[before:]

    async def conversation(self) -> str:
        found = await self.store.conversation_for_key(KEY)
        return str(found.id)


@pytest.fixture
def rig(clock: FakeClock) -> ResetRig:
    clock.set_wall(at("2026-10-24T12:00"))
    made = ResetRig(clock)
    made.platform.limit = 4_000
    return made


async def test_after_a_silence_the_next_message_begins_a_new_one(
    rig: ResetRig, clock: FakeClock
) -> None:
    assert await rig.say("one") == ["re: one"]
    old = await rig.store.conversation_for_key(KEY)
    await clock.advance(3599)
    assert await rig.say("two") == ["re: two"]
    assert await rig.conversation() == old.id
    await clock.advance(3600)
    assert await rig.say("three") == ["re: three", texts.STARTED_ANEW["idle"]]
    assert await rig.rows(KEY) == [("user", "three"), ("assistant", "re: three")]
    ended = await rig.store.session(old.tip_session_id)
    assert ended.end_reason == "idle"
    (boundary,) = rig.crossings
    assert (boundary.reason, boundary.old_conversation_id) == ("reset", old.id)
    assert boundary.new_conversation_id == await rig.conversation()
    assert await rig.say("four") == ["re: four"]


async def test_the_old_one_is_gone_on_with_by_resume_and_stays(
    rig: ResetRig, clock: FakeClock
) -> None:
    await rig.say("one")
    old = await rig.conversation()
    await clock.advance(4000)
    await rig.say("two")
    await rig.say(f"/resume {old}")
    assert await rig.say("three") == ["re: three"]
    assert await rig.conversation() == old
    await clock.advance(4000)
    assert len(await rig.say("four")) == 2
    await rig.say(f"/resume {old}")
    await clock.advance(1800)
    assert await rig.say("five") == ["re: five"]


async def test_once_a_day_at_the_hour_of_the_people(rig: ResetRig, clock: FakeClock) -> None:
    rig.rules = DAILY
    await rig.say("one")
    for wall, anew in (
        ("2026-10-25T03:59", False),  # the night in which an hour comes twice
        ("2026-10-25T04:00", True),
        ("2026-10-25T23:59", False),
        ("2026-10-26T03:59", False),
        ("2026-10-28T12:00", True),
    ):
        clock.set_wall(at(wall))
        assert len(await rig.say("next")) == (2 if anew else 1), wall


async def test_without_a_rule_and_with_a_clock_set_back_nothing_ends(
    rig: ResetRig, clock: FakeClock
) -> None:
    await rig.say("one")
    clock.set_wall(clock.now() - 9e6)
    assert await rig.say("two") == ["re: two"]
    rig.rules = replace(IDLE, mode="none")
    clock.set_wall(clock.now() + 9e7)
    assert await rig.say("three") == ["re: three"]


async def test_what_runs_is_never_cut_off(rig: ResetRig, clock: FakeClock) -> None:
    gate = asyncio.Event()
    rig.hold("long", gate)
    await rig.say("long")
    conversation = await rig.conversation()
    await clock.advance(7200)
    await rig.say("behind it")
    assert await rig.resets.sweep(rig.lanes) == "1 due"
    gate.set()
    await rig.settle()
    assert rig.platform.texts()[0] == "re: long"
    assert await rig.conversation() == conversation  # the answer has come just now


async def test_the_house_ends_them_where_nobody_writes(rig: ResetRig, clock: FakeClock) -> None:
    await rig.say("one")
    old = await rig.store.conversation_for_key(KEY)
    assert await rig.resets.sweep(rig.lanes) == "0 due"
    await clock.advance(7200)
    assert await rig.resets.sweep(rig.lanes) == "1 due"
    await rig.settle()
    assert (await rig.store.session(old.tip_session_id)).end_reason == "idle"
    assert rig.platform.texts() == ["re: one"]
    assert len(rig.crossings) == 1
    assert await rig.resets.sweep(rig.lanes) == "0 due"


async def test_a_store_that_does_not_answer_resets_nothing(
    rig: ResetRig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(session_key: str) -> None:
        raise StoreUnavailable("gone")

    await rig.say("one")
    await clock.advance(7200)
    monkeypatch.setattr(rig.store, "last_said", unavailable)
    assert await rig.say("two") == ["re: two"]
