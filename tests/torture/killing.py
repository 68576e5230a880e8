"""Owns a run: the daemon killed again and again while everything happens at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from pathlib import Path

from tests.acceptance.faulty_daemon import POINTS
from tests.acceptance.harness import (
    DISCORD_USER,
    OTHER_DISCORD_USER,
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    Daemon,
    World,
    eventually,
)
from tests.acceptance.places import DiscordPlace, Place, TelegramPlace
from tests.fakes.ports import free_port
from tests.torture.facts import Fact, Telling
from tests.torture.happenings import HAPPENINGS, Stage, decide, plain
from tests.torture.judge import Judge

ANSWER_SECONDS = 90.0
LONGEST_LIFE_SECONDS = 1.5
"""Of a daemon, behind the last thing that happens to it."""
WINDOW_TOKENS = 16_000
"""Some pictures, and no more than a dozen long messages beside them."""
PLATFORMS = ("telegram", "discord")
BUSY_MODES = ("queue", "steer", "interrupt")


class Killing:
    """Tells facts in six places and kills whoever should answer them."""

    def __init__(self, world: World, hits: Path, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.telling = Telling(seed, self._is_answered)
        self.dice = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.moves = 0
        self._deck: list[str] = []
        self._hits = hits
        self._hook_port = free_port()
        guild = world.discord.add_guild("guild", owner=OTHER_DISCORD_USER)
        channel = world.discord.add_channel(guild, "general")
        self.group = TelegramPlace(world, TELEGRAM_USER, -5001)
        self.places: dict[str, Place] = {
            "telegram-ann": TelegramPlace(world, TELEGRAM_USER),
            "telegram-ben": TelegramPlace(world, OTHER_TELEGRAM_USER),
            "telegram-group": self.group,
            "discord-ada": DiscordPlace(world, DISCORD_USER),
            "discord-bob": DiscordPlace(world, OTHER_DISCORD_USER),
            "discord-channel": DiscordPlace(world, OTHER_DISCORD_USER, channel),
        }
        self.stages = [Stage(n, p, self.telling, self.dice) for n, p in self.places.items()]
        world.anthropic.responder = self.telling.respond

    async def run(self, kills: int) -> Judge:
        """Kill so often, then let everything be answered; the judge of it."""
        judge = Judge(self.world, self.telling, self.places)
        pressing = asyncio.create_task(self._decide_for_ever())
        try:
            await self._first_words(judge)
            moves = {kills // 3, 2 * kills // 3}
            for n in range(1, kills):
                await self._live_and_die(judge, catches_up=n % 2 == 0, moves=n in moves)
                if self.dice.random() < 0.3:
                    await self._something()  # while nobody is there to take it
            await self._last_words(judge)
        finally:
            pressing.cancel()
            await asyncio.gather(pressing, return_exceptions=True)
        return judge

    def _is_answered(self, fact: Fact) -> bool:
        query = "SELECT count(*) FROM messages WHERE role = 'assistant' AND instr(content, ?)"
        return bool(self.world.database().one(query, fact.last_line))

    async def _first_words(self, judge: Judge) -> None:
        """A channel that was never seen is outside the promise, so each is seen once."""
        daemon = await self._daemon().start().ready(*PLATFORMS)
        for stage in self.stages:
            await plain(stage)
        await self._hear(judge, daemon)
        await daemon.kill()
        self.kills["answered"] += 1

    async def _live_and_die(self, judge: Judge, *, catches_up: bool, moves: bool) -> None:
        # A turn that crashes three times without having come any further is set aside, and
        # rightly: so everything is answered before every second kill.
        armed = self._hits.with_suffix(f".{self.kills.total()}")
        daemon = self._daemon(armed)
        if catches_up:
            await self._hear(judge, daemon.start())
            armed.touch()
        else:
            armed.touch()
            daemon.start()
            if self.dice.random() < 0.7:
                await self._ready_or_dead(daemon)
        for _ in range(self.dice.randint(1, 4)):
            await self._something()
        if moves:
            self.moves += 1
            self.group.move(-1_001_000_005_000 - self.moves)
        await self._die(daemon, self.dice.uniform(0, LONGEST_LIFE_SECONDS))

    async def _ready_or_dead(self, daemon: Daemon) -> None:
        """It may spring its trap in its start."""
        ready = asyncio.ensure_future(daemon.ready(*PLATFORMS))
        await asyncio.wait([ready])
        if ready.exception() is not None and daemon.exit_code != -9:
            raise AssertionError(f"no start: {daemon.log_tail()}") from ready.exception()

    async def _die(self, daemon: Daemon, seconds: float) -> None:
        """At its point, or when the time is over."""
        with contextlib.suppress(AssertionError):
            await daemon.exited(seconds)
        at_point = daemon.exit_code is not None
        await daemon.kill()
        assert daemon.exit_code == -9, daemon.log_tail()
        self.kills["at a point" if at_point else "at random"] += 1

    async def _last_words(self, judge: Judge) -> None:
        daemon = await self._daemon().start().ready(*PLATFORMS)
        for stage in self.stages:
            await plain(stage)
        await self._hear(judge, daemon)
        await eventually(
            lambda: not judge.unsettled(), ANSWER_SECONDS, "everything settled",
            alive=daemon, seen=judge.unsettled,
        )  # fmt: skip
        code, _ = await daemon.terminate()
        assert code == 0

    async def _hear(self, judge: Judge, daemon: Daemon) -> None:
        def nothing_open() -> bool:
            return self.world.database().path.exists() and not judge.open_facts()

        await eventually(
            nothing_open, ANSWER_SECONDS, "every answer", alive=daemon, seen=judge.open_facts
        )

    async def _something(self) -> None:
        """Of each kind one, before any comes again."""
        if not self._deck:
            self._deck = self.dice.sample(list(HAPPENINGS), len(HAPPENINGS))
        await HAPPENINGS[self._deck.pop()](self.dice.choice(self.stages))

    async def _decide_for_ever(self) -> None:
        while True:
            for stage in self.stages:
                decide(stage)
            await asyncio.sleep(0.1)

    def _daemon(self, armed: Path | None = None) -> Daemon:
        """Another life in another mode; with a trap, if it may be armed."""
        busy, updates = self.dice.choice(BUSY_MODES), self.dice.choice(["polling", "webhook"])
        self.modes.update([busy, updates])
        url = f"http://127.0.0.1:{self._hook_port}/telegram"
        config = self.world.configure(
            model={"context_length": WINDOW_TOKENS},
            gateway={"drain_seconds": 3, "http": {"port": 0}, "busy_mode": busy},
            agent={"tools": {"shell": True}},
            telegram={
                "mode": updates,
                "webhook": {"url": url, "port": self._hook_port},
                "allow_chats": [-5001],
                "admins": [TELEGRAM_USER],
            },
            discord={"admins": [DISCORD_USER]},
        )
        if armed is None:
            return self.world.daemon()
        options = [
            "--point", self.dice.choice(POINTS), "--platform", self.dice.choice(PLATFORMS),
            "--hits", str(self._hits), "--armed", str(armed),
            "--occurrence", str(self.dice.randint(1, 2)),
        ]  # fmt: skip
        launcher = ("-m", "tests.acceptance.faulty_daemon", *options)
        return self.world.daemon(launcher=launcher, config=config)

    def figures(self, judge: Judge) -> str:
        """What it went through, in one line."""
        facts = self.telling.facts.values()
        lines = self._hits.read_text().splitlines() if self._hits.exists() else []
        points = Counter(json.loads(line)["point"] for line in lines)
        chains = sorted(len(chain) for chain in self.world.database().chains().values())
        return (
            f"seed {self.seed}: {self.kills.total()} kills {dict(self.kills)}, points"
            f" {dict(points)}, lives {dict(self.modes)}, {self.moves} moves, {len(facts)} facts"
            f" {dict(Counter(fact.happening for fact in facts))}, fates {dict(judge.fates)},"
            f" {judge.repeats} marked repeats, chains {chains}"
        )
