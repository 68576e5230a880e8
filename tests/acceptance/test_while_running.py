"""One conversation's trouble is its own: slow models, stops, a provider that is down."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.acceptance.harness import (
    OTHER_TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    open_world,
)
from tests.fakes.anthropic_server import Fault

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
]
Shared = tuple[World, Daemon]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    """One daemon for all of these tests: none of them may leave it any worse."""
    async with open_world(tmp_path_factory.mktemp("served")) as world:
        world.configure()
        yield world, await world.run()


@pytest_asyncio.fixture(loop_scope="module")
async def shared(served: Shared) -> AsyncIterator[Shared]:
    """The daemon of all, idle before and after."""
    world, daemon = served
    yield world, daemon
    world.anthropic.clear_script()
    world.anthropic.release()
    assert daemon.exit_code is None
    assert [(r.rule, r.message) for r in world.anthropic.rejected] == []
    await eventually(lambda: "running" not in world.database().states("turns"), 5.0, "turns over")


async def test_two_conversations_do_not_hold_each_other(shared: Shared) -> None:
    world, daemon = shared
    slow, quick, elsewhere = (
        TelegramChat(world),
        TelegramChat(world, OTHER_TELEGRAM_USER),
        DiscordChat(world),
    )
    world.anthropic.fault_next("hang", text="this one takes for ever")
    slow.say("this one takes for ever")
    await eventually(lambda: world.anthropic.records.in_flight == 1, 10.0, "the slow turn")
    for chat in (quick, elsewhere):
        chat.say("quick question")
        await answered(chat, "reply to: quick question", daemon)
    assert slow.shown() == []
    world.anthropic.release()
    await answered(slow, "reply to: this one takes for ever", daemon)


async def test_stop_acts_within_a_second(shared: Shared) -> None:
    world, daemon = shared
    stops = 0
    for chat in (TelegramChat(world), DiscordChat(world)):
        quickest = float("inf")
        # Again where the machine did something else meanwhile.
        while quickest >= 1.0 and len(chat.shown()) < 3:
            world.anthropic.fault_next("hang", text="count to a million")
            chat.say("count to a million")
            await eventually(lambda: world.anthropic.records.in_flight == 1, 10.0, "the slow turn")
            said, begun = len(chat.shown()), time.monotonic()
            chat.say("/stop")
            await eventually(
                lambda chat=chat, n=said: len(chat.shown()) > n, 20.0, "an answer", alive=daemon
            )
            quickest = min(quickest, time.monotonic() - begun)
            assert "Stopped" in chat.shown()[-1]
            stops += 1
            assert await world.anthropic.wait_idle(20.0)
        print(f"/stop on {chat.platform}: {quickest:.2f} s")
        assert quickest < 1.0
        said = len(chat.shown())
        chat.say("go on")
        # Both stand unanswered before the model: the stopped one, and this.
        await answered(chat, "go on", daemon)
        assert len(chat.shown()) == said + 1
    await eventually(
        lambda: world.database().states("turns").get("stopped") == stops, 5.0, "turns over"
    )


async def test_messages_during_a_turn_are_answered_in_order(shared: Shared) -> None:
    world, daemon = shared
    chat = TelegramChat(world)
    world.anthropic.fault_next("hang", text="first")
    chat.say("first")
    await eventually(lambda: world.anthropic.records.in_flight == 1, 10.0, "the first turn")
    for word in ("second", "third", "fourth"):
        chat.say(word)
    await eventually(
        lambda: world.database().states("inbox").get("new") == 3, 10.0, "three waiting rows"
    )
    world.anthropic.release()
    await answered(chat, "reply to: fourth", daemon)
    assert chat.shown() == [f"reply to: {w}" for w in ("first", "second", "third", "fourth")]


async def test_a_model_server_that_is_down(shared: Shared) -> None:
    """The user reads a kind text, not silence and not a stack trace; later it works."""
    world, daemon = shared
    chat = TelegramChat(world)
    down = world.anthropic.fault_next("drop", times=1000)
    chat.say("is anybody there?")
    shown = await answered(chat, "could not reach the model", daemon, seconds=60.0)
    assert len(shown) == 1
    down.times = 0
    chat.say("and now?")
    await answered(chat, "and now?", daemon)
    assert set(world.database().states("inbox")) == {"answered"}


async def test_a_broken_stream_is_tried_again(shared: Shared) -> None:
    """A tool call cut by a broken stream is never run, and the user sees one whole answer."""
    world, daemon = shared
    chat = TelegramChat(world)
    cut = Fault("drop_tool", tool="current_time", input={}, input_json='{"timezo')
    world.anthropic.fault_next(cut, text="what is it?")
    world.anthropic.fault_next("529", text="what is it?")
    chat.say("what is it?")
    await answered(chat, "reply to: what is it?", daemon)
    assert len(chat.shown()) == 1
    assert world.database().rows("SELECT * FROM messages WHERE role = 'tool'") == []


async def test_flood_control_holds_one_chat_only(shared: Shared) -> None:
    """429 with a waiting time: that chat waits, once, and the others are answered meanwhile."""
    world, daemon = shared
    flooded, other = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    rule = world.telegram.fault("flood", "sendMessage", chat_id=flooded.user_id, retry_after=3)
    begun = time.monotonic()
    flooded.say("slowly")
    await eventually(lambda: rule.hits == 1, 10.0, "the flood answer")
    other.say("quickly")
    await answered(other, "reply to: quickly", daemon)
    assert flooded.shown() == []
    await answered(flooded, "reply to: slowly", daemon)
    assert time.monotonic() - begun >= 3.0
    assert len([c for c in world.telegram.calls_of("sendMessage") if c.status == 429]) == 1
    assert len(flooded.shown()) == 1


async def test_a_network_that_was_gone(shared: Shared) -> None:
    """Both platforms drop their connections and come back by themselves; nothing is lost."""
    world, daemon = shared
    telegram, discord = TelegramChat(world), DiscordChat(world)
    telegram.say("before")
    discord.say("before")
    for chat in (telegram, discord):
        await answered(chat, "reply to: before", daemon)
    await eventually(lambda: set(world.database().states("outbox")) == {"sent"}, 10.0, "marks")
    await world.telegram.pause()
    world.discord.kill_sockets()
    telegram.say("meanwhile")
    discord.say("meanwhile")
    await world.telegram.resume()
    for chat in (telegram, discord):
        await answered(chat, "reply to: meanwhile", daemon, seconds=40.0)
        assert len(chat.shown()) == 2
