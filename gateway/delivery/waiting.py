"""Owns how one chat's delivery waits, what wakes it, and which chats wait for their platform."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from agent.ports import Clock
from gateway.delivery.tries import Signs
from gateway.tasks import wait_all


class Leaving(Exception):
    """The daemon stops; what is not sent stays owed."""


class Waiting:
    """Of one chat."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._leaving = False
        self.halted = False
        self.signs = Signs()

    def wake(self) -> None:
        """Look again what there is to do."""
        self._wake.set()

    def arrived(self) -> None:
        """Something was taken by the platform."""
        self.signs = replace(self.signs, arrivals=self.signs.arrivals + 1)
        self.wake()

    def nudge(self) -> None:
        """The platform is back."""
        self.signs = replace(self.signs, nudges=self.signs.nudges + 1)
        self.wake()

    def leave(self) -> None:
        """End instead of waiting for anything."""
        self._leaving = True
        self.wake()

    def halt(self) -> None:
        """End before the next send."""
        self.halted = True
        self.leave()

    async def wait(self, seconds: float) -> None:
        """So long, or until something wakes it.

        Raises:
            Leaving: the daemon stops.
        """
        if not self._leaving and seconds > 0:
            wake = asyncio.ensure_future(self._wake.wait())
            try:
                await wait_all((wake,), self._clock, seconds)
            finally:
                wake.cancel()
            self._wake.clear()
        if self._leaving:
            raise Leaving

    async def pause(self, seconds: float, *, nudged: bool = True) -> None:
        """Wait; a nudge ends it early, unless the platform itself asked for the wait.

        Raises:
            Leaving: the daemon stops.
        """
        deadline, nudges = self._clock.monotonic() + seconds, self.signs.nudges
        while (left := deadline - self._clock.monotonic()) > 0:
            await self.wait(left)
            if nudged and self.signs.nudges != nudges:
                return


BotKey = tuple[str, str]
"""Platform and bot."""


class Queues:
    """Which chats wait for their bot to be heard again: what one gets through, all learn."""

    def __init__(self) -> None:
        self._listening: dict[BotKey, dict[Waiting, int]] = {}
        self._leading: dict[BotKey, Waiting] = {}

    def __len__(self) -> int:
        """How many bots anything is remembered of."""
        return len(self._listening.keys() | self._leading.keys())

    def arrived(self, bot: BotKey) -> None:
        """Something was taken."""
        for waiting in list(self._listening.get(bot, ())):
            waiting.arrived()

    @contextmanager
    def listens(self, bot: BotKey, waiting: Waiting) -> Iterator[None]:
        """While the block runs, this chat wants to know."""
        here = self._listening.setdefault(bot, {})
        here[waiting] = here.get(waiting, 0) + 1
        try:
            yield
        finally:
            here[waiting] -= 1
            if not here[waiting]:
                del here[waiting]
            if not here and self._listening.get(bot) is here:
                del self._listening[bot]

    def leads(self, bot: BotKey, waiting: Waiting) -> bool:
        """Is this the one chat that asks often? The first one that wants to be."""
        return self._leading.setdefault(bot, waiting) is waiting

    def lead_no_more(self, bot: BotKey, waiting: Waiting) -> None:
        """Somebody else may."""
        if self._leading.get(bot) is waiting:
            del self._leading[bot]
