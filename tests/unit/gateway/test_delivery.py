"""Delivery: in order, in parts, effectively once, floods and unknown outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent.errors import StoreError, StoreUnavailable
from agent.mail import Address, OutboxDraft, OutboxItem, OutboxPart, PartDraft, SendState
from gateway import texts
from gateway.delivery.outbox import Delivery
from gateway.delivery.tries import DeliverySettings
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import REPEAT_MARK, Failure, FakePlatform

CHAT = Address("fake", "900", "111")
OTHER = Address("fake", "900", "222")


class Post:
    def __init__(self, clock: FakeClock, store: MemoryStore | None = None) -> None:
        self.clock = clock
        self.store = store or MemoryStore(clock, SequentialIds())
        self.platform = FakePlatform(now=clock.monotonic)
        self.works = True
        self.boot()

    def boot(self) -> None:
        self.delivery = Delivery(
            mailbox=self.store,
            platforms={"fake": self.platform},
            clock=self.clock,
            settings=DeliverySettings(),
            jitter=lambda: 0.5,
            works=lambda name: name == "fake" and self.works,
        )

    async def owe(self, text: str, address: Address = CHAT) -> OutboxItem:
        item = await self.store.owe(OutboxDraft(address, text))
        self.delivery.hand_over([item])
        return item

    async def settle(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            await self.settle()
            step = min(seconds, max(self.clock.next_wake_seconds or seconds, 0.01))
            await self.clock.advance(step)
            seconds -= step
        await self.settle()

    async def kill(self) -> None:
        for task in set(self.delivery._tasks._tasks):
            task.cancel()
        await self.settle()

    async def states(self) -> list[str]:
        return [item.state for item in await self.store.owed()]


@pytest.fixture
def post(clock: FakeClock) -> Post:
    return Post(clock)


async def test_answers_and_parts_go_out_in_order(post: Post) -> None:
    long = " ".join(f"word{n:04}" for n in range(200))
    await post.owe(long)
    await post.owe("second")
    await post.settle()
    shown = post.platform.texts()
    assert "".join(shown[:-1]) == long
    assert shown[-1] == "second"
    assert all(not repeat for *_, repeat in post.platform.calls)
    assert await post.store.owed() == []
    assert post.platform.most_in_flight == {"111": 1}


async def test_a_blank_answer_says_so(post: Post) -> None:
    await post.owe("  \n ")
    await post.settle()
    assert post.platform.texts() == ["(nothing to say)"]


@pytest.mark.parametrize("seconds", [37.0, 1000.0, 0.5])
async def test_flood_is_honoured_for_this_chat_only(post: Post, seconds: float) -> None:
    post.platform.fail(SendFlood(seconds))
    await post.owe("one")
    await post.settle()
    (part,) = (await post.store.owed())[0].parts
    assert part.state == "planned"  # a crash now must not make it doubtful
    await post.owe("two")
    await post.owe("elsewhere", OTHER)
    async with post.delivery.typing(CHAT):
        await post.pass_time(seconds - 0.25)
        assert post.platform.texts() == ["elsewhere"]
        assert post.platform.typed == []
        post.delivery.nudge("fake")  # a healthy platform does not end a flood
        await post.settle()
        assert post.platform.texts() == ["elsewhere"]
    await post.pass_time(0.5)
    assert post.platform.texts("111") == ["one", "two"]
    times = [at for at, chat, *_ in post.platform.calls if chat == "111"]
    assert times[1] - times[0] >= seconds


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0])
async def test_a_flood_of_nonsense_length_ends(post: Post, seconds: float) -> None:
    post.platform.fail(SendFlood(seconds))
    await post.owe("one")
    await post.settle()
    await post.pass_time(86_400)
    assert post.platform.texts() == ["one"]


@pytest.mark.parametrize("seconds", [0.0, -5.0, float("nan"), 1e-9, 1.0])
async def test_a_platform_that_floods_for_ever_is_not_asked_in_a_loop(
    post: Post, seconds: float
) -> None:
    """One that names no time was asked as fast as the processor could, each time with two rows."""
    post.platform.fail(SendFlood(seconds), times=10_000)
    await post.owe("one")
    await post.pass_time(600)
    assert len(post.platform.calls) <= 20
    post.platform.failures.clear()
    await post.pass_time(86_400 if seconds != seconds else 61)
    assert post.platform.texts() == ["one"]


async def test_a_long_silence_is_said_to_the_operator(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    post.platform.fail(SendFlood(5))
    await post.owe("one")
    await post.pass_time(6)
    assert caplog.records == []
    post.platform.fail(SendFlood(40_000))
    await post.owe("two")
    await post.pass_time(100)
    (told,) = caplog.records
    assert (told.levelname, told.__dict__["seconds"]) == ("WARNING", 40_000)


async def test_an_edit_that_is_none_and_is_refused_as_one_ends(post: Post) -> None:
    post.platform.fail(EditRefused("a bug of the platform"), times=10_000)
    await post.owe("one")
    await post.settle()
    assert len(post.platform.calls) < 5
    assert await post.states() == []


async def test_a_flood_at_what_is_said_of_a_refused_part_is_waited_for(post: Post) -> None:
    """The person never learned that a part is missing."""
    post.platform.failures.extend(
        [Failure(SendRefused("no")), Failure(SendFlood(40)), Failure(SendFlood(2)), None]
    )
    await post.owe("one")
    await post.pass_time(39)
    assert post.platform.texts() == []
    await post.pass_time(10)
    assert post.platform.texts() == [texts.PART_REFUSED]
    assert await post.states() == []


async def test_a_flood_at_a_preview_that_is_taken_away_silences_the_chat(
    post: Post, clock: FakeClock
) -> None:
    post.platform.previews = "message"
    shown = await post.platform.preview(CHAT, "half", None, 5)
    post.platform.preview_failures.append(Failure(SendFlood(40)))
    draft = OutboxDraft(CHAT, "whole", edits_message_id=shown)
    item = await post.store.owe(draft)
    clock.set_wall(clock.now() + 2 * 86_400)
    post.delivery.hand_over([item])
    await post.pass_time(39)
    assert len(post.platform.calls) == 0
    await post.pass_time(2)
    assert "whole" in post.platform.texts()[-1]


async def test_what_another_bot_owes_costs_next_to_nothing_while_it_waits(post: Post) -> None:
    """It was tried every minute for ever, with two rows written each time."""
    post.platform.bot_id = "901"
    post.platform.fail(SendUnavailable("owed by another bot"), times=10_000)
    await post.owe("one")
    await post.pass_time(86_400)
    assert len(post.platform.calls) < 60
    post.platform.failures.clear()
    post.delivery.nudge("fake")  # as at the start of that bot
    await post.settle()
    assert post.platform.texts() == ["one"]


async def test_what_was_not_delivered_is_tried_until_it_is(post: Post) -> None:
    post.platform.fail(SendUnavailable("down"), times=8)
    await post.owe("one")
    await post.owe("two")
    await post.pass_time(600)
    assert post.platform.texts() == ["one", "two"]
    gaps = [b[0] - a[0] for a, b in zip(post.platform.calls, post.platform.calls[1:], strict=False)]
    assert gaps[:5] == [1, 2, 4, 7, 7], "a platform that is back is found within ten seconds"
    assert max(gaps) <= 10
    assert not any(repeat for *_, repeat in post.platform.calls)


async def test_a_nudge_ends_the_back_off(post: Post) -> None:
    post.platform.fail(SendUnavailable("down"), times=7)
    await post.owe("one")
    await post.pass_time(30)
    tries = len(post.platform.calls)
    post.delivery.nudge("fake")
    await post.settle()
    assert len(post.platform.calls) == tries + 1


async def test_a_chat_that_is_gone_is_given_up_and_the_next_is_tried(post: Post) -> None:
    post.platform.fail(ChatGone("blocked"))
    await post.owe("x" * 500)
    await post.owe("two")
    await post.settle()
    assert post.platform.texts() == ["two"]
    assert await post.store.owed() == []


async def test_a_refused_part_does_not_take_the_others_along(post: Post) -> None:
    post.platform.limit = 160 + len(REPEAT_MARK)
    post.platform.failures.extend([None, Failure(SendRefused("entities"))])
    await post.owe("a" * 150 + " " + "b" * 150 + " " + "c" * 150)
    await post.settle()
    assert [text.strip()[-1] for text in post.platform.texts()] == ["a", ".", "c"]
    assert post.platform.texts()[1] == texts.PART_REFUSED
    assert await post.store.owed() == []


async def test_an_answer_that_is_refused_whole_is_said_to_be_missing(post: Post) -> None:
    post.platform.fail(SendRefused("no"))
    await post.owe("one")
    await post.owe("two")
    await post.settle()
    assert post.platform.texts() == [texts.PART_REFUSED, "two"]
    post.platform.fail(SendRefused("no"), times=2)  # a chat that takes nothing is not bothered on
    await post.owe("three")
    await post.owe("four")
    await post.settle()
    assert post.platform.texts() == [texts.PART_REFUSED, "two", "four"]


async def test_what_is_said_in_its_place_goes_where_the_answer_was_announced(post: Post) -> None:
    post.platform.limit = 160 + len(REPEAT_MARK)
    long = "a" * 150 + " " + "b" * 150
    for failures in ([Failure(SendRefused("no"))], [None, Failure(SendRefused("no"))]):
        post.platform.failures.extend(failures)
        item = await post.store.owe(OutboxDraft(CHAT, long, interaction="key"))
        post.delivery.hand_over([item])
        await post.settle()
    told = [d.interaction for d in post.platform.rendered if d.text == texts.PART_REFUSED]
    assert told == ["key", None]  # of a later part the place is filled already


async def test_ornaments_keep_away_from_a_chat_that_is_gone(post: Post) -> None:
    post.platform.blocked["111"] = ChatGone("blocked")
    await post.owe("one")
    await post.settle()
    post.delivery.say_now(CHAT, "in passing")
    async with post.delivery.typing(CHAT):
        await post.pass_time(20)
    assert post.platform.typed == []
    assert len(post.platform.calls) == 1
    await post.owe("two")  # what is owed is tried all the same, once
    await post.settle()
    assert len(post.platform.calls) == 2
    del post.platform.blocked["111"]
    post.delivery.heard(CHAT)
    async with post.delivery.typing(CHAT):
        await post.pass_time(1)
    assert len(post.platform.typed) == 1


async def test_a_flood_at_the_pressed_buttons_is_waited_for(post: Post) -> None:
    """They were taken before the mark, and a flood that the platform answered was lost there."""
    marks: list[str] = []
    mark_part = post.store.mark_part

    async def noted(part_id: int, state: SendState, **more: Any) -> None:
        marks.append(f"{state}, {len(post.platform.bare)} times bare")
        await mark_part(part_id, state, **more)

    post.store.mark_part = noted  # type: ignore[method-assign]
    post.platform.bare_failures.append(SendFlood(40))
    over = OutboxDraft(CHAT, "over", "command", interaction="m7", decides=True)
    post.delivery.hand_over([await post.store.owe(over)])
    await post.settle()
    assert marks == ["sending, 0 times bare", "sent, 0 times bare"]
    assert post.platform.bare == [("111", "m7")]
    await post.owe("next")
    await post.pass_time(39)
    assert (post.platform.texts(), post.platform.bare) == (["over"], [("111", "m7")])
    await post.pass_time(2)
    assert post.platform.texts() == ["over", "next"]
    assert post.platform.bare == [("111", "m7")] * 2


async def test_a_stop_waits_for_no_buttons(post: Post) -> None:
    over = OutboxDraft(CHAT, "over", "command", interaction="m7", decides=True)
    post.platform.gate = asyncio.Event()
    post.delivery.hand_over([await post.store.owe(over)])
    await post.settle()
    stopping = asyncio.ensure_future(post.delivery.stop(5))
    await post.settle()
    post.platform.gate.set()
    await post.settle()
    await stopping
    assert (post.platform.texts(), post.platform.bare) == (["over"], [])


async def test_an_owed_answer_is_never_forgotten_while_it_waits(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.delivery.outbox.REMEMBERED_ITEMS", 3)
    post.platform.fail(SendFlood(50))
    for n in range(10):
        await post.owe(f"m{n}")
    await post.settle()
    for _ in range(5):
        await post.delivery.refresh()
        for _ in range(5):
            await post.owe("elsewhere", OTHER)
        await post.settle()
    await post.pass_time(60)
    assert post.platform.texts("111") == [f"m{n}" for n in range(10)]


async def owe_edit(post: Post, text: str) -> str:
    """An answer whose preview is shown; its message's id."""
    post.platform.previews = "message"
    shown = await post.platform.preview(CHAT, "beginning", None, 1)
    item = await post.store.owe(OutboxDraft(CHAT, text, edits_message_id=shown))
    post.delivery.hand_over([item])
    assert shown is not None
    return shown


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("times", [1, 4])
async def test_an_edit_is_repeated_until_it_is_known_and_never_marked(
    post: Post, delivered: bool, times: int
) -> None:
    await owe_edit(post, "a" * 150 + " " + "b" * 150)
    post.platform.fail(SendUnknown("timeout"), times=times, delivered=delivered)
    await post.pass_time(600)
    assert [text.strip()[-1] for text in post.platform.texts()] == ["a", "b"]
    assert await post.store.owed() == []


