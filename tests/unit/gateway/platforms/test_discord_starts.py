"""How often Discord is asked for a session: soon after one is lost, within the day's sum."""

from __future__ import annotations

import pytest

from gateway.platforms.contract import PlatformUnavailable
from gateway.platforms.discord.starts import LONGEST_PAUSE_SECONDS, SessionStarts
from tests.fakes.clock import FakeClock


class Scene:
    def __init__(self) -> None:
        self.clock = HastyClock()
        self.starts = SessionStarts(self.clock, draw=lambda least, most: most)
        self.asked: list[float] = []
        self.waits: list[float] = []

    async def ask(self, *, initial: bool = False, shard: int = 0) -> None:
        """As the supervisor does: again after the time that was asked for."""
        while True:
            try:
                await self.starts.turn(shard, initial=initial)
            except PlatformUnavailable as exc:
                self.waits.append(exc.retry_after_seconds)
                self.clock.jump(exc.retry_after_seconds)
                continue
            self.asked.append(self.clock.monotonic())
            return


class HastyClock(FakeClock):
    """Whoever sleeps there moves the time."""

    async def sleep(self, seconds: float) -> None:
        self.jump(seconds)


async def test_a_session_that_was_lost_is_followed_by_another_within_seconds() -> None:
    scene = Scene()
    for _ in range(200):
        await scene.ask()
        scene.starts.begun(0)
        scene.clock.jump(3600)
        lost_at = scene.clock.monotonic()
        await scene.ask(initial=False)
        scene.starts.begun(0)
        assert scene.asked[-1] - lost_at <= 5.0
        scene.clock.jump(120)


async def test_sessions_that_end_at_once_do_not_burn_the_days_sum() -> None:
    scene = Scene()
    day_ends = scene.clock.monotonic() + 86_400
    while scene.clock.monotonic() < day_ends:
        await scene.ask()
        scene.starts.begun(0)
        scene.clock.jump(1)
    assert 200 < len(scene.asked) < 1_000
    assert min(scene.waits) >= 5
    first_hour = [at for at in scene.asked if at < scene.asked[0] + 3600]
    assert len(first_hour) <= 25
    gaps = [b - a for a, b in zip(scene.asked, scene.asked[1:], strict=False)]
    assert gaps[0] == pytest.approx(6, abs=1.1)
    assert max(gaps) <= LONGEST_PAUSE_SECONDS + 11


async def test_sessions_that_live_for_a_minute_do_not_burn_it_either() -> None:
    """Long enough to count as one, and lost all day."""
    scene = Scene()
    day_ends = scene.clock.monotonic() + 86_400
    while scene.clock.monotonic() < day_ends:
        await scene.ask()
        scene.starts.begun(0)
        scene.clock.jump(61)
    assert len(scene.asked) < 1_000


async def test_what_discord_says_is_left_is_shared_out() -> None:
    scene = Scene()
    await scene.ask(initial=True)
    scene.starts.left(100, 36_000)
    await scene.ask()
    assert scene.asked[1] - scene.asked[0] == pytest.approx(360, abs=11)
    scene.starts.left(900, 36_000)
    await scene.ask()
    assert scene.asked[2] - scene.asked[1] == pytest.approx(5)


async def test_two_shards_keep_their_distance() -> None:
    scene = Scene()
    for shard in range(4):
        await scene.ask(initial=True, shard=shard)
    gaps = [b - a for a, b in zip(scene.asked, scene.asked[1:], strict=False)]
    assert gaps == pytest.approx([5, 5, 5])
