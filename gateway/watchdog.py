"""Owns what the service manager hears: ready, how we are, alive while we are, stopping."""

from __future__ import annotations

import logging

from agent.ports import Clock
from agent.store_ports import Store
from gateway.liveness import beyond_help, store_beyond_help
from gateway.platforms.contract import PlatformState
from gateway.sdnotify import ServiceManager
from gateway.stacks import log_tasks, show_when_asked
from gateway.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""How often the platforms are looked at, if nobody waits to hear that all is well."""


class Watchdog:
    """Fed as long as all is well.

    A platform that nothing here can bring back needs a new process, and so does a store that does
    not come on: unfed, the manager makes one. Without a manager it stays at the loud words in the
    log, and the others go on.
    """

    def __init__(
        self, manager: ServiceManager, supervisor: Supervisor, store: Store, clock: Clock
    ) -> None:
        self._manager = manager
        self._supervisor = supervisor
        self._store = store
        self._clock = clock
        self._stopping = False
        self._long_work = ""
        """Of the store, as it was told last."""

    def ready(self) -> None:
        """All that can be up is up."""
        self._manager.ready(self._summary())
        log.info("ready", extra={"platforms": self._summary()})

    def stopping(self, within_seconds: float) -> None:
        """The end has begun; it is fed until then, whatever the platforms do."""
        self._stopping = True
        self._manager.alive()
        self._manager.stopping(within_seconds)

    async def feed(self) -> None:
        """For as long as the process lives."""
        watchdog_seconds = self._manager.watchdog_seconds
        show_when_asked()
        told = False
        every_seconds = LOOK_SECONDS if watchdog_seconds is None else watchdog_seconds / 2
        while True:
            lost = {} if self._stopping else self._beyond_help()
            for name, reason in lost.items():
                log.critical(
                    "only a new start helps this: the watchdog is not fed",
                    extra={"what": name, "reason": reason},
                )
            if not lost:
                self._manager.alive()
            elif not told:
                log_tasks()
            told = bool(lost)
            self._tell_of_long_work()
            trouble = self._store.trouble()
            if trouble is not None:
                log.critical("nothing can be stored", extra={"reason": trouble})
            self._manager.status(self._summary())
            await self._clock.sleep(every_seconds)

    def _beyond_help(self) -> dict[str, str]:
        judged = {n: beyond_help(v) for n, v in self._supervisor.vitals().items()}
        judged["store"] = store_beyond_help(self._store.at_work())
        return {name: reason for name, reason in judged.items() if reason is not None}

    def _tell_of_long_work(self) -> None:
        """Once for each: nobody is answered meanwhile, and that is how it should be."""
        work = self._store.at_work()
        what = "" if work is None or work.seconds < LOOK_SECONDS else work.what
        if what and work is not None and what != self._long_work:
            extra = {"what": what, "seconds": work.seconds, "bound_seconds": work.bound_seconds}
            log.warning("the store is at long work: what is to be stored waits", extra=extra)
        self._long_work = what

    def _summary(self) -> str:
        states = self._supervisor.status
        usual = (PlatformState.RUNNING, PlatformState.STARTING)
        trouble = self._store.trouble()
        lines = [] if trouble is None else [f"nothing can be stored ({trouble})"]
        lines += [
            f"{name} {s.state.value}" + (f" ({s.reason})" if s.state not in usual else "")
            for name, s in states.items()
        ]
        return ", ".join(lines)