@pytest.mark.parametrize("unknown", [0, 1])
async def test_an_edit_that_is_refused_is_sent_anew(post: Post, unknown: int) -> None:
    shown = await owe_edit(post, "whole")
    post.platform.delete(shown)
    post.platform.fail(SendUnknown("timeout"), times=unknown)
    await post.pass_time(60)
    assert post.platform.texts() == ["whole"]
    assert await post.store.owed() == []


async def test_a_send_in_the_place_of_an_edit_is_resolved_like_any(post: Post) -> None:
    shown = await owe_edit(post, "whole")
    post.platform.delete(shown)
    # The refusal comes before the failure is taken from the list.
    post.platform.fail(EditRefused("gone"))
    post.platform.fail(SendUnknown("timeout"), delivered=True)
    await post.pass_time(60)
    assert post.platform.texts() == ["whole", REPEAT_MARK + "whole"]
    assert await post.store.owed() == []


@pytest.mark.parametrize("deleted", [True, False])
async def test_killed_in_the_middle_of_an_edit(post: Post, deleted: bool) -> None:
    shown = await owe_edit(post, "whole")
    post.platform.gate = asyncio.Event()
    await post.settle()
    await post.kill()
    post.platform.gate = None
    if deleted:
        post.platform.delete(shown)
    post.boot()
    await post.delivery.start()
    await post.pass_time(30)
    # What was sent in an edit's place nobody knows after a kill: rather marked than missing.
    assert post.platform.texts() == [REPEAT_MARK + "whole" if deleted else "whole"]
    assert await post.store.owed() == []


