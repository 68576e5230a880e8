"""Owns what counts as alive: how long a platform may be silent, and when only a new process helps.

Silence is counted in time that the event loop lived through: a machine that was suspended, or a
loop that was blocked, is nobody's fault but its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agent.ports import Clock
from agent.store_ports import StoreWork
from gateway.platforms.contract import SIGN_OF_LIFE_SECONDS, PlatformState
from gateway.tasks import wait_all

TICK_SECONDS = 5.0
"""How often whoever waits looks at the time."""
MOST_SECONDS_PER_TICK = 2 * TICK_SECONDS
"""What counts of the time between two looks; beyond it the loop itself stood still."""
STARTING_SECONDS = 240.0
"""What a start may take without a word: a login and a patient first connection."""
DEGRADED_SECONDS = 180.0
"""What a platform that heals itself may take between two words."""
ENDING_SECONDS = 5.0
"""How long a cancelled platform may take to end, before it counts as stuck."""
STORE_SECONDS = 300.0
"""How long one transaction may take, before only a new process helps. They take milliseconds; a
disk that hangs for a while is waited for. Work on the whole file has a bound of its own."""
RESTART_SECONDS = 30.0
"""What the supervisor may take, beyond all that, to do something about it."""
_NEXT_TO_NOTHING = 1e-6


class Pulse:
    """When somebody last gave a sign of life."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._lived_seconds = 0.0
        self._signed_at = 0.0

    @property
    def silent_seconds(self) -> float:
        """Since the last sign, without the time in which the loop stood still."""
        return self._lived() - self._signed_at

    def sign(self) -> None:
        """Alive, and so is the loop."""
        self.tick()
        self._signed_at = self._lived_seconds

    def tick(self) -> None:
        """The loop came round: said at least every `TICK_SECONDS` by whoever watches."""
        self._lived_seconds, self._looked_at = self._lived(), self._clock.monotonic()

    def _lived(self) -> float:
        since = self._clock.monotonic() - self._looked_at
        return self._lived_seconds + min(max(since, 0.0), MOST_SECONDS_PER_TICK)


async def done_in_time(task: asyncio.Future[Any], clock: Clock, seconds: float) -> bool:
    """Wait for it, at most so long in lived time; cancels nothing. True: it is done."""
    pulse = Pulse(clock)
    while not task.done():
        left = seconds - pulse.silent_seconds
        if left <= _NEXT_TO_NOTHING:
            return False
        await wait_all((task,), clock, min(left, TICK_SECONDS))
        pulse.tick()
    return True


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is known about a platform's life."""

    state: PlatformState
    silent_seconds: float = 0.0
    """Since its last report, in lived time."""
    signs: bool = True
    """It gives signs at all; a console that nobody writes to does not."""
    resting: bool = False
    """Between two tries; the next one is scheduled."""
    ended: bool = False
    stuck: bool = False
    """It was cancelled and does not end."""

    @property
    def patience_seconds(self) -> float:
        """How long it may still be silent before it has to be started again."""
        if not self.signs or self.resting or self.ended:
            return float("inf")
        return longest_silence_seconds(self.state) - self.silent_seconds


def longest_silence_seconds(state: PlatformState) -> float:
    """How long a platform in this state may say nothing."""
    match state:
        case PlatformState.RUNNING:
            return SIGN_OF_LIFE_SECONDS
        case PlatformState.DEGRADED:
            return DEGRADED_SECONDS
        case PlatformState.STARTING | PlatformState.RETRYING:  # the next try has begun
            return STARTING_SECONDS
        case PlatformState.FAILED_CONFIG:
            return float("inf")


def is_overdue(vitals: Vitals) -> bool:
    """Has it been silent for so long that it has to be started again?"""
    return vitals.patience_seconds <= _NEXT_TO_NOTHING


def store_beyond_help(work: StoreWork | None) -> str | None:
    """Why nothing but a new process can help the store; None: it writes."""
    if work is None:
        return None
    if work.seconds == float("inf"):
        return "the thread that writes has ended"
    if work.seconds > (work.bound_seconds or STORE_SECONDS):
        return f"{work.what or 'one transaction'} has been under way for {work.seconds:.0f} s"
    return None


def beyond_help(vitals: Vitals) -> str | None:
    """Why nothing but a new process can help this platform; None while it lives or is retried."""
    if vitals.ended or vitals.state is PlatformState.FAILED_CONFIG:
        return None
    if vitals.stuck:
        return "it does not end when it is cancelled"
    if vitals.patience_seconds < -(ENDING_SECONDS + RESTART_SECONDS):
        return f"no sign of life for {vitals.silent_seconds:.0f} s, and nobody started it again"
    return None
