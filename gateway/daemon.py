"""Owns the life of the process: serve → startup → main loop → shutdown; signals and drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Iterator
from typing import Any

from gateway import hangups
from gateway.answers import Answers
from gateway.control_server import ControlServer
from gateway.crashes.shelf import folder_of
from gateway.daemon_parts import Parts
from gateway.monitoring.http import Facts
from gateway.reloading import Reloads
from gateway.tasks import TaskOwner, spawn, wait_all
from gateway.upkeep import keep_up
from gateway.watchdog import Watchdog

log = logging.getLogger(__name__)

CLEAN = 0
NO_PLATFORM = 78
RESTART_WANTED = 75
SETTLE_SECONDS = 20.0
"""How long start-up waits for each platform to show how it is, before it says ready anyway."""
LAST_SENDS_SECONDS = 5.0
"""How long replies that are done may still go out at the end."""
AHEAD_SECONDS = 1.0
"""How long a compression ahead of time may take to end, once the turns have ended."""
MICRO_SECONDS = 1.0
"""The same for micro-compaction."""
CLOSE_SECONDS = 5.0
"""How long each part may take to let go."""
LONGEST_END_SECONDS = 40.0
"""What all of a shutdown takes beyond the drain, if everything hangs; a test measures it."""


class Daemon:
    """One process, one home."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._tasks = TaskOwner(parts.clock)
        self._answers = Answers(parts, lambda: self.ready)
        self._control = ControlServer(
            parts.control_path, self._answers.handlers(), crashes=folder_of(parts.home)
        )
        self._platforms_task: asyncio.Task[None] | None = None
        self._watchdog = Watchdog(parts.manager, parts.supervisor, parts.store, parts.clock)
        self.ready = False

    async def serve(self) -> int:
        """Until a signal, a wish, the end of the last platform, or no hope; gives the exit code."""
        with self._signals():
            try:
                await self._startup()
                code = await self._main_loop()
            finally:
                await self._shutdown()
            # A stop that came during the way down is the later word.
            return CLEAN if code == RESTART_WANTED and self._stop.is_set() else code

    def status(self) -> dict[str, Any]:
        """What ``posthouse status`` prints, but for what the store has to be asked for."""
        return self._answers.status()

    def stop(self) -> None:
        """As SIGTERM."""
        self._stop.set()

    async def _startup(self) -> None:
        parts = self._parts
        if parts.overview is not None:
            parts.overview.start()
        # Before any platform hands in something new: what is owed, cut off, waiting.
        if parts.forgetting is not None:
            await parts.forgetting.resume()
        await parts.recovery.run()
        if not any(p is parts.console for p in parts.supervisor.platforms):
            self._tasks.spawn(
                parts.console.run(parts.intake, lambda state, reason: None), name="console"
            )
        await self._control.start()
        self._platforms_task = spawn(parts.supervisor.run(), name="platforms")
        settled = spawn(parts.supervisor.wait_settled(), name="platforms settling")
        stopping = spawn(self._told_to_end(), name="stop requested")
        timer = spawn(parts.clock.sleep(SETTLE_SECONDS), name="settle timer")
        await asyncio.wait(
            {settled, stopping, timer, self._platforms_task}, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (settled, stopping, timer):
            task.cancel()
        self.ready = not parts.supervisor.hopeless and not self._stop.is_set()
        if self.ready:
            self._watchdog.ready()
        if parts.overview is not None:
            self._tasks.spawn(parts.overview.warm(), name="memory when warm")
        self._tasks.spawn(self._watchdog.feed(), name="watchdog")
        self._tasks.spawn(keep_up(parts.store, parts.clock), name="upkeep")
        if parts.reloads is not None:
            self._tasks.spawn(self._reload_when_told(parts.reloads), name="reloads")
        if parts.ahead is not None:
            self._tasks.spawn(parts.ahead.sweep(), name="ahead")
        if parts.warm_up is not None:
            self._tasks.spawn(parts.warm_up(), name="warm-up")
        for number, work in enumerate(parts.beside):
            self._tasks.spawn(work(), name=f"beside {number}")
        if parts.http is not None and parts.metrics is not None:
            facts = Facts(
                self._answers.readiness,
                self._platform_states,
                parts.metrics.text,
                parts.store.trouble,
                parts.overview.refresh if parts.overview is not None else None,
            )
            self._tasks.spawn(parts.http.serve(facts), name="http")

    def _platform_states(self) -> dict[str, str]:
        return {n: s.state.value for n, s in self._parts.supervisor.status.items()}

    async def _main_loop(self) -> int:
        assert self._platforms_task is not None
        stopping = spawn(self._told_to_end(), name="stop requested")
        await asyncio.wait({stopping, self._platforms_task}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            return CLEAN
        if self._restart_wanted:
            log.info("restarting")
            return RESTART_WANTED
        self._platforms_task.result()  # a crash of the supervisor itself is ours
        # A console that came to its end does not make up for a platform that could not run.
        if self._parts.supervisor.failed:
            log.error("no platform can run; see the reasons above")
            return NO_PLATFORM
        return CLEAN

    async def _told_to_end(self) -> None:
        """By a signal, or by somebody who wants a restart."""
        wishes: list[asyncio.Task[Any]] = [spawn(self._stop.wait(), name="signal")]
        if self._parts.restarts is not None:
            wishes.append(spawn(self._parts.restarts.wait(), name="restart wanted"))
        try:
            await asyncio.wait(wishes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wish in wishes:
                wish.cancel()

    @property
    def _restart_wanted(self) -> bool:
        return self._parts.restarts is not None and self._parts.restarts.wanted

    async def _shutdown(self) -> None:
        parts = self._parts
        self.ready = False
        drain_seconds = parts.drain_seconds()
        self._watchdog.stopping(drain_seconds + LONGEST_END_SECONDS)
        if self._platforms_task is not None:
            self._platforms_task.cancel()
            await wait_all((self._platforms_task,), parts.clock, CLOSE_SECONDS)
        if parts.ahead is not None:
            parts.ahead.hold()
        if parts.micro is not None:
            parts.micro.hold()  # the turns of the drain are answered; more would be cut off
        if parts.approvals is not None:
            parts.approvals.close()
        report = await parts.lanes.drain(drain_seconds)
        if parts.ahead is not None:
            await parts.ahead.close(AHEAD_SECONDS)
        if parts.micro is not None:
            await parts.micro.close(MICRO_SECONDS)
        await parts.dispatch.close(CLOSE_SECONDS)
        if parts.forgetting is not None:
            await parts.forgetting.close()
        await parts.delivery.stop(LAST_SENDS_SECONDS)
        await self._tasks.cancel(1.0)
        # Side by side: what hangs must not add up to more than the service manager's patience.
        await asyncio.gather(
            *(self._let_go(p.close(), f"platform {p.name}") for p in parts.platforms),
            self._let_go(self._control.close(), "control socket"),
            *(self._let_go(close(), name) for name, close in parts.let_go),
        )
        # What plugins do at the end may still ask the model.
        await self._let_go(parts.model.aclose(), "model")
        await self._let_go(parts.store.close(), "store")
        if parts.overview is not None:
            parts.overview.stop()
        log.info(
            "stopped",
            extra={
                "all_turns_finished": report.finished,
                "interrupted_turns": report.interrupted,
                "waiting_messages": report.waiting,
            },
        )

    async def _reload_when_told(self, reloads: Reloads) -> None:
        """Signals that come while one is under way are one more."""
        while True:
            await self._reload.wait()
            self._reload.clear()
            await reloads.reload()

    async def _let_go(self, closing: Awaitable[None], what: str) -> None:
        """Close one part; one that hangs or fails must not keep the others open."""
        task = asyncio.ensure_future(closing)
        try:
            if not await wait_all((task,), self._parts.clock, CLOSE_SECONDS):
                log.warning("does not let go", extra={"part": what})
                task.cancel()
            elif task.exception() is not None:
                log.warning("failed to close", extra={"part": what}, exc_info=task.exception())
        except asyncio.CancelledError:
            task.cancel()
            raise

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        caught = (signal.SIGTERM, signal.SIGINT)
        for number in caught:
            loop.add_signal_handler(number, self._signalled, number)
        # Of a terminal that closes as well: it must not end the daemon without a drain.
        before = signal.getsignal(signal.SIGHUP)
        # Not by the loop's own way: taking that back leaves a moment in which the signal kills.
        signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(self._reload.set))
        if hangups.came():
            self._reload.set()
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)
            for number in caught:
                loop.remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("second signal: leaving at once", extra={"signal": number})
            os._exit(1)
        log.info("stopping", extra={"signal": signal.Signals(number).name})
        self._stop.set()
