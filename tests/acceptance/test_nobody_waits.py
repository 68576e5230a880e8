"""The turn that crosses the threshold: it waits for no summary that is prepared, else for one."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.harness import Daemon, TelegramChat, World, answered, eventually, settled
from tests.fakes.anthropic_server import Answer, Fault, Match, MessageRequest, summary_text

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

SUMMARY_SECONDS = 3.0
# Room, in tokens, beside the tool list: a chat that has just been compressed is below the level
# at which the next summary is prepared, so that one summary can be told from the next.
WINDOW = 10_000
SAID = "the courier changes horses and carries the same letter on " * 10


class Journey:
    """One chat that grows towards its threshold."""

    def __init__(self, world: World, daemon: Daemon) -> None:
        self.world = world
        self.daemon = daemon
        self.chat = TelegramChat(world)
        self.said = 0

    @property
    def summaries(self) -> int:
        return len(self.world.anthropic.summary_requests)

    def lines(self, message: str) -> list[dict[str, object]]:
        return [line for line in self.daemon.log_lines() if line.get("message") == message]

    async def say(self) -> int:
        """A message and its answer; its number."""
        self.said += 1
        self.chat.say(f"stage {self.said}: {SAID}")
        await answered(self.chat, f"stage {self.said}:", self.daemon)
        return self.said

    async def until(self, message: str) -> None:
        await eventually(
            lambda: bool(self.lines(message)), 20.0, f"{message!r} in the log", alive=self.daemon
        )

    async def say_until(self, message: str) -> int:
        """Go on until the log says so; how many messages that took."""
        first = self.said
        while not self.lines(message):
            assert self.said - first < 20, message
            await self.say()
        return self.said - first


def slow(request: MessageRequest) -> Answer:
    return Answer(summary_text(request, None), first_delay=SUMMARY_SECONDS)


async def journey(world: World, **compression: object) -> Journey:
    world.anthropic.when(Match(summary=True), slow, times=None)
    world.anthropic.settings.window = WINDOW
    world.configure(model={"context_length": WINDOW}, compression=compression)
    return Journey(world, await world.run("telegram"))


def sound(world: World, said: int) -> None:
    """Every message is there once, in one chain without a second child."""
    database = world.database()
    originals = [str(row["content"]) for row in database.originals()]
    assert [text.split(":")[0] for text in originals] == [f"stage {n + 1}" for n in range(said)]
    assert database.integrity() == "ok"
    children = database.rows(
        "SELECT parent_session_id AS parent, count(*) AS n FROM sessions"
        " WHERE link = 'continuation' GROUP BY 1"
    )
    assert all(row["n"] == 1 for row in children)


async def test_prepared(world: World) -> None:
    world.anthropic.when(Match(summary=True), Fault("hang"))
    road = await journey(world)
    while not road.summaries:  # the level is reached, and a turn has ended
        assert road.said < 20
        await road.say()
        await asyncio.sleep(0.1)
    # Nothing waits for the summary that is being written.
    await road.say()
    assert not road.lines("compression prepared")
    world.anthropic.release()
    await road.until("compression prepared")
    await road.say_until("compression swapped in")
    assert road.summaries == 1
    # The model was asked for the summary and for the answers, and for nothing in between.
    assert not road.lines("compression done")
    await road.say()
    await settled(world)
    sound(world, road.said)


async def test_not_prepared(world: World) -> None:
    road = await journey(world, background=False)
    await road.say_until("compression done")
    assert road.summaries == 1
    (line,) = road.lines("compression done")
    assert float(str(line["seconds"])) >= SUMMARY_SECONDS
    assert not road.lines("compression prepared")
    sound(world, road.said)


@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_ended_while_it_is_prepared(world: World, how: str) -> None:
    road = await journey(world)
    while not road.summaries:
        await road.say()
        await asyncio.sleep(0.1)
    if how == "kill":
        await road.daemon.kill()
    else:
        code, _ = await road.daemon.terminate()
        assert code == 0
    road.daemon = await world.run("telegram")
    while len(world.database().rows("SELECT id FROM sessions")) < 2:
        assert road.said < 24
        await road.say()
        # Nobody writes twenty messages in the three seconds that a summary takes.
        await eventually(lambda: world.anthropic.records.in_flight == 0, 20.0, "nothing asked")
    assert road.summaries <= 2  # at most one call is repeated
    await settled(world)
    sound(world, road.said)


async def test_killed_when_it_is_prepared(world: World) -> None:
    road = await journey(world)
    while not road.lines("compression prepared"):
        if not road.summaries:
            await road.say()
        await asyncio.sleep(0.1)
    await road.daemon.kill()
    road.daemon = await world.run("telegram")
    await road.say_until("compression swapped in")
    assert road.summaries == 1
    await settled(world)
    sound(world, road.said)
