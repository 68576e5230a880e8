"""120 numbered messages over two platforms on a small window: whole, killed 25 times, and stopped.

Nothing may be lost, doubled or out of order, whatever happens to the process in between.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from gateway.texts import RESTARTING
from tests.acceptance.faulty_daemon import POINTS
from tests.acceptance.harness import (
    DISCORD_USER,
    MANAGED,
    OTHER_DISCORD_USER,
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    eventually,
    settled,
)
from tests.acceptance.road import (
    broken_prefixes,
    compressed_in_the_middle,
    cuts_moved_by_a_tool_group,
    fallback_summaries,
    pruned_rows,
    summaries_updated,
)
from tests.acceptance.talk import TAG, Kind, Said, Talk, with_marks
from tests.fakes.anthropic_server import Answer, Fault, Match, MessageRequest
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

PLATFORMS = ("telegram", "discord")
PER_CHAT = 30
PER_PLATFORM = 60
AT_ONCE = 2
"""Messages that a person sends ahead of the answers."""
DIGGING_FROM = 20
"""From this message on one chat is a new conversation, full of what tools found in the old one."""
ANSWER_SECONDS = 60.0
CHANGING: Sequence[Kind] = (
    "plain", "heavy", "clock", "emoji", "recall", "cjk", "long", "recall", "heavy", "plain",
)  # fmt: skip


def start_talk(world: World, seed: int) -> Talk:
    """Two chats on each platform, of four people, one of them in a guild's channel."""
    guild = world.discord.add_guild("guild", owner=OTHER_DISCORD_USER)
    channel = world.discord.add_channel(guild, "general")
    talk = Talk(
        {
            "telegram-1": TelegramChat(world, TELEGRAM_USER),
            "telegram-2": TelegramChat(world, OTHER_TELEGRAM_USER),
            "discord-1": DiscordChat(world, DISCORD_USER),
            "discord-2": DiscordChat(world, OTHER_DISCORD_USER, channel),
        },
        seed,
    )
    world.anthropic.responder = talk.respond
    print(f"seed {seed}")
    return talk


async def hear(talk: Talk, tags: Sequence[str], daemon: Daemon, left: int = 0) -> None:
    """Wait until at most ``left`` of these are without their answer."""
    await eventually(
        lambda: len(talk.unanswered(tags)) <= left,
        ANSWER_SECONDS,
        "every answer",
        alive=daemon,
        seen=lambda: talk.unanswered(tags),
    )


def assert_sound(world: World, talk: Talk) -> None:
    """Everything that has to hold at the end of every run."""
    database = world.database()
    assert [(r.rule, r.message) for r in world.anthropic.rejected] == []
    assert world.anthropic.stats()["crashed"] == 0
    assert talk.faults() == []
    assert talk.missing(database) == []
    assert database.unsettled() == {}
    assert database.integrity() == "ok"
    check_invariants(database.path)
    refused = [
        (call.method, call.status, call.description)
        for call in world.telegram.calls
        if call.status is not None and 400 <= call.status != 409
    ]
    # An admin's own menu, before that admin has written for the first time.
    assert {*refused} <= {("setMyCommands", 400, "Bad Request: chat not found")}
    assert [c for c in world.discord.calls if c.status >= 400] == []


def assert_stable_prefixes(world: World, talk: Talk, resets: int = 0) -> None:
    """The prompt cache holds, also over restarts: only a compression (or /new) may break it."""
    database = world.database()
    compressions = sum(len(chain) - 1 for chain in database.chains().values())
    broken = broken_prefixes(world, talk)
    print(f"broken prefixes: {broken}, compressions: {compressions}")
    assert sum(broken.values()) <= compressions + resets


def assert_long_chains(world: World, at_least: int = 4) -> None:
    """In every chat a conversation went through that many sessions."""
    database = world.database()
    chains = database.chains()
    lengths: dict[str, int] = {}
    for conversation in database.conversations():
        owner = conversation["owner"]
        lengths[owner] = max(lengths.get(owner, 0), len(chains[conversation["id"]]))
    print(f"sessions in each chain: {lengths}")
    assert len(lengths) == 4
    assert min(lengths.values()) >= at_least, lengths


# --- undisturbed --------------------------------------------------------------------------------


ROOMY_WINDOW = 8400
"""Room for the tools of today, and fourteen rounds of them in one turn."""