async def test_a_late_answer_does_not_hide_in_an_old_message(post: Post, clock: FakeClock) -> None:
    post.platform.previews = "message"
    shown = await post.platform.preview(CHAT, "beginning", None, 1)
    await post.store.owe(OutboxDraft(CHAT, "old", edits_message_id=shown))
    await post.platform.preview(CHAT, "somebody else's", None, 2)
    clock.set_wall(clock.now() + 86_400 * 2)
    await post.delivery.start()
    await post.settle()
    other, late = post.platform.texts()
    assert other == "somebody else's"
    assert late.endswith("old")


async def test_unknown_is_repeated_once_and_marked(post: Post) -> None:
    post.platform.fail(SendUnknown("timeout"), delivered=True)
    item = await post.owe("one")
    await post.settle()
    assert (await post.store.owed())[0].parts[0].state == "unknown"
    assert len(post.platform.calls) == 1  # not at once
    await post.pass_time(30)
    assert post.platform.texts() == ["one", REPEAT_MARK + "one"]
    assert await post.store.owed() == []
    assert item.id == 1


async def test_a_repeat_is_not_wasted_on_a_platform_in_trouble(post: Post) -> None:
    """An outage answers with pages of a front server: each try more would be a mark for nothing."""
    post.works = False
    post.platform.fail(SendUnknown("502, but no JSON"))
    await post.owe("one")
    await post.pass_time(280)
    assert post.platform.texts() == []
    assert [item.parts[0].state for item in await post.store.owed()] == ["unknown"]
    post.works = True
    post.delivery.nudge("fake")
    await post.settle()
    assert post.platform.texts() == [REPEAT_MARK + "one"]
    assert await post.store.owed() == []


