"""Whatever sends do, every answer arrives, marked if it may be a repeat, and holds up no other."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.mail import Address, OutboxDraft
from gateway.delivery.outbox import Delivery
from gateway.platforms.contract import SendError, SendFlood, SendUnavailable, SendUnknown
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import REPEAT_MARK, Failure, FakePlatform

CHATS = [Address("fake", "900", name) for name in ("111", "222")]
kinds: st.SearchStrategy[SendError] = st.sampled_from(
    [SendUnknown("reset"), SendUnavailable("no route"), SendFlood(20.0)]
)
failures = st.builds(Failure, kinds, st.booleans()).map(
    lambda one: Failure(one.error, one.delivered and isinstance(one.error, SendUnknown))
)
steps = st.one_of(
    st.tuples(st.just("owe"), st.integers(0, 1), st.sampled_from(["reply", "command"])),
    st.tuples(st.just("fail"), failures, st.integers(1, 12)),
    st.tuples(st.just("trouble"), st.booleans(), st.none()),
    st.tuples(st.just("time"), st.integers(1, 900), st.none()),
    st.tuples(st.just("nudge"), st.none(), st.none()),
    st.tuples(st.just("crash"), st.none(), st.none()),
)


class Scene:
    def __init__(self, *, dedupes: bool) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, SequentialIds())
        self.platform = FakePlatform(now=self.clock.monotonic, dedupes_sends=dedupes)
        self.works = True
        self.owed: list[str] = []
        self.boot()

    def boot(self) -> None:
        self.delivery = Delivery(
            mailbox=self.store,
            platforms={"fake": self.platform},
            clock=self.clock,
            jitter=lambda: 0.5,
            works=lambda name: self.works,
        )

    async def owe(self, chat: int, kind: str) -> None:
        text = f"answer {len(self.owed)}."
        self.owed.append(text)
        draft = OutboxDraft(CHATS[chat], text, "command" if kind == "command" else "reply")
        self.delivery.hand_over([await self.store.owe(draft)])

    async def crash(self) -> None:
        for task in set(self.delivery._tasks._tasks):
            task.cancel()
        await self.pass_time(0)
        self.boot()
        await self.delivery.start()

    async def pass_time(self, seconds: float) -> None:
        for _ in range(40):
            await asyncio.sleep(0)
        while seconds > 0:
            step = min(seconds, max(self.clock.next_wake_seconds or seconds, 0.01))
            await self.clock.advance(step)
            seconds -= step

    async def play(self, script: list[tuple[str, object, object]]) -> None:
        for what, first, second in script:
            match what, first, second:
                case "owe", int(chat), str(kind):
                    await self.owe(chat, kind)
                case "fail", Failure(), int(times):
                    self.platform.failures.extend([first] * times)
                case "trouble", bool(troubled), _:
                    self.works = not troubled
                case "time", int(seconds), _:
                    await self.pass_time(seconds)
                case "nudge", _, _:
                    self.delivery.nudge("fake")
                case _:
                    await self.crash()
            await self.pass_time(0)

    async def heal(self) -> None:
        self.platform.failures.clear()
        self.works = True
        self.delivery.nudge("fake")


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25), st.booleans())
def test_every_answer_arrives_and_nothing_newer_waits_long(
    script: list[tuple[str, object, object]], dedupes: bool
) -> None:
    async def run() -> None:
        scene = Scene(dedupes=dedupes)
        await scene.play(script)
        await scene.heal()
        await scene.owe(0, "reply")
        await scene.pass_time(60)  # a flood may be on
        assert any(scene.owed[-1] in text for text in scene.platform.texts("111"))
        await scene.pass_time(3 * 24 * 3600)
        assert await scene.store.owed() == []
        shown = scene.platform.texts()
        plain = Counter(text for text in shown if not text.startswith(REPEAT_MARK))
        assert not [text for text, times in plain.items() if times > 1]
        assert {text.removeprefix(REPEAT_MARK) for text in shown} == set(scene.owed)
        if dedupes:
            assert len(shown) == len(scene.owed)
        assert not scene.delivery._senders
        assert not scene.delivery._overtaking
        assert not len(scene.delivery._means.queues)
        await scene.delivery.stop(0)

    asyncio.run(run())
