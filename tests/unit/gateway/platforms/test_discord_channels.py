"""The order in which Discord's messages are handed in, without Discord."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.contract import PlatformState
from gateway.platforms.discord import channels
from gateway.platforms.discord.channels import ChannelFeed
from gateway.platforms.discord.convert import Facts, convert
from gateway.platforms.discord.handing import HandIn
from gateway.platforms.discord.health import Health
from gateway.platforms.discord.reading import Unreadable
from gateway.platforms.discord.source import ChannelGone, HistoryUnavailable, Item
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

BOT = 900


def facts(id_: int, channel_id: int = 1, **changes: object) -> Facts:
    base = Facts(id_, channel_id, 7, "ada", f"m{id_}", 0.0, guild_id=3)
    return replace(base, **changes)  # type: ignore[arg-type]


class History:
    """Channels as Discord keeps them; fails as told."""

    page_messages = 3

    def __init__(self) -> None:
        self.kept: dict[int, list[Item]] = {}
        self.failures = 0
        self.fail_after = 0
        self.gone: set[int] = set()
        self.broken = 0
        self.asked: list[tuple[int, int]] = []
        self.threads: dict[int, int] = {}
        self.stuck_page: list[Item] | None = None

    async def page(self, channel_id: int, after: int) -> Sequence[Item]:
        self.asked.append((channel_id, after))
        if channel_id in self.gone:
            raise ChannelGone("deleted")
        if self.broken:
            self.broken -= 1
            raise KeyError("a bug")
        await asyncio.sleep(0)
        if self.failures > 0:
            if self.fail_after == 0:
                self.failures -= 1
                raise HistoryUnavailable("503")
            self.fail_after -= 1
        if self.stuck_page is not None:
            return self.stuck_page
        kept = sorted(self.kept.get(channel_id, []), key=lambda one: one.id)
        page = [one for one in kept if one.id > after][: self.page_messages]
        return page[::-1]

    async def complete(self, facts: Facts) -> Facts:
        return facts

    def active_threads(self) -> Mapping[int, int]:
        return self.threads


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PAGE_MESSAGES", History.page_messages)


class Rig:
    def __init__(self, left: Mapping[int, int] | None = None) -> None:
        self.source = History()
        self.intake = RecordingIntake()
        self.reports = Reports()
        self.clock = FakeClock()
        self.health = Health(self.reports, self.clock)
        self.health.connection(True)
        hand_in = HandIn(
            self.source,
            lambda one: convert(one, BOT),
            str(BOT),
            self.intake,
            self.health.store,
            self.clock,
        )
        self.feed = ChannelFeed(self.source, hand_in, self.clock, left)

    def keep(self, *many: Item) -> None:
        for one in many:
            self.source.kept.setdefault(one.channel_id, []).append(one)

    def live(self, *many: Item) -> None:
        self.keep(*many)
        for one in many:
            self.feed.live(one)

    async def settle(self, seconds: float = 0.0) -> None:
        for _ in range(30):
            await self.clock.advance(seconds / 30)


async def test_nothing_live_passes_before_the_session_is_complete() -> None:
    rig = Rig()
    rig.live(facts(1))
    await rig.settle()
    assert rig.intake.messages == []
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts == ["m1"]
    assert rig.intake.stored == {"1": "1"}
    await rig.feed.stop()


async def test_a_new_session_reads_the_gap_before_its_live_messages() -> None:
    rig = Rig()
    rig.feed.release()
    rig.live(facts(1))
    await rig.settle()
    rig.feed.hold()
    rig.keep(facts(2), facts(3))
    rig.live(facts(4))
    await rig.settle()
    assert rig.intake.texts == ["m1"]
    assert rig.intake.stored == {"1": "1"}, "a live message may not move the cursor over the gap"
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts == ["m1", "m2", "m3", "m4"]
    assert rig.intake.doubles == []
    await rig.feed.stop()


@pytest.mark.parametrize(("times", "expected"), [(2, ["m2", "m3"]), (1000, ["m3"])])
async def test_a_bug_in_reading_the_history_does_not_close_the_channel(
    times: int, expected: list[str]
) -> None:
    rig = Rig()
    rig.intake.stored = {"1": "1"}
    rig.source.broken = times
    rig.keep(facts(2))
    rig.feed.release()
    rig.live(facts(3))
    await rig.settle(120.0)
    assert rig.intake.texts == expected
    await rig.feed.stop()


async def test_a_session_that_is_lost_while_it_begins_is_begun_anew() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "1"}
    rig.keep(facts(2))
    rig.intake.failures = 1
    rig.feed.release()  # waits for the store
    await rig.settle()
    rig.feed.hold()
    rig.live(facts(3))
    await rig.settle(5.0)
    assert rig.intake.messages == []
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts == ["m2", "m3"]
    assert rig.reports.all[1] == (PlatformState.DEGRADED, "the store is not available")
    assert rig.reports.states[-1] is PlatformState.RUNNING
    await rig.feed.stop()


async def test_a_backfill_cut_by_the_next_session_goes_on_from_the_cursor() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(*(facts(i) for i in range(1, 200)))
    rig.feed.release()
    await rig.intake.wait_messages(20)
    rig.feed.hold()
    await rig.settle()
    reached = len(rig.intake.messages)
    assert reached < 199
    rig.live(facts(200))
    rig.feed.release()
    await rig.intake.wait_messages(200)
    assert rig.intake.texts == [f"m{i}" for i in range(1, 201)]
    await rig.feed.stop()


async def test_a_history_that_fails_in_the_middle_is_not_begun_anew() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(*(facts(i) for i in range(1, 8)))
    rig.source.failures, rig.source.fail_after = 2, 1
    rig.feed.release()
    await rig.settle(60.0)
    assert rig.source.asked == [(1, 0), (1, 3), (1, 3), (1, 3), (1, 6)]
    assert rig.intake.texts == [f"m{i}" for i in range(1, 8)]
    assert rig.intake.doubles == []
    await rig.feed.stop()


async def test_too_many_waiting_messages_are_read_from_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MAX_WAITING", 10)
    rig = Rig()
    rig.feed.release()
    rig.intake.gate = asyncio.Event()
    rig.live(*(facts(i) for i in range(1, 60)))
    await rig.settle()
    rig.intake.gate.set()
    await rig.intake.wait_messages(59)
    assert rig.intake.texts == [f"m{i}" for i in range(1, 60)]
    await rig.feed.stop()


async def test_events_out_of_order_never_move_the_cursor_back() -> None:
    rig = Rig()
    rig.feed.release()
    rig.live(facts(5), facts(4))
    await rig.settle()
    assert rig.intake.texts == ["m5", "m4"]
    assert rig.intake.stored == {"1": "5"}
    await rig.feed.stop()


async def test_a_channel_that_is_gone_is_live_again_if_it_comes_back() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "1", "not a number": "x"}
    rig.source.gone = {1}
    rig.feed.release()
    await rig.settle()
    rig.source.gone = set()
    rig.live(facts(9))
    await rig.settle()
    assert rig.intake.texts == ["m9"]
    await rig.feed.stop()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["live", "missed", "hold", "release", "fail", "store", "settle"]),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_no_schedule_loses_doubles_or_reorders(steps: list[str], fail_after: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.source.fail_after = fail_after
        next_id = 1
        rig.intake.stored = {"1": "0"}
        connected = False
        for step in steps:
            match step:
                case "live" if connected:
                    rig.live(facts(next_id))
                    next_id += 1
                case "live" | "missed":
                    if connected:
                        rig.feed.hold()  # what is missed is missed by a lost session
                        connected = False
                    rig.keep(facts(next_id))
                    next_id += 1
                case "hold":
                    rig.feed.hold()
                    connected = False
                case "release":
                    rig.feed.release()
                    connected = True
                case "fail":
                    rig.source.failures += 1
                case "store":
                    rig.intake.failures += 1
                case _:
                    await rig.settle(1.0)
        rig.feed.hold()
        rig.feed.release()
        for _ in range(20):
            await rig.settle(60.0)
        await rig.feed.stop()
        expected = [f"m{i}" for i in range(1, next_id)]
        assert rig.intake.texts == expected

    asyncio.run(scenario())
