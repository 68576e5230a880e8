"""The order in which Discord's messages are handed in, without Discord."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.contract import PlatformState
from gateway.platforms.discord import channels, handing
from gateway.platforms.discord.channels import ChannelFeed
from gateway.platforms.discord.convert import Facts, convert
from gateway.platforms.discord.handing import HandIn
from gateway.platforms.discord.health import Health
from gateway.platforms.discord.reading import Unreadable, id_at
from gateway.platforms.discord.source import (
    ChannelGone,
    HistoryUnavailable,
    Item,
    OpenThread,
    pause_seconds,
)
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
        self.threads: dict[int, OpenThread] = {}
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

    def active_threads(self) -> Mapping[int, OpenThread]:
        return self.threads


@pytest.fixture(autouse=True)
def small_pages_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PAGE_MESSAGES", History.page_messages)
    monkeypatch.setattr(channels, "MAX_QUIET", 1)


class Rig:
    def __init__(self, left: Mapping[int, int] | None = None) -> None:
        self.source = History()
        self.reports = Reports()
        self.clock = FakeClock()
        self.health = Health(self.reports, self.clock)
        self.health.connection(True)
        self.left = left
        self.use(RecordingIntake())

    def use(self, intake: RecordingIntake) -> None:
        self.intake = intake
        hand_in = HandIn(
            self.source,
            lambda one: convert(one, BOT),
            str(BOT),
            intake,
            self.health.store,
            self.clock,
        )
        self.feed = ChannelFeed(self.source, hand_in, self.clock, self.left)

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


async def test_a_bug_where_a_session_begins_does_not_keep_every_channel_shut(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    answers = iter([KeyError("a bug"), {}])

    def threads() -> Mapping[int, OpenThread]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rig.source, "active_threads", threads)
    rig.live(facts(1))
    rig.feed.release()
    await rig.settle(30)
    assert rig.intake.texts == ["m1"]
    assert "what was read before is not known" in caplog.text
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
            if len(rig.intake.messages) >= next_id - 1:
                break
        await rig.settle(60.0)
        await rig.feed.stop()
        expected = [f"m{i}" for i in range(1, next_id)]
        assert rig.intake.texts == expected

    asyncio.run(scenario())


# --- edits, odd messages, and what nobody wants ---------------------------------------------------


async def test_an_edit_comes_behind_its_message() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(facts(1))
    rig.feed.live(facts(2))
    rig.keep(facts(2))
    rig.feed.live(facts(2, text="better", is_edit=True))
    rig.feed.live(facts(1, text="best", is_edit=True))
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts == ["m1", "m2"]
    assert [edit.text for edit in rig.intake.edits] == ["better", "best"]
    assert rig.intake.stored == {"1": "2"}, "an edit moves no cursor"
    rig.intake.failures = 2
    rig.feed.live(facts(2, text="once more", is_edit=True))
    rig.feed.live(facts(2, text="x", is_edit=True, is_person=False))
    await rig.settle(10.0)
    assert [edit.text for edit in rig.intake.edits][2:] == ["once more"]
    await rig.feed.stop()


async def test_what_can_not_be_read_is_kept_aside_in_its_turn() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(facts(1), Unreadable(2, 1, '{"id": "2"}', "odd"), facts(3))
    rig.feed.release()
    rig.intake.failures = 1
    await rig.settle(10.0)
    assert rig.intake.texts == ["m1", "m3"]
    assert rig.intake.quarantined == [("2", '{"id": "2"}', "odd")]
    rig.feed.live(Unreadable(0, 0, "[]", "worse"))
    await rig.settle()
    assert rig.intake.quarantined[1] == ("0", "[]", "worse")
    asked = len(rig.source.asked)
    rig.feed.hold()
    rig.feed.release()
    await rig.settle()
    assert [channel for channel, _ in rig.source.asked[asked:]] == [1], "nowhere is no channel"
    await rig.feed.stop()


async def test_the_cursor_passes_over_what_is_of_no_interest() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(*(facts(i, is_person=False) for i in range(1, 12)))
    rig.feed.release()
    await rig.settle()
    assert rig.intake.stored == {"1": "11"}
    assert [m.sender_is_bot for m in rig.intake.messages] == [True]
    for i in range(12, 12 + 2 * handing.PASS_EVERY_MESSAGES + 5):
        rig.live(facts(i, is_person=False))
    await rig.settle()
    assert rig.intake.stored == {"1": str(11 + 2 * handing.PASS_EVERY_MESSAGES)}
    await rig.feed.stop()


async def test_a_history_that_goes_round_in_circles_comes_to_an_end() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.source.stuck_page = [facts(3), facts(1), facts(2), facts(2)]
    rig.feed.release()
    rig.feed.live(facts(4))
    await rig.settle()
    assert rig.intake.texts == ["m1", "m2", "m3", "m4"]
    assert rig.intake.doubles == []
    assert len(rig.source.asked) == 2
    await rig.feed.stop()


async def test_a_long_history_makes_no_other_channel_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PAGES_AT_ONCE", 1)
    rig = Rig()
    rig.intake.stored = {"1": "9000", "2": "0"}
    rig.keep(*(facts(9001 + i) for i in range(60)), *(facts(i + 1, 2) for i in range(4)))
    rig.feed.release()
    await rig.intake.wait_messages(20)
    places = [message.chat_id for message in rig.intake.messages]
    assert places.count("2") == 4
    assert places.count("1") < 60
    await rig.feed.stop()


async def test_threads_that_were_opened_meanwhile_are_read() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "100", "21": "110"}
    rig.source.threads = {
        21: OpenThread(2, 110),  # known
        105: OpenThread(1, 106),  # opened in a known channel
        95: OpenThread(1, 96),  # older than what was heard there last: of no interest
        94: OpenThread(1, 107),  # old, and the first message to the bot came meanwhile
        120: OpenThread(2, 120),  # opened beside a known thread: a post in a forum
        130: OpenThread(3, 131),  # opened where nobody has ever been
    }
    rig.keep(facts(105, 105), facts(106, 105), facts(96, 95), facts(120, 120), facts(131, 130))
    rig.keep(facts(99, 94), facts(107, 94))
    rig.feed.release()
    await rig.settle()
    assert sorted(rig.intake.texts) == ["m105", "m106", "m107", "m120"]
    assert 95 not in {channel_id for channel_id, _ in rig.source.asked}
    await rig.feed.stop()


async def test_a_channel_without_a_cursor_that_was_heard_has_no_gap() -> None:
    rig = Rig()
    rig.feed.release()
    rig.live(facts(5, is_person=False))
    await rig.settle()
    assert rig.intake.stored == {}
    rig.feed.hold()
    rig.keep(facts(4), facts(6))
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts == ["m6"]
    await rig.feed.stop()


async def test_the_next_connection_takes_over_what_the_last_one_had_not_done() -> None:
    rig = Rig()
    rig.feed.release()
    await rig.settle()
    rig.intake.failures = 1_000_000
    rig.live(facts(8), facts(9))  # the first ones that were ever said here
    await rig.settle(1.0)
    await rig.feed.stop()
    left = rig.feed.unfinished()
    assert left == {1: 7}
    after = Rig(left)
    after.keep(facts(7), facts(8), facts(9), facts(10))
    assert after.feed.unfinished() == {1: 7}, "not begun"
    after.feed.release()
    await after.settle()
    assert after.intake.texts == ["m8", "m9", "m10"]
    await after.feed.stop()


async def test_a_backfill_that_is_stopped_is_taken_over_where_it_was() -> None:
    rig = Rig({1: 10})
    rig.keep(*(facts(i) for i in range(11, 40)))
    rig.feed.release()
    await rig.intake.wait_messages(7)
    rig.intake.stored.clear()
    await rig.feed.stop()
    after = Rig(rig.feed.unfinished())
    after.keep(*(facts(i) for i in range(11, 40)))
    after.feed.release()
    await after.settle()
    both = rig.intake.texts + after.intake.texts
    assert both[:7] + after.intake.texts[-22:] == [f"m{i}" for i in range(11, 40)]
    await after.feed.stop()


async def test_a_page_that_wants_to_be_left_alone_is_left_alone() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    rig.keep(facts(1))
    refused = iter([HistoryUnavailable("429", 500.0)])
    page = rig.source.page

    async def flooded(channel_id: int, after: int) -> Sequence[Item]:
        for error in refused:
            raise error
        return await page(channel_id, after)

    rig.source.page = flooded  # type: ignore[method-assign]
    rig.feed.release()
    await rig.settle(450.0)
    assert rig.intake.messages == []
    await rig.settle(100.0)
    assert rig.intake.texts == ["m1"]
    await rig.feed.stop()


# --- a memory that is bounded ---------------------------------------------------------------------


async def test_quiet_channels_are_forgotten_and_their_gaps_read_all_the_same() -> None:
    rig = Rig()
    rig.feed.release()
    for id_ in range(1, 101):
        rig.live(facts(id_, id_, is_person=id_ % 3 != 0))
        await rig.settle()
    assert set(rig.feed.unfinished()) == {100}, "what was heard last"
    assert rig.intake.stored == {str(i): str(i) for i in range(1, 101)}
    rig.feed.hold()
    rig.keep(*(facts(id_ + 1_000, id_) for id_ in range(1, 101)))
    rig.feed.release()
    rig.live(facts(3_000, 7))
    for _ in range(20):
        await rig.settle()
    assert {f"m{i}" for i in range(1_001, 1_101)} <= set(rig.intake.texts)
    heard = [message.text for message in rig.intake.messages if message.chat_id == "7"]
    assert heard == ["m7", "m1007", "m3000"]
    assert rig.intake.doubles == []
    assert len(rig.feed.unfinished()) == 1
    await rig.feed.stop()


async def test_a_channel_of_which_the_store_knows_nothing_is_not_forgotten() -> None:
    rig = Rig()
    rig.feed.release()
    for one in (facts(5, 5), Unreadable(6, 5, "{}", "odd"), facts(7, 7), facts(8, 8)):
        rig.live(one)
        await rig.settle()
    assert rig.feed.unfinished() == {5: 6, 8: 8}
    rig.feed.hold()
    rig.keep(facts(9, 5))
    rig.feed.release()
    await rig.settle()
    assert [after for channel, after in rig.source.asked if channel == 5] == [6]
    assert "m9" in rig.intake.texts
    await rig.feed.stop()


async def test_what_comes_while_a_channel_is_being_forgotten_is_taken() -> None:
    rig = Rig()
    rig.feed.release()
    rig.live(facts(1, 1, is_person=False))
    await rig.settle()
    rig.intake.gate = asyncio.Event()
    rig.live(facts(2, 2, is_person=False))
    await rig.settle()
    assert rig.intake.events == ["waiting "], "the cursor of the first moves"
    rig.live(facts(3, 1))
    await rig.settle()
    assert rig.intake.events == ["waiting "], "and nothing overtakes it"
    rig.intake.gate.set()
    await rig.settle()
    assert rig.intake.texts[:2] == ["", "m3"]
    assert rig.intake.stored["1"] == "3"
    await rig.feed.stop()


# --- ids that lie about their time ----------------------------------------------------------------

NOW = id_at(FakeClock().now())
"""The id of what is sent when the tests begin."""
FUTURE = (1 << 63) + 5


async def test_an_id_from_the_future_hides_nothing_that_comes_after_it() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "10"}
    rig.feed.release()
    await rig.settle()
    rig.live(facts(FUTURE), facts(11))
    await rig.settle()
    assert rig.intake.texts == [f"m{FUTURE}", "m11"]
    assert rig.intake.stored == {"1": "11"}
    rig.feed.hold()
    rig.keep(facts(12), facts(13), facts(14), facts(15))
    rig.feed.release()
    await rig.settle()
    assert rig.intake.texts[2:] == ["m12", "m13", "m14", "m15"]
    rig.live(Unreadable(FUTURE + 1, 1, "{}", "odd"), facts(FUTURE + 2, is_person=False))
    await rig.settle()
    rig.feed.hold()
    rig.keep(facts(16))
    rig.feed.release()
    await rig.settle()
    assert [text for text in rig.intake.texts if text][-1] == "m16"
    await rig.feed.stop()


async def test_an_id_from_the_future_that_waits_hides_nothing_from_the_next_connection() -> None:
    rig = Rig()
    rig.feed.live(facts(FUTURE))
    assert rig.feed.unfinished() == {1: NOW}
    await rig.feed.stop()


async def test_an_id_from_the_future_in_a_page_does_not_end_the_reading() -> None:
    rig = Rig()
    rig.intake.stored = {"1": "0"}
    pages = iter([[facts(1), facts(2), facts(FUTURE)], [facts(3), facts(FUTURE)]])

    async def page(channel_id: int, after: int) -> Sequence[Item]:
        rig.source.asked.append((channel_id, after))
        return next(pages)

    rig.source.page = page  # type: ignore[method-assign]
    rig.feed.release()
    await rig.settle()
    assert rig.source.asked == [(1, 0), (1, 2)]
    assert rig.intake.texts == ["m1", "m2", f"m{FUTURE}", "m3"]
    assert rig.intake.doubles == []
    assert rig.intake.stored == {"1": "3"}
    await rig.feed.stop()


async def test_where_only_the_future_was_heard_the_cursor_stands_at_now() -> None:
    rig = Rig()
    rig.feed.release()
    rig.live(facts(FUTURE))
    await rig.settle()
    assert rig.intake.stored == {"1": str(NOW)}
    await rig.feed.stop()


async def test_a_clock_that_is_behind_makes_nobody_deaf() -> None:
    rig = Rig()
    rig.clock.set_wall(1_500_000_000.0)
    rig.intake.stored = {"1": str(NOW)}
    rig.keep(*(facts(NOW + i) for i in range(1, 9)))
    rig.feed.release()
    rig.live(facts(NOW + 9))
    await rig.settle()
    assert rig.intake.texts == [f"m{NOW + i}" for i in range(1, 10)]
    assert rig.intake.stored == {"1": str(NOW)}, "read again at the next start, no more than that"
    await rig.feed.stop()


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 50))
def test_no_interleaving_of_three_channels_loses_doubles_or_reorders(
    random: Random, steps: int
) -> None:
    """Events, edits, lost sessions, failures, restarts with their cursors; at last all is there."""

    async def scenario() -> None:
        rig = Rig()
        kept: dict[int, list[Item]] = {1: [], 2: [], 3: []}
        rig.source.kept = kept
        rig.intake.stored = {"1": "0", "2": "0", "3": "0"}
        connected, number = False, 1
        for _ in range(steps):
            match random.choice(["say", "say", "say", "lose", "begin", "fail", "store", "stop"]):
                case "say":
                    one = facts(number, random.randint(1, 3), is_person=random.random() < 0.8)
                    number += 1
                    kept[one.channel_id].append(one)
                    if connected:
                        rig.feed.live(one)
                        if random.random() < 0.2:
                            rig.feed.live(replace(one, is_edit=True))
                case "lose":
                    rig.feed.hold()
                    connected = False
                case "begin":
                    rig.feed.hold()
                    connected = True
                    rig.feed.release()
                case "fail":
                    rig.source.failures += 1
                case "store":
                    rig.intake.failures += 1
                case _:
                    await rig.feed.stop()
                    left, intake = rig.feed.unfinished(), rig.intake
                    rig = Rig(left)
                    rig.source.kept, rig.intake = kept, intake
                    rig.use(intake)
                    connected = False
            await rig.settle(random.choice([0.0, 0.0, 1.0, 40.0]))
        rig.feed.hold()
        rig.feed.release()
        everything = sum(isinstance(one, Facts) and one.is_person for one in chain(*kept.values()))
        for _ in range(20):
            await rig.settle(60.0)
            if len([m for m in rig.intake.messages if not m.sender_is_bot]) >= everything:
                break
        await rig.settle(60.0)
        await rig.feed.stop()
        for channel_id, said in kept.items():
            wanted = [f"m{one.id}" for one in said if isinstance(one, Facts) and one.is_person]
            place = str(channel_id)
            heard = [
                message.text
                for message in rig.intake.messages
                if message.chat_id == place and not message.sender_is_bot
            ]
            assert heard == wanted

    asyncio.run(scenario())


def test_what_was_missed_is_asked_for_soon_after_an_outage() -> None:
    pauses = [pause_seconds(n) for n in range(1, 100)]
    assert pauses[:3] == [1, 2, 4]
    assert max(pauses) <= 10