async def test_what_is_in_doubt_holds_up_nothing_newer(post: Post) -> None:
    """Trouble may be of another kind, in which sends arrive (a second program that polls)."""
    post.works = False
    post.platform.fail(SendUnknown("timeout"))
    await post.owe("one")
    await post.owe("behind it")
    await post.pass_time(16)
    assert post.platform.texts() == ["behind it", REPEAT_MARK + "one"], "which proves that it works"


@pytest.mark.parametrize("minutes", [1, 10, 60])
async def test_an_answer_whose_sends_fail_for_long_is_there_in_the_end(
    post: Post, minutes: int
) -> None:
    """Polling works all the time, so nothing but a send can tell that sends work again."""
    post.platform.fail(SendUnknown("connection reset"), times=1000)
    await post.owe("one")
    await post.pass_time(minutes * 60)
    tries = len(post.platform.calls)
    assert tries <= 7, "each may be one more copy"
    assert [item.parts[0].state for item in await post.store.owed()] == ["unknown"]
    post.platform.failures.clear()
    await post.pass_time(3 * minutes * 60)
    assert post.platform.texts() == [REPEAT_MARK + "one"]
    assert await post.store.owed() == []


async def test_whatever_arrives_brings_out_what_is_in_doubt(post: Post) -> None:
    post.platform.fail(SendUnknown("timeout"), times=3)
    await post.owe("one")
    await post.pass_time(60)
    assert len(post.platform.calls) == 3
    await post.owe("elsewhere", OTHER)
    await post.pass_time(23)
    assert post.platform.texts() == ["elsewhere", REPEAT_MARK + "one"]
    assert not len(post.delivery._means.queues)