async def test_undisturbed(world: World) -> None:
    """Every message answered once and in order, and everything happens that has to be survived."""
    talk = start_talk(world, seed=1)
    world.anthropic.settings.window = ROOMY_WINDOW
    world.configure(model={"context_length": ROOMY_WINDOW})
    daemon = await world.run()
    too_long = Fault("too_long", tokens=ROOMY_WINDOW + 300, limit=ROOMY_WINDOW)
    overflow = Incident(world, talk, "telegram-2", too_long)
    overflow.script(summary=False, after_sessions=2)
    failure = Incident(world, talk, "discord-2", Fault("empty"))
    failure.script(summary=True, after_sessions=4)
    begun = time.monotonic()

    async def converse(chat: str) -> None:
        tags: list[str] = []
        for n in range(PER_CHAT):
            kind = CHANGING[n % len(CHANGING)]
            if n == 14 and chat.endswith("-1"):
                kind = "rounds"
            if chat == "telegram-2" and n >= DIGGING_FROM:
                kind = "dig"
            if chat == "telegram-2" and n == DIGGING_FROM:
                talk.chats[chat].say("/new")
            tags.append(talk.say(chat, kind).tag)
            await hear(talk, tags, daemon, left=AT_ONCE - 1)
        await hear(talk, tags, daemon)

    await asyncio.gather(*(converse(chat) for chat in talk.chats))
    seconds = time.monotonic() - begun
    await settled(world)
    code, _ = await daemon.terminate()

    database = world.database()
    print(f"120 messages in {seconds:.1f} s; notices: {Counter(talk.notices())}")
    assert code == 0
    assert_sound(world, talk)
    assert talk.repeats() == 0
    assert_long_chains(world)
    assert_stable_prefixes(world, talk, resets=1)
    assert pruned_rows(database) > 0
    assert cuts_moved_by_a_tool_group(database, window=ROOMY_WINDOW) > 0
    assert summaries_updated(world) > 0
    assert compressed_in_the_middle(database) > 0
    assert overflow.happened
    assert overflow.sessions_now() > overflow.sessions, "an overflow is answered by a compression"
    assert failure.happened
    assert failure.said_after() > 1, "the chat goes on after a failed summary"
    told = [notice for notice in talk.notices() if "could not be compressed" in notice]
    assert len(told) <= 1, "where somebody waited for it, the user is told, once"
    assert fallback_summaries(database) == 0


class Incident:
    """Something that goes wrong once at the model's side, in one chat, late enough."""

    def __init__(self, world: World, talk: Talk, chat: str, fault: Fault) -> None:
        self._world = world
        self._talk = talk
        self._chat = chat
        self._fault = fault
        self.sessions = 0
        self._said: int | None = None

    @property
    def happened(self) -> bool:
        return self._said is not None

    def script(self, *, summary: bool, after_sessions: int) -> Incident:
        """Let it happen to the first request that fits, once the chain has so many sessions."""

        def fits(request: MessageRequest) -> bool:
            return self._is_here(request) and self.sessions_now() >= after_sessions

        def happen(request: MessageRequest) -> Fault:
            self.sessions, self._said = self.sessions_now(), len(self._mine())
            return self._fault

        self._world.anthropic.when(Match(summary=summary, where=fits), happen)
        return self

    def sessions_now(self) -> int:
        """Sessions in this chat's chain."""
        database = self._world.database()
        mine = {said.text for said in self._mine()}
        for chain in database.chains().values():
            if any(row["content"] in mine for row in database.active(chain[0])):
                return len(chain)
        return 0

    def said_after(self) -> int:
        """Messages of this chat that came after it."""
        return len(self._mine()) - (self._said or 0)

    def _mine(self) -> list[Said]:
        return [said for said in self._talk.said.values() if said.chat == self._chat]

    def _is_here(self, request: MessageRequest) -> bool:
        tags = [tag for tag in TAG.findall(request.all_text) if tag in self._talk.said]
        return bool(tags) and self._talk.said[tags[-1]].chat == self._chat


# --- killed -------------------------------------------------------------------------------------

KILLS_AT_RANDOM = 12
"""Together with the first one and the twelve at named points: 25."""
FED_AT_RANDOM = 3
"""Messages on each platform while a kill at a random moment is waited for."""
KIND_FOR: Mapping[str, Sequence[Kind]] = {
    "after-inbox-commit": ("plain", "cjk", "emoji"),
    "before-tool-result-row": ("clock", "recall"),
    "inside-split": ("heavy",),
    "after-final-before-send": ("plain", "emoji", "recall"),
    "between-parts": ("long",),
    "after-send-before-mark": ("plain", "cjk", "long"),
}


