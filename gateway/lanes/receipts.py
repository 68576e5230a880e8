"""Owns what people are told while their message waits: only what is so, and not often."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.mail import Address
from agent.ports import Clock
from gateway import approval_text, texts
from gateway.lanes.jobs import Job
from gateway.lanes.lanes import Lanes
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

AFTER_SECONDS = 2.0
"""What is answered sooner needs no receipt."""
QUIET_SECONDS = 30.0
"""So long after a receipt none is said in the same lane."""


class Receipts:
    """Says that a message is in the queue: now or never, since its row says the same for ever.

    To be told of jobs whose rows are stored.
    """

    def __init__(
        self,
        lanes: Lanes,
        say: Callable[[Address, str], None],
        clock: Clock,
        *,
        goes_in: Callable[[str], bool],
        asks: Callable[[str], bool] = lambda session_key: False,
    ) -> None:
        """Take the parts.

        ``goes_in``: will all that waits in this lane be taken into what runs there?
        ``asks``: does what runs there wait for a person's yes or no?
        """
        self._lanes = lanes
        self._say = say
        self._clock = clock
        self._goes_in = goes_in
        self._asks = asks
        self._said_at: dict[str, float] = {}
        """By session key, as long as a lane has to be left in peace."""
        self._watched: set[str] = set()
        self._tasks = TaskOwner(clock)

    def __len__(self) -> int:
        """How many lanes are watched."""
        return len(self._watched)

    def queued(self, key: str, job: Job) -> None:
        """A person's message has come behind others. Returns at once."""
        if job.items[-1].record.address.platform == CONSOLE:
            job.told = True  # on a console one sees what is going on, and its output may be a file
        elif self._lanes.held:
            self._tell_now(key)
        elif key not in self._watched:
            self._watched.add(key)
            self._tasks.spawn(self._watch(key), name="receipt")

    def moved(self, old: str, new: str) -> None:
        """A lane has got another key."""
        if old in self._said_at:
            self._said_at[new] = max(self._said_at.pop(old), self._said_at.get(new, 0.0))
        for job in self._lanes.behind(new):
            self.queued(new, job)

    async def close(self, seconds: float) -> None:
        """End it; what was not said by then is never said."""
        await self._tasks.cancel(seconds)

    async def _watch(self, key: str) -> None:
        """As long as something waits there that nobody has been told of."""
        try:
            while (pause := self._pause(key, AFTER_SECONDS)) is not None:
                if pause > 0:
                    await self._clock.sleep(pause)
                else:
                    self._tell(key)
        finally:
            self._watched.discard(key)
            self._forget_old()

    def _tell_now(self, key: str) -> None:
        if self._pause(key, 0.0) == 0:
            self._tell(key)

    def _pause(self, key: str, after_seconds: float) -> float | None:
        """How long nothing is to be said here; None: there is nothing to say."""
        first = next((job for job in self._lanes.behind(key) if not job.told), None)
        if first is None:
            return None
        due = first.put_at + after_seconds
        if (said_at := self._said_at.get(key)) is not None:
            due = max(due, said_at + QUIET_SECONDS)
        return max(0.0, due - self._clock.monotonic())

    def _tell(self, key: str) -> None:
        """About the newest, whose sender looks at the chat now."""
        waiting = list(self._lanes.behind(key))
        if self._lanes.held:
            text = texts.KEPT_FOR_RESTART
        elif self._asks(key):
            text = approval_text.WAITS_FOR_ANSWER
        elif self._goes_in(key):
            text = texts.WILL_BE_TAKEN_IN
        else:
            text = texts.queued(len(waiting) - 1)
        for job in waiting:
            job.told = True
        self._said_at[key] = self._clock.monotonic()
        self._say(waiting[-1].items[-1].record.address, text)
        log.debug("receipt", extra={"waiting": len(waiting)})

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for key in [k for k, at in self._said_at.items() if now - at >= QUIET_SECONDS]:
            if key not in self._watched:
                del self._said_at[key]