async def test_what_may_arrive_each_time_is_not_said_again_and_again(post: Post) -> None:
    """A server that takes everything and never says so, in a chat in which much is said."""
    post.platform.refuse = lambda part: SendUnknown("timeout") if part.id == 1 else None
    await post.owe("one")
    for n in range(200):
        await post.owe(f"more {n}")
        await post.pass_time(10 if n < 60 else 600)
    shown = [text for text in post.platform.texts() if text.endswith("one")]
    assert shown[0] == "one"
    assert set(shown[1:]) == {REPEAT_MARK + "one"}
    assert len(shown) <= 12
    assert len(post.platform.texts()) == len(shown) + 200


async def test_a_doubtful_answer_is_given_up_only_when_it_is_refused(post: Post) -> None:
    post.platform.fail(SendUnknown("timeout"), times=2)
    await post.owe("one")
    await post.pass_time(30)
    post.platform.blocked["111"] = ChatGone("blocked")
    await post.pass_time(60)
    assert post.platform.texts() == []
    assert await post.store.owed() == []


async def test_one_chat_asks_for_all_and_wakes_them(post: Post) -> None:
    """A hundred chats that wait must not ask a hundred times as often."""
    chats = [Address("fake", "900", str(n)) for n in range(100)]
    post.platform.fail(SendUnavailable("no route"), times=10_000)
    for chat in chats:
        await post.owe("x", chat)
    await post.pass_time(600)
    before = len(post.platform.calls)
    await post.pass_time(60)
    assert len(post.platform.calls) - before <= 100 + 60 / 5
    post.platform.failures.clear()
    await post.pass_time(10)
    assert len(post.platform.texts()) == 100


async def test_a_command_is_answered_while_a_send_hangs(post: Post) -> None:
    gate = post.platform.gate = asyncio.Event()
    await post.owe("a long answer")
    await post.settle()
    post.platform.gate = None
    await post.owe("behind it")
    said = await post.store.owe(OutboxDraft(CHAT, "Stopped.", "command"))
    post.delivery.hand_over([said])
    await post.pass_time(0.5)
    assert post.platform.texts() == ["Stopped."]
    gate.set()
    await post.settle()
    assert post.platform.texts() == ["Stopped.", "a long answer", "behind it"]
    assert await post.store.owed() == []


