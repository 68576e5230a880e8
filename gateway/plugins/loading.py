"""Owns loading: one plugin after the other, on threads of our own, each with a deadline."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from agent import daemon_threads
from agent.daemon_threads import DaemonThreads
from agent.errors import PosthouseError
from agent.ports import Clock
from gateway.plugins import importing
from gateway.plugins.collected import Collected
from gateway.plugins.context import PluginContext
from gateway.plugins.discovery import Found, Role, Source, in_force
from gateway.plugins.importing import Register, forget, import_plugin
from gateway.plugins.manager import PluginRecord, PluginState, hooks_noted_in
from gateway.plugins.manifest import plain_line
from gateway.plugins.needs import missing, written_by_anybody
from gateway.plugins.putting_back import SharedState
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames
from gateway.tasks import wait_all

log = logging.getLogger(__name__)

ONE_SECONDS = 10.0
"""How long importing and registering one plugin may take."""
ALL_SECONDS = 30.0
"""How long all of them may take together: the start waits no longer."""
TRACE_LINES = 12
_OURS = (__file__, importing.__file__, daemon_threads.__file__, "<frozen importlib")
MANY = 200
"""Threads: a plugin that hangs keeps one for good."""


class PluginLoader:
    """Loads plugins for one process."""

    def __init__(
        self,
        settings: PluginSettings,
        names: TakenNames,
        clock: Clock,
        env: Mapping[str, str],
        threads: DaemonThreads | None = None,
    ) -> None:
        self._settings = settings
        self._names = names
        self._clock = clock
        self._env = env
        self._threads = threads or DaemonThreads(MANY, name="plugins")

    async def load_all(self, found: Sequence[Found]) -> list[PluginRecord]:
        """Load what is enabled or selected; a record for each, in their order.

        What is selected by name and is there twice is loaded from the first place that has it.
        """
        counting, overridden = in_force(found)
        end = self._clock.monotonic() + ALL_SECONDS
        records: dict[int, PluginRecord] = {}
        selected: set[Role] = set()
        for plugin in sorted(counting, key=_turn):
            again = plugin.role is not Role.GENERAL and plugin.role in selected
            if self._settings.is_disabled(plugin):
                record = PluginRecord(plugin, PluginState.DISABLED, "plugins.disabled names it")
            elif not self._settings.is_selected(plugin):
                record = self._only_noted(plugin)
            elif again:
                record = PluginRecord(
                    plugin, PluginState.OVERRIDDEN, "an earlier place has one of this name"
                )
            else:
                record = await self.load(plugin, end - self._clock.monotonic())
                selected.add(plugin.role)
            records[id(plugin)] = record
        for plugin, by in overridden:
            records[id(plugin)] = _overridden(plugin, by)
        return [records[id(plugin)] for plugin in found]

    def only_noted_all(self, found: Sequence[Found]) -> list[PluginRecord]:
        """A record for each, in their order; imports none."""
        _, overridden = in_force(found)
        by = {id(plugin): other for plugin, other in overridden}
        return [
            _overridden(plugin, by[id(plugin)])
            if id(plugin) in by
            else PluginRecord(plugin, PluginState.DISABLED, "plugins.disabled names it")
            if self._settings.is_disabled(plugin)
            else self._only_noted(plugin)
            for plugin in found
        ]

    def _only_noted(self, plugin: Found) -> PluginRecord:
        """One that nobody has asked for: not imported."""
        if plugin.error:
            asked = self._settings.is_selected(plugin)
            state = PluginState.FAILED if asked else PluginState.UNUSABLE
            return PluginRecord(plugin, state, plugin.error)
        return PluginRecord(plugin, PluginState.NOT_ENABLED, how_to_get(plugin))

    async def load(self, plugin: Found, seconds_left: float = ALL_SECONDS) -> PluginRecord:
        """Import one and let it register; never raises."""
        if plugin.error:
            return self._failed(plugin, plugin.error)
        if seconds_left <= 0:
            return PluginRecord(
                plugin,
                PluginState.LATE,
                f"not begun: those before it took all of the {ALL_SECONDS:.0f} s that loading has",
            )
        needs = (
            *plugin.manifest.remarks,
            *missing(plugin.manifest, self._env),
            *written_by_anybody(*_places(plugin)),
        )
        shared, begun = SharedState(), self._clock.monotonic()
        before = set(sys.modules)
        collected = Collected()
        future = self._threads.submit(lambda: self._run(plugin, collected))
        deadline = min(ONE_SECONDS, seconds_left)
        await self._wait(future, deadline)
        collected.closed = True
        changed = shared.put_back()
        if changed:
            needs = (*needs, f"it changed, and it was put back: {', '.join(changed)}")
        took = self._clock.monotonic() - begun
        if not future.done():
            reason = f"did not finish within {deadline:.0f} s; what it still gives is not taken"
            log.error("plugin is late", extra={"plugin": plugin.key, "seconds": deadline})
            self._names.release(plugin.key)
            return PluginRecord(plugin, PluginState.LATE, reason, remarks=needs, seconds=took)
        problem = future.exception()
        reason = _words(problem) if problem is not None else _not_what_it_is_for(plugin, collected)
        if reason:
            forget(plugin, before)
            trace = _trace(problem) if problem is not None else ()
            return self._failed(plugin, reason, trace, (*needs, *collected.refused), took)
        log.info(
            "plugin loaded",
            extra={
                "plugin": plugin.key,
                "version": plugin.manifest.version,
                "seconds": round(took, 3),
                "gives": ", ".join(collected.gives()) or "nothing",
            },
        )
        return PluginRecord(
            plugin,
            PluginState.LOADED,
            remarks=(*needs, *(f"not taken: {line}" for line in collected.refused)),
            seconds=took,
            collected=collected,
            register_again=self._again(plugin, future.result()),
        )

    def _run(self, plugin: Found, collected: Collected) -> Register:
        with hooks_noted_in(collected):
            register = import_plugin(plugin)
            register(PluginContext(plugin, collected, self._settings, self._names))
        return register

    def _again(self, plugin: Found, register: Register) -> Callable[[], Collected]:
        def call() -> Collected:
            collected = Collected()
            with hooks_noted_in(collected):
                register(PluginContext(plugin, collected, self._settings, self._names))
            collected.closed = True
            return collected

        return call

    async def _wait(self, future: Future[Register], seconds: float) -> None:
        waiting = asyncio.wrap_future(future)
        try:
            await wait_all((waiting,), self._clock, seconds)
        finally:
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # seen
            waiting.cancel()

    def _failed(
        self,
        plugin: Found,
        reason: str,
        trace: tuple[str, ...] = (),
        remarks: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> PluginRecord:
        log.error("plugin failed", extra={"plugin": plugin.key, "reason": reason})
        for line in trace:
            log.debug("plugin failed: %s", line)
        self._names.release(plugin.key)
        return PluginRecord(plugin, PluginState.FAILED, reason, trace, remarks, seconds)


def _overridden(plugin: Found, by: Found) -> PluginRecord:
    return PluginRecord(plugin, PluginState.OVERRIDDEN, f"the one from {by.where} counts")


def how_to_get(plugin: Found) -> str:
    """What has to stand in config.yaml for it to be loaded."""
    match plugin.role:
        case Role.GENERAL:
            return f"plugins.enabled: [{plugin.key}]"
        case Role.ENGINE:
            return f"context.engine: {plugin.key.rsplit('/', 1)[-1]}"
        case Role.MEMORY:
            return f"memory.provider: {plugin.names_of_provider[0]}"


def _places(plugin: Found) -> list[Path]:
    """Whoever may write to one of these says what the plugin does."""
    if plugin.folder is None:
        return []
    there = plugin.folder.resolve()
    return [plugin.folder.parent, there, *([plugin.file] if plugin.file is not None else [])]


def _turn(plugin: Found) -> tuple[int, int]:
    """What is selected by name comes from the shipped folder first; all else stays in order."""
    order = list(Source)
    return (0 if plugin.role is Role.GENERAL else 1, order.index(plugin.source))


def _not_what_it_is_for(plugin: Found, collected: Collected) -> str:
    """A folder of an engine that registers none is no engine."""
    refused = f": {'; '.join(collected.refused)}" if collected.refused else ""
    if plugin.role is Role.ENGINE and collected.engine is None:
        return f"it registered no context engine{refused}"
    if plugin.role is Role.MEMORY and collected.memory_provider is None:
        return f"it registered no memory provider{refused}"
    return ""


def _root_of(problem: BaseException) -> BaseException:
    """The plugin's own exception: our threads wrap what an event loop can not carry."""
    cause = problem.__cause__
    # Only what is no ordinary exception is wrapped, and StopIteration.
    if cause is not None and (isinstance(cause, StopIteration) or not isinstance(cause, Exception)):
        return cause
    return problem


def _words(problem: BaseException) -> str:
    cause = _root_of(problem)
    if isinstance(cause, PosthouseError):
        return str(cause)
    said = plain_line(_text_of(cause))
    return f"{type(cause).__name__}: {said}" if said else type(cause).__name__


def _text_of(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:  # noqa: BLE001  (somebody else's __str__)
        return ""


def _trace(problem: BaseException) -> tuple[str, ...]:
    cause = _root_of(problem)
    try:
        whole = traceback.TracebackException.from_exception(cause)
        # Our own frames and those of the import machinery say nothing to the plugin's author.
        theirs = [f for f in whole.stack if not f.filename.startswith(_OURS)]
        whole.stack = traceback.StackSummary.from_list(theirs)
        text = "".join(whole.format(chain=False))
    except Exception:  # noqa: BLE001  (it calls somebody else's __str__)
        return ()
    lines = text.rstrip().splitlines()[-TRACE_LINES:]
    return tuple(f"{' ' * (len(line) - len(line.lstrip()))}{plain_line(line)}" for line in lines)
