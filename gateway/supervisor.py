"""Owns the platforms' tasks: one each, with a state, started again if it fails or is silent."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agent.ports import Clock
from gateway.liveness import ENDING_SECONDS, TICK_SECONDS, Pulse, Vitals, done_in_time, is_overdue
from gateway.pauses import LONGEST_WISH_SECONDS, RECOVERY_SECONDS, backoff_seconds
from gateway.platforms.contract import (
    Intake,
    Platform,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
)
from gateway.tasks import wait_all

log = logging.getLogger(__name__)

HEALTHY_SECONDS = 60.0
"""Having worked for so long, a platform begins with the shortest pause again."""
CONFIG_DOUBTS = 2
"""So often a refused token is asked about again where it has worked before: during incidents
servers refuse what is right, and nobody but the operator heals a platform that gave up."""
CONFIG_DOUBT_SECONDS = 20.0
_WELL = (PlatformState.STARTING, PlatformState.RUNNING)


@dataclass(frozen=True, slots=True)
class PlatformStatus:
    """How a platform is, and why."""

    state: PlatformState
    reason: str = ""


class _Charge:
    """One platform, and what the supervisor knows about it."""

    def __init__(self, platform: Platform, clock: Clock, *, signs: bool) -> None:
        self.platform = platform
        self.name = platform.name
        self.status = PlatformStatus(PlatformState.STARTING)
        self.pulse = Pulse(clock)
        self.signs = signs
        self.run = 0
        """The run whose reports count; an earlier one that still moves has nothing to say."""
        self.resting = self.ended = self.stuck = False
        self.has_worked = False
        self.proven = False
        """It has worked for a while since the last failure."""
        self.running_since: float | None = None
        self.troubled_since: float | None = None

    @property
    def vitals(self) -> Vitals:
        return Vitals(
            self.status.state,
            self.pulse.silent_seconds,
            signs=self.signs,
            resting=self.resting,
            ended=self.ended,
            stuck=self.stuck,
        )


class Supervisor:
    """Runs every platform until it ends by itself, needs the operator, or is stopped.

    A platform that fails does not touch the others. One that works and falls silent
    (`gateway.platforms.contract.SIGN_OF_LIFE_SECONDS`) is cancelled and started again; one that
    does not even end then is stuck, and stays so until it ends or the process does.
    """

    def __init__(
        self,
        platforms: Sequence[Platform],
        intake: Intake,
        clock: Clock,
        *,
        on_running: Callable[[str], None] = lambda name: None,
        jitter: Callable[[], float] = random.random,
        without_signs: Collection[str] = (),
    ) -> None:
        """``on_running`` is told the name of a platform each time it works (again).

        ``without_signs`` names those of whom no signs of life are expected.
        """
        self._charges = [_Charge(p, clock, signs=p.name not in without_signs) for p in platforms]
        self._intake = intake
        self._clock = clock
        self._on_running = on_running
        self._jitter = jitter
        self._changed = asyncio.Event()

    @property
    def platforms(self) -> Sequence[Platform]:
        """Those that it runs."""
        return tuple(charge.platform for charge in self._charges)

    @property
    def status(self) -> dict[str, PlatformStatus]:
        """By platform name."""
        return {charge.name: charge.status for charge in self._charges}

    @property
    def troubled_seconds(self) -> dict[str, float]:
        """By platform name: since when it does not work; 0: it does."""
        since, now = ((c.name, c.troubled_since) for c in self._charges), self._clock.monotonic()
        return {name: 0.0 if at is None else now - at for name, at in since}

    @property
    def failed(self) -> bool:
        """At least one platform needs the operator."""
        return any(s.state is PlatformState.FAILED_CONFIG for s in self.status.values())

    @property
    def hopeless(self) -> bool:
        """Nothing runs and nothing will, until the operator changes the configuration."""
        return bool(self._charges) and all(
            s.state is PlatformState.FAILED_CONFIG for s in self.status.values()
        )

    def vitals(self) -> dict[str, Vitals]:
        """By platform name; looked at now and then by whoever feeds the watchdog."""
        for charge in self._charges:
            charge.pulse.tick()
        return {charge.name: charge.vitals for charge in self._charges}

    async def run(self) -> None:
        """Until every platform is over: ended by itself, or failed for good. Cancel to stop."""
        async with asyncio.TaskGroup() as group:
            for charge in self._charges:
                group.create_task(self._keep(charge), name=f"keeper-{charge.name}")

    async def wait_settled(self) -> None:
        """Until no platform is starting any more: each has shown how it is."""
        while any(s.state is PlatformState.STARTING for s in self.status.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _keep(self, charge: _Charge) -> None:
        failures = doubts = 0
        while True:
            error = await self._run(charge)
            if error is None:
                log.info("platform ended", extra={"platform": charge.name})
                charge.ended = True
                self._set(charge, PlatformState.RUNNING, "its input has ended")
                return
            self._no_longer_running(charge)
            if charge.proven:
                failures = doubts = 0
                charge.proven = False
            match error:
                case _Silent():  # it has been waited for long enough
                    self._set(charge, PlatformState.RETRYING, str(error))
                    continue
                case PlatformConfigError() if not charge.has_worked or doubts >= CONFIG_DOUBTS:
                    self._set(charge, PlatformState.FAILED_CONFIG, str(error))
                    return
                case PlatformConfigError():
                    doubts += 1
                    pause, reason = CONFIG_DOUBT_SECONDS, f"{error} (it has worked; asking again)"
                case PlatformUnavailable():
                    pause = backoff_seconds(failures, self._jitter(), RECOVERY_SECONDS)
                    pause = max(pause, min(error.retry_after_seconds, LONGEST_WISH_SECONDS))
                    reason = str(error)
                    failures += 1
                case _:
                    log.error("platform crashed", extra={"platform": charge.name}, exc_info=error)
                    pause = backoff_seconds(failures, self._jitter())
                    reason = f"{type(error).__name__}, see the log"
                    failures += 1
            self._set(charge, PlatformState.RETRYING, reason)
            charge.resting = True
            await self._clock.sleep(pause)
            charge.resting = False

    async def _run(self, charge: _Charge) -> BaseException | None:
        """Run it once; why it is over (None: it came to its own end)."""
        charge.run += 1
        charge.pulse.sign()
        run = charge.run

        def report(state: PlatformState, reason: str) -> None:
            if charge.run == run:
                self._reported(charge, state, reason)

        # The supervised border: whatever comes out of it is looked at, and touches nobody else.
        task = asyncio.get_running_loop().create_task(
            charge.platform.run(self._intake, report), name=f"platform-{charge.name}"
        )
        try:
            if not await self._attend(charge, task):
                silence = _Silent(charge.pulse.silent_seconds)
                charge.run += 1
                await self._end(charge, task)
                return silence
        finally:
            charge.run += 1
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            return PlatformUnavailable("it was cancelled from inside")
        return task.exception()

    async def _attend(self, charge: _Charge, task: asyncio.Task[None]) -> bool:
        """Until the run is over; False: it is silent for too long."""
        if not charge.signs:
            await asyncio.wait({task})
        while not task.done():
            if is_overdue(charge.vitals):
                return False
            left = min(charge.vitals.patience_seconds, TICK_SECONDS)
            await wait_all((task,), self._clock, left)
            charge.pulse.tick()
        return True

    async def _end(self, charge: _Charge, task: asyncio.Task[None]) -> None:
        """Cancel it until it ends."""
        silent = round(charge.pulse.silent_seconds)
        log.warning(
            "platform is silent: starting it again",
            extra={"platform": charge.name, "silent_seconds": silent},
        )
        task.cancel()
        while not await done_in_time(task, self._clock, ENDING_SECONDS):
            if not charge.stuck:
                charge.stuck = True
                log.critical("platform does not end", extra={"platform": charge.name})
                reason = f"silent for {silent} s, and stuck: only a restart of posthouse helps"
                self._set(charge, PlatformState.RETRYING, reason)
            task.cancel()
        if charge.stuck:
            charge.stuck = False
            log.warning("platform has ended after all", extra={"platform": charge.name})
        if not task.cancelled() and task.exception() is not None:
            log.warning(
                "silent platform failed at its end",
                extra={"platform": charge.name},
                exc_info=task.exception(),
            )

    def _no_longer_running(self, charge: _Charge) -> None:
        since, charge.running_since = charge.running_since, None
        if since is not None and self._clock.monotonic() - since >= HEALTHY_SECONDS:
            charge.proven = True

    def _reported(self, charge: _Charge, state: PlatformState, reason: str) -> None:
        charge.pulse.sign()
        if state is PlatformState.STARTING and charge.troubled_since is not None:
            return  # why it has to be started again is worth more
        self._set(charge, state, reason)

    def _set(self, charge: _Charge, state: PlatformState, reason: str) -> None:
        before, charge.status = charge.status, PlatformStatus(state, reason)
        if before == charge.status:
            return
        level = logging.INFO if state in _WELL else logging.WARNING
        if state is PlatformState.FAILED_CONFIG:
            level = logging.ERROR  # it waits for a person: who only sees errors has to see this one
        log.log(
            level,
            "platform state",
            extra={"platform": charge.name, "state": state.value, "reason": reason},
        )
        self._changed.set()
        if state is PlatformState.RUNNING:
            self._works(charge, before)
            return
        self._no_longer_running(charge)
        if state not in _WELL and charge.troubled_since is None:
            charge.troubled_since = self._clock.monotonic()

    def _works(self, charge: _Charge, before: PlatformStatus) -> None:
        now = self._clock.monotonic()
        charge.has_worked = True
        if charge.running_since is None:
            charge.running_since = now
        if charge.troubled_since is not None:
            extra = {
                "platform": charge.name,
                "after_seconds": round(now - charge.troubled_since, 1),
                "reason": before.reason,
            }
            log.info("platform recovered", extra=extra)
            charge.troubled_since = None
        self._on_running(charge.name)


class _Silent(Exception):
    """It gave no sign of life for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no sign of life for {seconds:.0f} s; started again")
