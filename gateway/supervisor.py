"""Owns the platforms' tasks: one each, with a state, started again with back-off when it fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.ports import Clock
from gateway.platforms.contract import (
    Intake,
    Platform,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
)

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PlatformStatus:
    """How a platform is, and why."""

    state: PlatformState
    reason: str = ""


class Supervisor:
    """Runs every platform until it ends by itself, needs the operator, or is stopped.

    A platform that fails does not touch the others.
    """

    def __init__(
        self,
        platforms: Sequence[Platform],
        intake: Intake,
        clock: Clock,
        *,
        on_running: Callable[[str], None] = lambda name: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``on_running`` is told the name of a platform each time it works (again)."""
        self._platforms = list(platforms)
        self._intake = intake
        self._clock = clock
        self._on_running = on_running
        self._jitter = jitter
        self._status = {p.name: PlatformStatus(PlatformState.STARTING) for p in platforms}
        self._changed = asyncio.Event()

    @property
    def platforms(self) -> Sequence[Platform]:
        """Those that it runs."""
        return tuple(self._platforms)

    @property
    def status(self) -> dict[str, PlatformStatus]:
        """By platform name."""
        return dict(self._status)

    @property
    def failed(self) -> bool:
        """At least one platform needs the operator."""
        return any(s.state is PlatformState.FAILED_CONFIG for s in self._status.values())

    @property
    def hopeless(self) -> bool:
        """Nothing runs and nothing will, until the operator changes the configuration."""
        return bool(self._status) and all(
            s.state is PlatformState.FAILED_CONFIG for s in self._status.values()
        )

    async def run(self) -> None:
        """Until every platform is over: ended by itself, or failed for good. Cancel to stop."""
        async with asyncio.TaskGroup() as group:
            for platform in self._platforms:
                group.create_task(self._keep(platform), name=f"platform-{platform.name}")

    async def wait_settled(self) -> None:
        """Until no platform is starting any more: each has shown how it is."""
        while any(s.state is PlatformState.STARTING for s in self._status.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _keep(self, platform: Platform) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            try:
                await platform.run(self._intake, self._reporter(platform.name))
            except PlatformConfigError as exc:
                self._set(platform.name, PlatformState.FAILED_CONFIG, str(exc))
                return
            except PlatformUnavailable as exc:
                reason = str(exc)
            except Exception as exc:  # the supervised border: one platform must not stop the rest
                log.exception("platform crashed", extra={"platform": platform.name})
                reason = f"{type(exc).__name__}, see the log"
            else:
                log.info("platform ended", extra={"platform": platform.name})
                self._set(platform.name, PlatformState.RUNNING, "ended")
                return
            if self._clock.monotonic() - started > LONGEST_BACKOFF_SECONDS:
                failures = 0
            pause = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures, 10))
            failures += 1
            self._set(platform.name, PlatformState.RETRYING, reason)
            await self._clock.sleep(pause * (0.75 + self._jitter() / 2))

    def _reporter(self, name: str) -> Callable[[PlatformState, str], None]:
        return lambda state, reason: self._set(name, state, reason)

    def _set(self, name: str, state: PlatformState, reason: str) -> None:
        status = PlatformStatus(state, reason)
        if self._status[name] == status:
            return
        self._status[name] = status
        quiet = state in (PlatformState.STARTING, PlatformState.RUNNING)
        log.log(
            logging.INFO if quiet else logging.WARNING,
            "platform state",
            extra={"platform": name, "state": state.value, "reason": reason},
        )
        self._changed.set()
        if state is PlatformState.RUNNING:
            self._on_running(name)
