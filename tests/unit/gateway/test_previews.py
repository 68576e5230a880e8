"""Answers that are shown while they are written: what appears, when, and how it ends."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from agent.errors import ModelUnavailable, StoreUnavailable
from agent.mail import Address, OutboxDraft
from agent.messages import Draft
from agent.ports import TurnObserver
from agent.sessions import session_key
from gateway import texts
from gateway.delivery.unfinished import CURSOR
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    PreviewKind,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from tests.fakes.clock import FakeClock
from tests.fakes.platform import Failure, FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said

KEY = session_key("fake", "900", "111", None, None)
WORDS = "This is the answer. "


class Stage(Rig):
    """A chat that shows previews; a message begins a turn that says what the test tells it to."""

    def __init__(self, clock: FakeClock, kind: PreviewKind = "message") -> None:
        platform = FakePlatform(now=clock.monotonic, previews=kind, limit=200)
        super().__init__(clock, platform=platform)
        self.clock: FakeClock = clock
        self.observer: TurnObserver | None = None
        self.ending: asyncio.Future[str] = asyncio.get_event_loop().create_future()
        self.began = 0

    async def ask(self, text: str = "hello", number: int = 1) -> None:
        self.loop.scripts[text] = self._script
        await self.intake.receive(inbound(text, message_id=str(number)))
        await self.settle()

    async def _script(self, *given: Any) -> Draft:
        self.began += 1
        self.observer = given[3]
        self.ending = asyncio.get_event_loop().create_future()
        return said(await self.ending)

    def say(self, *deltas: str) -> None:
        assert self.observer is not None
        for delta in deltas:
            self.observer.on_text(delta)

    async def pass_time(self, seconds: float) -> None:
        await self.settle()
        await self.clock.advance(seconds)
        await self.settle()

    async def answer(self, text: str) -> None:
        self.ending.set_result(text)
        await self.pass_time(0.1)

    @property
    def chat(self) -> list[str]:
        return self.platform.texts()

    @property
    def drafts(self) -> list[str]:
        return list(self.platform.drafts.values())

    def shown(self) -> list[str]:
        """The texts of all previews, in order."""
        return [text for _, _, text, *_ in self.platform.previewed]


@pytest.fixture
async def stage(clock: FakeClock) -> Stage:
    return Stage(clock)


@pytest.fixture
async def drafted(clock: FakeClock) -> Stage:
    return Stage(clock, "draft")


class TestMessage:
    async def test_it_grows_and_becomes_the_answer(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(0.4)
        assert stage.chat == [
            f"This is the answer. {CURSOR}".replace(". ", ".  ").replace("  ", " ")
        ]
        for _ in range(5):
            stage.say(WORDS)
            await stage.pass_time(2)
        assert stage.chat == [(WORDS * 6).strip() + f" {CURSOR}"]
        assert len(stage.shown()) == 6
        await stage.answer(WORDS * 6 + "The end.")
        assert stage.chat == [WORDS * 6 + "The end."]
        assert len({message_id for *_, message_id, _ in stage.platform.previewed}) == 2
        assert await stage.store.owed() == []

    async def test_a_quick_answer_has_none(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.answer(WORDS)
        assert stage.platform.previewed == []
        assert stage.chat == [WORDS]

    async def test_little_text_waits_for_more(self, stage: Stage) -> None:
        await stage.ask()
        stage.say("Well")
        await stage.pass_time(0.9)
        assert stage.chat == []
        await stage.pass_time(0.2)
        assert stage.chat == [f"Well {CURSOR}"]

    async def test_its_id_is_stored_before_it_is_edited(self, stage: Stage) -> None:
        gate = asyncio.Event()
        real = stage.store.note_preview

        async def slow(*given: Any) -> bool:
            await gate.wait()
            return bool(await real(*given))

        stage.store.note_preview = slow
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.say(WORDS)
        await stage.pass_time(10)
        assert len(stage.shown()) == 1
        gate.set()
        await stage.pass_time(10)
        assert len(stage.shown()) == 2

    async def test_a_long_answer_shows_its_first_part(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS * 40)
        await stage.pass_time(1)
        calls = len(stage.shown())
        for _ in range(50):
            stage.say(WORDS * 10)
            await stage.pass_time(1)
        assert len(stage.shown()) <= calls + 1
        assert len(stage.chat[0]) <= 180
        await stage.answer(WORDS * 540)
        await stage.pass_time(10)
        assert "".join(stage.chat) == WORDS * 540

    async def test_what_is_taken_back_stays_until_there_is_something_else(
        self, stage: Stage
    ) -> None:
        await stage.ask()
        stage.say("Let me look that up.")
        await stage.pass_time(1)
        stage.say("")
        await stage.pass_time(60)
        assert stage.chat == [f"Let me look that up. {CURSOR}"]
        stage.say("It is Rome.")
        await stage.pass_time(2)
        assert stage.chat == [f"It is Rome. {CURSOR}"]
        await stage.answer("It is Rome.")
        assert stage.chat == ["It is Rome."]

    async def test_somebody_deletes_it(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.platform.delete("m0")
        stage.say(WORDS)
        await stage.pass_time(5)
        calls = len(stage.shown())
        stage.say(WORDS)
        await stage.pass_time(5)
        assert len(stage.shown()) == calls
        await stage.answer(WORDS * 3)
        assert stage.chat == [WORDS * 3]

    async def test_typing_goes_on(self, stage: Stage) -> None:
        await stage.ask()
        for _ in range(20):
            stage.say(WORDS)
            await stage.pass_time(1)
        assert len(stage.platform.typed) == 5


class TestDraft:
    async def test_the_answer_is_a_message_of_its_own(self, drafted: Stage) -> None:
        await drafted.ask()
        drafted.say(WORDS)
        await drafted.pass_time(1)
        assert drafted.chat == []
        assert drafted.drafts == [f"{WORDS}{CURSOR}"]
        await drafted.answer(WORDS + "Done.")
        assert (drafted.chat, drafted.drafts) == ([WORDS + "Done."], [])
        assert {(message_id, draft_id > 0) for *_, message_id, draft_id in (
            drafted.platform.previewed)} == {(None, True)}  # fmt: skip

    async def test_it_is_shown_anew_before_it_goes(self, drafted: Stage) -> None:
        await drafted.ask()
        drafted.say(WORDS)
        await drafted.pass_time(65)
        assert drafted.shown() == [f"{WORDS}{CURSOR}"] * 4
        gaps = [b[0] - a[0] for a, b in zip(
            drafted.platform.previewed, drafted.platform.previewed[1:], strict=False)]  # fmt: skip
        assert max(gaps) < 30

    async def test_a_stopped_answer_is_kept(self, drafted: Stage) -> None:
        await drafted.ask()
        drafted.say(WORDS * 20)
        await drafted.pass_time(1)
        await drafted.ask("/stop", 2)
        await drafted.pass_time(1)
        assert texts.STOPPED in drafted.chat
        rest = [text for text in drafted.chat if text != texts.STOPPED]
        assert "".join(rest) == f"{WORDS * 20}".rstrip() + f"\n\n{texts.STOPPED_HERE}"


class TestEnds:
    async def test_stopped(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        await stage.ask("/stop", 2)
        await stage.pass_time(1)
        assert stage.chat == [f"{WORDS}".rstrip() + f"\n\n{texts.STOPPED_HERE}", texts.STOPPED]

    async def test_stopped_before_anything_was_shown(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.ask("/stop", 2)
        await stage.pass_time(1)
        assert stage.chat == [texts.STOPPED]

    async def test_failed(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.ending.set_exception(ModelUnavailable("down"))
        await stage.pass_time(1)
        assert stage.chat == [texts.UNREACHABLE]

    async def test_a_notice_stands_behind_the_answer(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        assert stage.observer is not None
        stage.observer.on_notice("by the way")
        await stage.answer("The answer.")
        assert stage.chat == ["The answer.", "by the way"]

    async def test_files_go_with_the_answer(self, stage: Stage) -> None:
        await stage.ask()
        assert stage.observer is not None
        stage.observer.on_file("a.png")
        stage.observer.on_file("a.png")
        await stage.answer("The answer.")
        assert [draft.files for draft in stage.platform.rendered] == [("a.png",)]

    async def test_an_orderly_end_and_a_resume_in_the_same_message(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        await stage.stop()
        assert stage.chat == [f"{WORDS}".rstrip() + f"\n\n{texts.GOES_ON}"]
        stage.boot()
        await stage.recovery.run()
        await stage.settle()
        assert stage.began == 2
        stage.say("Again from the start.")
        await stage.pass_time(2)
        assert stage.chat == [f"Again from the start. {CURSOR}"]
        await stage.answer("Again.")
        assert stage.chat == ["Again."]

    @pytest.mark.parametrize("said_again", [True, False])
    async def test_killed_and_resumed(self, stage: Stage, said_again: bool) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.kill()
        await stage.settle()
        assert CURSOR in stage.chat[0]
        stage.boot()
        await stage.recovery.run()
        await stage.settle()
        if said_again:
            stage.say("Again.")
            await stage.pass_time(2)
        await stage.answer("Again.")
        assert stage.chat == ["Again."]

    async def test_resumed_and_stopped_at_once(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.kill()
        await stage.settle()
        stage.boot()
        await stage.recovery.run()
        await stage.ask("/stop", 2)
        await stage.pass_time(1)
        assert stage.chat == [texts.STOPPED_HERE, texts.STOPPED]

    async def test_too_old_to_be_resumed(self, stage: Stage, clock: FakeClock) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.kill()
        await stage.settle()
        clock.jump(7200)
        stage.boot()
        await stage.recovery.run()
        await stage.pass_time(1)
        assert stage.chat == [texts.TOO_OLD_TO_RESUME]

    async def test_stopped_while_the_daemon_was_down(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.kill()
        await stage.settle()
        stage.dispatch.submit = lambda item: None  # type: ignore[method-assign]
        await stage.intake.receive(inbound("/stop", message_id="2"))
        stage.boot()
        await stage.recovery.run()
        await stage.pass_time(1)
        assert stage.chat == [texts.STOPPED_HERE, texts.STOPPED]


class TestTrouble:
    @pytest.mark.parametrize(
        "error",
        [SendRefused("no"), EditRefused("no"), ChatGone("blocked"), ZeroDivisionError("bug")],
        ids=lambda e: type(e).__name__,
    )
    @pytest.mark.parametrize("first", [True, False])
    async def test_a_refusal_ends_the_preview_and_not_the_turn(
        self, stage: Stage, error: Exception, first: bool
    ) -> None:
        stage.platform.preview_failures.extend(
            [Failure(error)] if first else [None, Failure(error)]
        )
        await stage.ask()
        for _ in range(5):
            stage.say(WORDS)
            await stage.pass_time(3)
        assert len(stage.shown()) == (1 if first else 2)
        await stage.answer("The answer.")
        assert stage.chat == ["The answer."]

    @pytest.mark.parametrize("error", [SendUnavailable("down"), SendUnknown("timeout")])
    async def test_trouble_on_the_way_passes(self, stage: Stage, error: SendError) -> None:
        stage.platform.preview_failures.extend([None, Failure(error), Failure(error)])
        await stage.ask()
        for n in range(12):
            stage.say(f"{n} ")
            await stage.pass_time(3)
        assert stage.chat[0].startswith("0 1 2 3")
        assert len(stage.shown()) > 4
        await stage.answer("The answer.")
        assert stage.chat == ["The answer."]

    async def test_a_first_one_that_may_have_arrived_is_the_last(self, stage: Stage) -> None:
        stage.platform.preview_failures.append(Failure(SendUnknown("timeout")))
        await stage.ask()
        for _ in range(5):
            stage.say(WORDS)
            await stage.pass_time(3)
        assert len(stage.shown()) == 1
        await stage.answer("The answer.")
        assert stage.chat == ["The answer."]

    async def test_a_flood_silences_the_chat_and_three_end_it(self, stage: Stage) -> None:
        stage.platform.preview_failures.extend([Failure(SendFlood(40))] * 3)
        await stage.ask()
        for _ in range(300):
            stage.say("x")
            await stage.pass_time(1)
        times = [at for at, *_ in stage.platform.previewed]
        assert len(times) == 3
        assert min(b - a for a, b in pairwise(times)) >= 40
        typed = [at for at, _ in stage.platform.typed]
        assert not any(t < at < t + 40 for t in times for at in typed)
        await stage.answer("The answer.")
        assert stage.chat == ["The answer."]

    async def test_a_flood_of_the_preview_holds_the_answer_back(self, stage: Stage) -> None:
        stage.platform.preview_failures.extend([None, Failure(SendFlood(40))])
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.say(WORDS)
        await stage.pass_time(2)
        await stage.answer("The answer.")
        await stage.pass_time(20)
        assert "The answer." not in stage.chat
        await stage.pass_time(25)
        assert stage.chat == ["The answer."]

    async def test_the_answer_waits_for_an_edit_that_is_under_way(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.platform.preview_delay = lambda: stage.clock.sleep(1.5)
        stage.say(WORDS)
        await stage.pass_time(1.2)
        await stage.answer("The answer.")
        assert stage.platform.calls == []
        await stage.pass_time(2)
        assert stage.chat == ["The answer."]

    async def test_but_not_for_ever(self, stage: Stage) -> None:
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        stage.platform.preview_delay = lambda: stage.clock.sleep(3600)
        stage.say(WORDS)
        await stage.pass_time(1.2)
        await stage.answer("The answer.")
        await stage.pass_time(3)
        assert stage.chat == ["The answer."]
        await stage.pass_time(7200)
        assert stage.chat == ["The answer."]

    async def test_a_first_one_that_comes_too_late_is_taken_away(self, stage: Stage) -> None:
        stage.platform.preview_delay = lambda: stage.clock.sleep(30)
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(1)
        await stage.answer("The answer.")
        await stage.pass_time(3)
        assert stage.chat == ["The answer."]
        await stage.pass_time(120)
        assert stage.chat == ["The answer."]
        assert stage.shown()[-1] == ""

    async def test_a_store_that_takes_nothing_for_a_while(self, stage: Stage) -> None:
        real, failures = stage.store.note_preview, [1, 1]

        async def flaky(*given: Any) -> bool:
            noted = bool(await real(*given))
            if failures:
                failures.pop()
                raise StoreUnavailable("disk full")
            return noted

        stage.store.note_preview = flaky
        await stage.ask()
        for _ in range(6):
            stage.say(WORDS)
            await stage.pass_time(2)
        assert len(stage.shown()) > 1
        await stage.answer("The answer.")
        assert stage.chat == ["The answer."]

    async def test_what_is_owed_comes_first(self, stage: Stage) -> None:
        stage.platform.fail(SendUnavailable("down"), times=3)
        item = await stage.store.owe(OutboxDraft(Address("fake", "900", "111"), "of before"))
        stage.delivery.hand_over([item])
        await stage.ask()
        stage.say(WORDS)
        await stage.pass_time(2)
        assert stage.shown() == []
        await stage.pass_time(20)
        assert stage.chat == ["of before", f"{WORDS}{CURSOR}"]


async def test_the_rate_leaves_room_for_what_is_owed(stage: Stage) -> None:
    """Two turns in one chat, five minutes: 15 previews of 20 calls a minute at most."""
    await stage.ask()
    for _ in range(600):
        stage.say("word ")
        await stage.pass_time(0.5)
        if stage.platform.previewed and len(stage.chat[0]) > 100:
            stage.say("")
    times = [at for at, *_ in stage.platform.previewed]
    assert len(times) > 50
    for at in times:
        assert len([t for t in times if at - 60 < t <= at]) <= 15
    assert times[1] - times[0] <= 1.5  # quick at first