async def test_killed_25_times(world: World, tmp_path: Path) -> None:
    """kill -9 at every named point on both platforms, and at as many random moments."""
    killing = Killing(world, start_talk(world, seed=2), tmp_path / "hits", seed=2)
    await killing.run(
        points=[(p, name) for p in POINTS for name in PLATFORMS],
        at_random=KILLS_AT_RANDOM,
        restarts=2,
    )
    assert_sound(world, killing.talk)
    assert_long_chains(world)
    assert_stable_prefixes(world, killing.talk)
    assert killing.hits() == Counter((p, name) for p in POINTS for name in PLATFORMS)
    killing.assert_restarts_were_told()
    print(killing.figures())


class Killing:
    """The talk of `start_talk`, with the daemon killed and started again and again."""

    def __init__(self, world: World, talk: Talk, hits: Path, seed: int) -> None:
        self.world = world
        self.talk = talk
        self.kills = 0
        self.restarts: Counter[str] = Counter()
        """By chat: how often /restart was said there, and heard."""
        self._hits = hits
        self._caught_up = False
        self._random = random.Random(seed)
        self._config = world.configure(
            telegram={"admins": [TELEGRAM_USER, OTHER_TELEGRAM_USER]},
            discord={"admins": [DISCORD_USER, OTHER_DISCORD_USER]},
        )
        self._chats = {
            name: itertools.cycle([n for n, chat in talk.chats.items() if chat.platform == name])
            for name in PLATFORMS
        }

    async def run(
        self,
        points: Sequence[tuple[str, str]],
        at_random: int,
        per_platform: int = PER_PLATFORM,
        restarts: int = 0,
    ) -> None:
        """Kill at all of these points and at random moments, then let everything be answered.

        ``restarts``: so often, in between, an admin says /restart in the middle of it.
        """
        await self._first_words()
        stages: list[tuple[str, str] | Literal["restart"] | None] = [
            *points, *([None] * at_random), *["restart" for _ in range(restarts)],
        ]  # fmt: skip
        self._random.shuffle(stages)
        for stage in stages:
            if stage == "restart":
                await self._restart()
                continue
            if stage is None:
                await self._kill_at_random()
            else:
                await self._kill_at_point(*stage)
            self.kills += 1
            # Some come while nobody is there to take them.
            if self._random.random() < 0.3:
                self._say(self._random.choice(PLATFORMS), "plain")
        daemon = await self.world.run()
        for platform in PLATFORMS:
            while self.talk.count(platform) < per_platform:
                self._say(platform, self._random.choice(CHANGING))
                await hear(self.talk, list(self.talk.said), daemon, left=2 * AT_ONCE)
        await hear(self.talk, list(self.talk.said), daemon)
        await settled(self.world)
        code, _ = await daemon.terminate()
        assert code == 0

    def assert_restarts_were_told(self) -> None:
        """Each once in its chat: that it begins, and that it is over."""
        for name, chat in self.talk.chats.items():
            shown = [text for text, repeat in with_marks(chat.shown()) if not repeat]
            begun = sum(RESTARTING in text for text in shown)
            over = sum(text.startswith("I am back") for text in shown)
            assert (begun, over) == (self.restarts[name],) * 2, name

    def figures(self) -> str:
        """What it went through, in one line."""
        database = self.world.database()
        chains = [len(chain) for chain in database.chains().values()]
        resumed = self.world.daemons[0].log_text().count('"message": "turn resumed"')
        return (
            f"{self.kills} kills, {self.restarts.total()} restarts, {len(self.talk.said)} messages,"
            f" {resumed} turns resumed, {self.talk.repeats()} marked repeats on Telegram, chains"
            f" {sorted(chains)}, {len(self.world.anthropic.rejected)} rejected requests"
        )

    def hits(self) -> Counter[tuple[str, str]]:
        """How often the process killed itself at which point."""
        lines = self._hits.read_text(encoding="utf-8").splitlines() if self._hits.exists() else []
        return Counter((hit["point"], hit["platform"]) for hit in map(json.loads, lines))

    async def _first_words(self) -> None:
        """A channel that was never seen is outside the promise, so each is seen once."""
        daemon = await self.world.run()
        said = [self.talk.say(chat, "plain").tag for chat in self.talk.chats]
        await hear(self.talk, said, daemon)
        await daemon.kill()
        self.kills += 1

    async def _kill_at_random(self) -> None:
        daemon = self.world.daemon().start()
        if not self._caught_up:
            await self._catch_up(daemon)
        else:
            self._caught_up = False
            if self._random.random() < 0.7:
                await daemon.ready()
        for platform in PLATFORMS:
            for _ in range(self._random.randint(1, FED_AT_RANDOM)):
                self._say(platform, self._random.choice(CHANGING))
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        await daemon.kill()

    async def _restart(self) -> None:
        """An admin's wish, with messages before and behind it."""
        secrets = {**self.world.secrets, **MANAGED}
        daemon = self.world.daemon(secrets=secrets).start()
        await daemon.ready(*PLATFORMS)
        platform = self._random.choice(PLATFORMS)
        chat = next(self._chats[platform])
        for _ in range(self._random.randint(0, 2)):
            self._say(platform, self._random.choice(CHANGING))
        self.talk.chats[chat].say("/restart")
        if self._random.random() < 0.5:
            self._say(platform, "plain")
        # Done in its own time: what is running may take the whole drain.
        code = await daemon.exited()
        assert code == 75, daemon.log_tail()
        self.restarts[chat] += 1

    async def _kill_at_point(self, point: str, platform: str) -> None:
        before = self.hits()[point, platform]
        armed = self._hits.with_suffix(f".armed{self.kills}")
        options = [
            "--point", point, "--platform", platform, "--hits", str(self._hits),
            "--armed", str(armed),
            "--occurrence", str(self._random.randint(1, 6) if point == "inside-split" else 1),
        ]  # fmt: skip
        daemon = self.world.daemon(
            launcher=("-m", "tests.acceptance.faulty_daemon", *options), config=self._config
        )
        if self._caught_up:
            # What is left over from the kill before may spring it, right in the start.
            armed.touch()
            daemon.start()
            self._caught_up = False
        else:
            await self._catch_up(daemon.start())
            armed.touch()
        deadline = time.monotonic() + ANSWER_SECONDS
        while daemon.exit_code is None:
            said = self._say(platform, self._random.choice(KIND_FOR[point]))
            while said.tag in self.talk.unanswered([said.tag]) and daemon.exit_code is None:
                assert time.monotonic() < deadline, f"{point} on {platform} was not reached"
                await asyncio.sleep(0.02)
        assert daemon.exit_code == -9, daemon.log_tail()
        assert self.hits()[point, platform] == before + 1

    async def _catch_up(self, daemon: Daemon) -> None:
        """Let everything be answered at least before every second kill.

        A turn that crashes three times without having come any further is set aside, and rightly.
        """
        await hear(self.talk, list(self.talk.said), daemon)
        self._caught_up = True

    def _say(self, platform: str, kind: Kind) -> Said:
        return self.talk.say(next(self._chats[platform]), kind)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