async def test_a_command_keeps_its_place_where_nothing_hangs(post: Post) -> None:
    await post.owe(" ".join(f"word{n:04}" for n in range(200)))
    said = await post.store.owe(OutboxDraft(CHAT, "Done.", "command"))
    post.delivery.hand_over([said])
    await post.pass_time(1)
    assert post.platform.texts()[-1] == "Done."
    assert post.platform.most_in_flight == {"111": 1}


async def test_a_doubtful_part_at_a_start_waits_for_the_platform(post: Post) -> None:
    post.platform.fail(SendUnknown("timeout"))
    await post.owe("one")
    await post.settle()
    await post.kill()
    post.works = False
    post.boot()
    await post.delivery.start()
    await post.pass_time(60)
    assert len(post.platform.calls) == 1
    await post.delivery.stop(1.0)
    assert [item.parts[0].state for item in await post.store.owed()] == ["unknown"]


async def test_unknown_twice_steps_aside_and_the_rest_goes_out(post: Post) -> None:
    post.platform.fail(SendUnknown("timeout"), times=2)
    text = "a" * 150 + " " + "b" * 150
    await post.owe(text)
    await post.owe("next")
    await post.pass_time(16)
    assert [t[0] for t in post.platform.texts()] == ["b", "n"]
    await post.pass_time(100)
    assert [t.removeprefix(REPEAT_MARK)[0] for t in post.platform.texts()] == ["b", "n", "a"]
    assert await post.store.owed() == []


async def test_unknown_on_a_deduping_platform_shows_once(post: Post) -> None:
    post.platform.dedupes_sends = True
    post.platform.fail(SendUnknown("timeout"), delivered=True)
    post.platform.fail(SendUnknown("timeout"), times=5)
    await post.owe("one")
    await post.pass_time(300)
    assert post.platform.texts() == ["one"]
    assert [repeat for *_, repeat in post.platform.calls] == [False] + [True] * 6
    assert await post.store.owed() == []


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("delivered", [True, False])
async def test_killed_in_the_middle_of_a_send(post: Post, dedupes: bool, delivered: bool) -> None:
    post.platform.dedupes_sends = dedupes
    await post.owe("a" * 150 + " " + "b" * 150 + " " + "c" * 150)
    post.platform.gate = asyncio.Event()
    await post.settle()
    if delivered:
        part = (await post.store.owed())[0].parts[0]
        post.platform._show(CHAT, part, repeat=False)
    await post.kill()
    assert (await post.store.owed())[0].parts[0].state == "sending"
    post.platform.gate = None
    post.boot()
    await post.delivery.start()
    await post.owe("new")
    await post.settle()
    shown = post.platform.texts()
    first = [t for t in shown if t.strip().endswith("a")]
    if dedupes:
        assert len(first) == 1
    else:
        assert first[-1].startswith(REPEAT_MARK)
        assert len(first) == (2 if delivered else 1)
    assert [t.strip()[-1] for t in shown][-3:] == ["b", "c", "w"]
    assert await post.store.owed() == []


async def test_crashes_at_the_same_part_end(post: Post) -> None:
    await post.owe("one")
    for _ in range(10):
        post.platform.gate = asyncio.Event()
        await post.settle()
        await post.kill()
        post.boot()
        await post.delivery.start()
    post.platform.gate = None
    await post.settle()
    assert len(post.platform.calls) <= 6
    await post.pass_time(60)  # a process that lives on may be asked once more
    assert post.platform.texts() == [REPEAT_MARK + "one"]
    assert await post.store.owed() == []


async def test_nothing_is_sent_before_the_mark_and_a_lost_mark_is_made_up(post: Post) -> None:
    real, broken = post.store.mark_part, {"sending": 2, "sent": 3}

    async def mark_part(part_id: int, state: str, **kwargs: object) -> None:
        if broken.get(state, 0):
            broken[state] -= 1
            raise StoreUnavailable("disk full")
        await real(part_id, state, **kwargs)  # type: ignore[arg-type]

    post.store.mark_part = mark_part  # type: ignore[assignment,method-assign]
    await post.owe("one")
    await post.settle()
    assert post.platform.calls == []
    await post.pass_time(60)
    assert post.platform.texts() == ["one"]
    assert await post.store.owed() == []


