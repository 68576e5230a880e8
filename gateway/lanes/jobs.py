"""Owns what is in a lane: jobs, the one that runs, and how it all looks from outside."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from agent.mail import InboxItem
from gateway.tasks import StopReason, StopSignal

BusyMode = Literal["queue", "interrupt", "steer"]
"""What a message does that comes while its conversation is at work."""
JobKind = Literal["message", "turn", "command"]
"""``message``: rows that will begin a turn, or go into one. ``turn``: rows that have begun it, or a
command that has become one."""


@dataclass(slots=True, eq=False)
class Job:
    """Something to do in a lane. ``run`` ends soon after its signal is asked to stop."""

    run: Callable[[StopSignal], Awaitable[None]]
    label: str
    items: list[InboxItem] = field(default_factory=list)
    """The rows that it answers. Until it begins, more may come to them."""
    kind: JobKind = "message"
    ready_at: float = -math.inf
    """It does not begin before that, by the monotonic clock."""
    put_at: float = 0.0
    """When it came into its lane."""
    key: str = ""
    """Of that lane."""
    closed: bool = False
    """No more rows may come to it."""
    waited: bool = False
    """It did not begin in the step in which it came: its rows may be others by now."""
    told: bool = False
    """Whoever sent it knows that it waits."""


@dataclass(slots=True, eq=False)
class Run:
    """The job that has the place at the head of its lane."""

    number: int
    job: Job
    over: asyncio.Future[None]
    stop: StopSignal = field(default_factory=StopSignal)
    began_at: float | None = None
    """By the monotonic clock; None: it waits for more of its message, or for a free place."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, reason: StopReason) -> None:
        """Tell it to end."""
        self.stop.request(reason)
        self.wake.set()


@dataclass(frozen=True, slots=True)
class LaneView:
    """How a lane is, for people."""

    running: JobKind | None = None
    running_seconds: float = 0.0
    waiting: int = 0
    """Jobs behind what runs."""
    oldest_seconds: float = 0.0
    """How long the first of them has waited."""


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How a shutdown left the lanes."""

    finished: bool
    """Every job that was running came to its own end."""
    interrupted: int
    waiting: int
    """Jobs that never started; their rows are replayed at the next start."""
