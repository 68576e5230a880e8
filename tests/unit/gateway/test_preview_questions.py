"""Previews around a question: what was said stays above it, the rest comes below, nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.approvals import Proposal
from agent.errors import StoreUnavailable
from agent.messages import Draft
from gateway import approval_text as words
from gateway import texts
from gateway.delivery.preview_place import key_below
from gateway.delivery.unfinished import CURSOR
from gateway.platforms.contract import EditRefused, SendFlood, SendUnavailable
from tests.fakes.clock import FakeClock
from tests.fakes.platform import Failure, inbound
from tests.unit.gateway.rig import said
from tests.unit.gateway.test_previews import Stage

LS = Proposal("shell", "run this command", (("", "ls -la"),))
BEFORE = "I look at the folder first."
AFTER = "It is empty. "


class Asking(Stage):
    """Its turn asks whether it may run ``ls``, as often as the test wants it to."""

    questions_wanted = 1

    async def _script(self, *given: Any) -> Draft:
        loop, self.observer = given[0], given[3]
        self.began += 1
        for _ in range(self.questions_wanted):
            await self._next()
            self.observer.on_text("")  # as the loop does before it runs tools
            await loop.contexts[-1].approver.ask(LS)
        return said(await self._next())

    async def _next(self) -> str:
        self.ending = asyncio.get_running_loop().create_future()
        return await self.ending

    async def speak(self) -> None:
        """Until the words stand in the chat, half of them."""
        self.say("I look at the ")
        await self.pass_time(1.1)
        assert self.chat == [f"I look at the {CURSOR}"]
        self.say("folder first.")

    async def put_question(self) -> None:
        self.ending.set_result("")
        await self.pass_time(0.1)

    def question(self, n: int = 1) -> str:
        return words.question(LS, f"{300000 + n}", 5)

    async def approve(self, number: int = 2) -> None:
        await self.intake.receive(self.inbound(f"/approve 30000{number - 1}", number))
        await self.settle()

    def inbound(self, text: str, number: int) -> Any:
        return inbound(text, message_id=str(number))


@pytest.fixture
async def stage(clock: FakeClock) -> Asking:
    return Asking(clock)


@pytest.mark.parametrize("dedupes", [False, True])
async def test_the_words_stay_above_it_and_the_answer_comes_below(
    stage: Asking, dedupes: bool
) -> None:
    stage.platform.dedupes_sends = dedupes
    await stage.ask()
    await stage.speak()
    await stage.put_question()
    assert stage.chat == [BEFORE, stage.question()]
    await stage.pass_time(60)
    assert stage.chat == [BEFORE, stage.question()]
    await stage.approve()
    stage.say(AFTER)
    await stage.pass_time(1)
    above = [BEFORE, stage.question(), words.APPROVED]
    assert stage.chat == [*above, f"{AFTER}{CURSOR}"]
    await stage.answer(AFTER + "That is all.")
    assert stage.chat == [*above, AFTER + "That is all."]
    assert await stage.store.owed() == []


@pytest.mark.parametrize("dedupes", [False, True])
async def test_each_question_has_its_words_above_it(stage: Asking, dedupes: bool) -> None:
    stage.platform.dedupes_sends = dedupes
    stage.questions_wanted = 2
    await stage.ask()
    await stage.speak()
    await stage.put_question()
    await stage.approve()
    stage.say("And now the other one. ")
    await stage.pass_time(2)
    await stage.put_question()
    await stage.approve(3)
    await stage.answer("Both are empty.")
    assert stage.chat == [
        BEFORE, stage.question(), words.APPROVED,
        "And now the other one.", stage.question(2), words.APPROVED, "Both are empty.",
    ]  # fmt: skip


async def test_without_words_before_it_nothing_is_left(stage: Asking) -> None:
    await stage.ask()
    await stage.put_question()
    assert stage.platform.previewed == []
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [stage.question(), words.APPROVED, "It is empty."]


@pytest.mark.parametrize("dedupes", [False, True])
async def test_killed_while_it_waits_and_gone_on_below(stage: Asking, dedupes: bool) -> None:
    stage.platform.dedupes_sends = dedupes
    await stage.ask()
    await stage.speak()
    await stage.put_question()
    stage.kill()
    await stage.settle()
    stage.questions_wanted = 0
    stage.boot()
    await stage.recovery.run()
    await stage.settle()
    assert stage.began == 2
    stage.say(AFTER)
    await stage.pass_time(1)
    assert stage.chat == [BEFORE, stage.question(), f"{AFTER}{CURSOR}"]
    await stage.answer("It is empty.")
    assert stage.chat == [BEFORE, stage.question(), "It is empty."]


async def test_words_of_before_a_restart_make_way(stage: Asking) -> None:
    """Nobody knows any more what the message shows: half of something, and a cursor."""
    await stage.ask()
    await stage.speak()
    stage.kill()
    await stage.settle()
    stage.boot()
    await stage.recovery.run()
    await stage.settle()
    await stage.put_question()
    assert stage.chat == [stage.question()]
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [stage.question(), words.APPROVED, "It is empty."]


async def test_stopped_while_it_waits(stage: Asking) -> None:
    await stage.ask()
    await stage.speak()
    await stage.put_question()
    await stage.intake.receive(stage.inbound("/stop", 2))
    await stage.pass_time(1)
    assert stage.chat == [BEFORE, stage.question(), texts.STOPPED]


@pytest.mark.parametrize("error", [SendFlood(5), SendUnavailable("down")])
async def test_an_edit_that_has_to_wait_holds_nothing_up(stage: Asking, error: Exception) -> None:
    await stage.ask()
    await stage.speak()
    stage.platform.preview_failures.append(Failure(error))
    await stage.put_question()
    await stage.pass_time(7)
    await stage.pass_time(7)
    assert stage.chat == [BEFORE, stage.question()]
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [BEFORE, stage.question(), words.APPROVED, "It is empty."]


async def test_a_message_that_somebody_took_away(stage: Asking) -> None:
    await stage.ask()
    await stage.speak()
    stage.platform.preview_failures.append(Failure(EditRefused("gone")))
    stage.platform.delete("m0")
    await stage.put_question()
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [stage.question(), words.APPROVED, "It is empty."]


async def test_a_first_one_that_hangs_comes_too_late(stage: Asking) -> None:
    stage.platform.preview_delay = lambda: stage.clock.sleep(30)
    await stage.ask()
    stage.say(BEFORE)
    await stage.pass_time(1.1)
    await stage.put_question()
    await stage.pass_time(3)
    assert stage.chat == [stage.question()]
    await stage.pass_time(120)
    assert stage.chat == [stage.question()]
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [stage.question(), words.APPROVED, "It is empty."]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_store_that_takes_nothing_says_nothing_twice(stage: Asking, stored: bool) -> None:
    real = stage.store.leave_preview

    async def failing(*given: Any) -> None:
        if stored:
            await real(*given)
        raise StoreUnavailable("disk full")

    stage.store.leave_preview = failing
    await stage.ask()
    await stage.speak()
    await stage.put_question()
    for _ in range(6):
        await stage.pass_time(2)
    assert stage.chat == [BEFORE, stage.question()]
    await stage.approve()
    stage.say(AFTER)
    await stage.pass_time(2)
    await stage.answer("It is empty.")
    asked = [stage.question(), words.APPROVED]
    whole = [BEFORE, *asked, "It is empty."] if stored else ["It is empty.", *asked]
    assert stage.chat == whole


async def test_a_draft_is_nothing_that_could_be_left(clock: FakeClock) -> None:
    stage = Asking(clock, "draft")
    await stage.ask()
    stage.say(BEFORE)
    await stage.pass_time(1.1)
    await stage.put_question()
    await stage.approve()
    await stage.answer("It is empty.")
    assert stage.chat == [stage.question(), words.APPROVED, "It is empty."]


def test_the_next_message_has_a_key_of_its_own() -> None:
    keys = {7, key_below(7, "1"), key_below(7, "2"), key_below(8, "1"), key_below(7, "")}
    assert len(keys) == 5
    assert all(0 < key < 2**63 for key in keys)
    assert key_below(7, "1") == key_below(7, "1")