async def test_a_store_that_is_back_is_seen_soon_however_long_it_was_away(post: Post) -> None:
    real, failures = post.store.plan_parts, 50

    async def plan_parts(outbox_id: int, parts: Sequence[PartDraft]) -> tuple[OutboxPart, ...]:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("disk full")
        return await real(outbox_id, parts)

    post.store.plan_parts = plan_parts  # type: ignore[method-assign]
    await post.owe("one")
    while failures:
        await post.settle()
        await post.clock.advance(post.clock.next_wake_seconds or 0.0)
    await post.pass_time(7)
    assert post.platform.texts() == ["one"]


async def test_answers_owed_to_a_platform_that_is_off_are_told_of_once(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    off = Address("off", "900", "111")
    for text in ("one", "two"):
        await post.store.owe(OutboxDraft(off, text))
    for _ in range(3):
        await post.delivery.refresh()
    told = [r for r in caplog.records if "platform is off" in r.message]
    assert len(told) == 1
    assert await post.states() == ["planned", "planned"]


async def test_a_question_that_can_not_be_given_up_holds_up_nothing(post: Post) -> None:
    async def fail_outbox(outbox_id: int, error: str) -> None:
        raise StoreError("there is no such row")

    post.store.fail_outbox = fail_outbox  # type: ignore[method-assign]
    question = await post.store.owe(OutboxDraft(CHAT, "may I?", "notice", asks=True))
    post.delivery.hand_over([question])
    await post.owe("one")
    await post.settle()
    assert post.platform.texts() == ["one"]


async def test_a_crashing_adapter_is_not_asked_for_ever(post: Post) -> None:
    post.platform.fail(ZeroDivisionError("bug"), times=50)
    await post.owe("one")
    await post.pass_time(200)
    assert len(post.platform.calls) == 3  # the last one was to say so
    post.platform.failures.clear()
    await post.owe("two")
    await post.settle()
    assert post.platform.texts() == ["two"]


async def test_late_answers_say_so(post: Post, clock: FakeClock) -> None:
    await post.store.owe(OutboxDraft(CHAT, "old"))
    clock.set_wall(clock.now() + 86_400 * 2)
    await post.store.owe(OutboxDraft(CHAT, "young"))
    await post.delivery.start()
    await post.settle()
    old, young = post.platform.texts()
    assert "late" in old
    assert "2027-01-15" in old
    assert old.endswith("old")
    assert young == "young"


async def test_late_answers_with_fixed_parts_get_a_note_ahead(post: Post, clock: FakeClock) -> None:
    item = await post.store.owe(OutboxDraft(CHAT, "old"))
    await post.store.plan_parts(item.id, post.platform.render(OutboxDraft(CHAT, "old")))
    clock.set_wall(clock.now() + 86_400 * 2)
    await post.delivery.start()
    await post.settle()
    note, old = post.platform.texts()
    assert "late" in note
    assert old == "old"
    assert await post.store.owed() == []


async def test_restarts_while_the_chat_is_down_leave_one_note(post: Post, clock: FakeClock) -> None:
    await post.owe("old")
    post.platform.fail(SendUnavailable(), times=1)
    await post.settle()
    clock.set_wall(clock.now() + 86_400 * 2)
    for _ in range(3):
        await post.delivery.stop(1)
        post.boot()
        post.platform.fail(SendUnavailable())
        await post.delivery.start()
        await post.settle()
    await post.pass_time(5)
    note, old = post.platform.texts()
    assert "late" in note
    assert old == "old"
    assert await post.store.owed() == []


async def test_an_answer_that_grows_old_in_its_back_off_says_so(
    post: Post, clock: FakeClock
) -> None:
    post.platform.fail(SendUnavailable(), times=2)
    await post.owe("a" * 150 + " " + "b" * 150)
    await post.settle()
    clock.set_wall(clock.now() + 86_400 * 2)
    await post.pass_time(120)
    note, first, second = post.platform.texts()
    assert "late" in note
    assert (first[0], second[0]) == ("a", "b")


async def test_a_machine_that_learns_the_time_makes_nothing_late(
    post: Post, clock: FakeClock
) -> None:
    """Started without a clock of its own, in 1970: answers were said to be of that year."""
    today = clock.now()
    clock.set_wall(30.0)
    post.platform.fail(SendUnavailable("no network yet"), times=3)
    await post.owe("one")
    await post.settle()
    clock.set_wall(today)
    await post.pass_time(60)
    assert post.platform.texts() == ["one"]


async def test_a_clock_set_back_makes_nothing_late(post: Post, clock: FakeClock) -> None:
    await post.store.owe(OutboxDraft(CHAT, "one"))
    clock.set_wall(clock.now() - 86_400 * 30)
    await post.delivery.start()
    await post.settle()
    assert post.platform.texts() == ["one"]


async def test_stopping_sends_what_goes_at_once(post: Post) -> None:
    post.platform.gate = asyncio.Event()
    await post.owe("a" * 150 + " " + "b" * 150)
    await post.owe("c")
    await post.settle()
    stopping = asyncio.ensure_future(post.delivery.stop(10))
    await post.settle()
    post.platform.gate.set()
    await post.settle()
    await stopping
    assert [t.strip()[-1] for t in post.platform.texts()] == ["a", "b", "c"]
    assert await post.store.owed() == []


async def test_stopping_waits_for_no_flood_and_no_back_off(post: Post) -> None:
    post.platform.fail(SendFlood(1000))
    await post.owe("one")
    await post.owe("two")
    await post.settle()
    await post.delivery.stop(10)
    assert post.platform.texts() == []
    post.boot()
    await post.delivery.start()
    await post.settle()
    assert post.platform.texts() == ["one", "two"]
    assert not any(repeat for *_, repeat in post.platform.calls)


async def test_a_slow_chat_halts_between_two_parts(post: Post) -> None:
    post.platform.delay = lambda: post.clock.sleep(4)
    for n in range(9):
        await post.owe(f"m{n}")
    await post.settle()
    stopping = asyncio.ensure_future(post.delivery.stop(7.5))
    await post.pass_time(12)
    await stopping
    assert post.platform.texts() == ["m0", "m1"]
    assert {p.state for item in await post.store.owed() for p in item.parts} <= {"planned"}


async def test_a_hanging_send_is_cut_off_and_repeated_later(post: Post) -> None:
    post.platform.gate = asyncio.Event()
    await post.owe("one")
    await post.settle()
    stopping = asyncio.ensure_future(post.delivery.stop(10))
    await post.pass_time(12)
    await stopping
    assert (await post.store.owed())[0].parts[0].state == "sending"


async def test_an_item_handed_over_twice_goes_out_once(post: Post) -> None:
    item = await post.owe("one")
    post.delivery.hand_over([item])
    await post.settle()
    post.delivery.hand_over([item])
    await post.delivery.refresh()
    await post.settle()
    assert post.platform.texts() == ["one"]


async def test_an_unknown_platform_keeps_its_answers(post: Post) -> None:
    await post.owe("one", Address("gone", "900", "111"))
    await post.settle()
    assert await post.states() == ["planned"]


async def test_typing_repeats_and_ends(post: Post) -> None:
    async with post.delivery.typing(CHAT):
        assert post.platform.typed == []  # a quick answer needs none
        await post.pass_time(10)
    count = len(post.platform.typed)
    assert count == 3
    await post.pass_time(30)
    assert len(post.platform.typed) == count


async def test_a_flood_of_typing_silences_the_chat(post: Post) -> None:
    post.platform.typing_flood = SendFlood(30.0)
    async with post.delivery.typing(CHAT):
        await post.pass_time(10)
        assert len(post.platform.typed) == 1
        await post.owe("one")
        await post.owe("elsewhere", OTHER)
        await post.pass_time(10)
        assert post.platform.texts() == ["elsewhere"]
        post.platform.typing_flood = None
        await post.pass_time(20)
    assert post.platform.texts("111") == ["one"]


async def test_chats_leave_nothing_behind(post: Post) -> None:
    for n in range(50):
        await post.owe("x", Address("fake", "900", str(n)))
    await post.settle()
    assert len(post.platform.chat) == 50
    assert not post.delivery._senders
    await post.pass_time(120)
    await post.owe("x")
    await post.settle()
    assert len(post.delivery._chats) == 1
