"""Owns the configured memory provider of a plugin: an instance of its own for each conversation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent.daemon_threads import DaemonThreads
from agent.errors import EngineError
from agent.memory_provider import MemoryProvider
from agent.messages import ToolSchema
from agent.ports import Clock
from gateway.plugins.engines import schemas_of
from gateway.plugins.hook_names import overrides
from gateway.plugins.making import asked, ended
from gateway.plugins.manager import PluginManager

log = logging.getLogger(__name__)
T = TypeVar("T")

MANY = 32
"""Threads: one that hangs while it is made keeps one."""
WITHOUT = "there is no memory but the notes of our own"


class ProviderSource:
    """The provider that `memory.provider` names."""

    def __init__(self, name: str | None, manager: PluginManager, clock: Clock) -> None:
        self.name = name or ""
        self._clock = clock
        self._threads = DaemonThreads(MANY, name="making memory")
        self._record = manager.provider(name) if name else None
        self._schemas: tuple[ToolSchema, ...] = ()
        self._spare: MemoryProvider | None = None
        self._lost: Callable[[], int] = lambda: 0
        self.backup_paths: tuple[Path, ...] = ()
        """What it keeps outside the folder that it takes for its home."""
        self._trouble = ""
        if name and self._record is None:
            self._refuse(manager.why_not(name))

    @property
    def works(self) -> bool:
        """Is there such a provider, as far as is known?"""
        return self._record is not None

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        """The tools that it brings."""
        return self._schemas

    def troubles(self) -> list[str]:
        """A line for the operator if what is configured does not work."""
        return [self._trouble] if self._trouble else []

    def summary(self) -> str:
        """For ``posthouse status``; "": none is asked for."""
        if not self.name:
            return ""
        if self._record is None:
            return f"off: {self.name} does not work"
        tools = f", {len(self._schemas)} tools" if self._schemas else ""
        lost = self._lost()
        behind = f"; too slow: {lost} calls were lost" if lost else ""
        return f"{self.name} (plugin {self._record.key}{tools}){behind}"

    def watch(self, lost: Callable[[], int]) -> None:
        """``lost``: how many calls its instances could not be given."""
        self._lost = lost

    async def prepare(self) -> None:
        """At the start: can it be had and does it work, and which tools does it bring?

        Never raises. One that is not available is said aloud, and off until the next start. The
        instance that is made for it waits for the first conversation.
        """
        if self._record is None:
            return
        try:
            provider = await self._made()
            if not await self._on_thread(provider.is_available, "say whether it is available"):
                raise EngineError("it says that it is not available (is it set up?)")
            self._schemas = await self._on_thread(
                lambda: schemas_of(provider.get_tool_schemas()), "give its tools"
            )
            self._spare = provider
            self.backup_paths = await self._on_thread(
                lambda: _absolute(provider.backup_paths()), "say what a backup should take along"
            )
        except EngineError as exc:
            self._record = None
            self._refuse(str(exc))

    async def make(self) -> MemoryProvider | None:
        """An instance that nobody else has; None: there is none (see `troubles`)."""
        if self._record is None:
            return None
        spare, self._spare = self._spare, None
        if spare is not None:
            return spare
        try:
            return await self._made()
        except EngineError as exc:
            self._say(str(exc), f"memory.provider {self.name} does not work in every conversation")
            return None

    def has(self, method: str) -> bool:
        """Has it this one of the methods that may be left out? Runs none of its code."""
        given = self._record.collected if self._record is not None else None
        return given is not None and overrides(given.memory_provider, MemoryProvider, method)

    async def ask_aside(self, ask: Callable[[MemoryProvider], T], what: str, seconds: float) -> T:
        """Ask an instance that is made for it and dropped again; it serves no conversation.

        Raises:
            EngineError: it failed, or did not answer in time.
        """
        provider = await self._made()

        def work() -> T:
            try:
                return ask(provider)
            finally:
                ended(provider)

        return await asked(self._threads, self._clock, self.name, work, what, seconds)

    async def _made(self) -> MemoryProvider:
        record = self._record
        if record is None or record.register_again is None:
            raise EngineError("its plugin can not give a conversation a provider of its own")
        given = (await self._on_thread(record.register_again, "register anew")).memory_provider
        first = record.collected.memory_provider if record.collected is not None else None
        if given is None or given is first:
            raise EngineError("its plugin gives the same provider to everybody")
        return given

    async def _on_thread(self, work: Callable[[], T], what: str) -> T:
        return await asked(self._threads, self._clock, self.name, work, what)

    def _refuse(self, why: str) -> None:
        self._say(why, f"memory.provider {self.name} is not used")

    def _say(self, why: str, what: str) -> None:
        text = f"{what}: {why}; {WITHOUT}"
        if text != self._trouble:
            log.error("memory provider refused", extra={"provider": self.name, "reason": why})
        self._trouble = text


def _absolute(told: Any) -> tuple[Path, ...]:
    """Their answer, whatever it is, as paths."""
    texts = told if isinstance(told, list | tuple) else []
    paths = [Path(text).expanduser() for text in texts if isinstance(text, str | Path)]
    return tuple(path for path in paths if path.is_absolute())