async def test_killed_very_often(world: World, tmp_path: Path, seed: int) -> None:
    """The same with other seeds, each point three times, and more at random."""
    points = [(p, name) for p in POINTS for name in PLATFORMS] * 3
    killing = Killing(world, start_talk(world, seed), tmp_path / "hits", seed)
    await killing.run(points=points, at_random=24, per_platform=180, restarts=8)
    print(killing.figures())
    assert_sound(world, killing.talk)
    assert killing.hits() == Counter(points)
    killing.assert_restarts_were_told()


# --- stopped ------------------------------------------------------------------------------------


@pytest.mark.parametrize("outlasts_the_drain", [False, True])
async def test_stopped_in_the_middle_of_turns(world: World, outlasts_the_drain: bool) -> None:
    """SIGTERM: what can end in time does, the rest goes on after the next start; exit code 0."""
    talk = start_talk(world, seed=3)
    drain_seconds = 2 if outlasts_the_drain else 15
    world.configure(gateway={"drain_seconds": drain_seconds})
    daemon = await world.run()
    first = [talk.say(chat, "plain").tag for chat in talk.chats]
    await hear(talk, first, daemon)

    slow = {talk.say(chat, "recall").tag for chat in talk.chats}
    waiting = [talk.say(chat, "plain").tag for chat in talk.chats]
    world.anthropic.when(
        Match(where=lambda request: (said := talk.asked(request)) is not None and said.tag in slow),
        Fault("hang") if outlasts_the_drain else slowed(talk, seconds=0.5),
        times=None,
    )
    await eventually(lambda: world.anthropic.records.in_flight >= 4, 10.0, "four turns at work")
    code, seconds = await daemon.terminate()

    assert code == 0
    assert seconds < drain_seconds + 8
    shown_in_time = set(slow) - set(talk.unanswered(slow))
    assert shown_in_time == (set() if outlasts_the_drain else slow)
    assert world.database().states("turns").get("running") is None

    world.anthropic.clear_script()
    world.anthropic.release()
    daemon = await world.run()
    await hear(talk, [*first, *slow, *waiting], daemon)
    await settled(world)
    code, _ = await daemon.terminate()
    assert code == 0
    assert_sound(world, talk)
    assert talk.repeats() == 0


def slowed(talk: Talk, seconds: float) -> Callable[[MessageRequest], Answer]:
    """The answer as it would have been, after a while."""
    return lambda request: replace(talk.respond(request), first_delay=seconds)
