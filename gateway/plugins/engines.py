"""Owns the configured context engine of a plugin: an instance of its own for each conversation."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.errors import EngineError
from agent.messages import ToolSchema, clean_text
from agent.ports import Clock
from gateway.plugins.collected import Collected, Hook, PluginCommand, PluginTool
from gateway.plugins.engine_trigger import EngineTrigger
from gateway.plugins.hook_names import overrides
from gateway.plugins.making import asked, ended
from gateway.plugins.manager import PluginManager, PluginRecord
from gateway.plugins.names import BUILT_IN_ENGINE, is_tool_name
from gateway.plugins.schemas import usable_parameters

log = logging.getLogger(__name__)
T = TypeVar("T")

MANY = 128
"""Threads: each conversation's engine may hang in one of its own."""
MAX_TOOLS = 64
IN_ITS_PLACE = "the built-in compressor works in its place"


@dataclass(frozen=True, slots=True)
class OwnEngine:
    """An engine that one conversation has for itself."""

    engine: ContextEngine
    collected: Collected | None = None
    """What `register` gave beside it, where it was called once more for this engine."""


class EngineSource:
    """The engine that `context.engine` names.

    A plugin gives one engine. Each conversation needs its own, so that none reads what another one
    said: by the engine's own ``clone_for_agent``, else by a deep copy, else by registering anew.
    One that can be had by none of these is not used.
    """

    def __init__(self, name: str, manager: PluginManager, clock: Clock) -> None:
        self.name = name
        self.threads = DaemonThreads(MANY, name="foreign engine")
        self.trigger = EngineTrigger()
        self._clock = clock
        self._record: PluginRecord | None = None
        self._trouble = ""
        self._spare: OwnEngine | None = None
        self._own: dict[str, Collected] = {}
        self._schemas: tuple[ToolSchema, ...] = ()
        self._on_tools: Callable[[], object] = lambda: None
        if name != BUILT_IN_ENGINE:
            self._record = manager.engine(name)
            if self._record is None:
                self._refuse(manager.why_not(name))

    @property
    def works(self) -> bool:
        """Is there such an engine, as far as is known?"""
        return self._record is not None

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        """The tools that it brings."""
        return self._schemas

    def troubles(self) -> list[str]:
        """A line for the operator where something else works than what is configured."""
        return [self._trouble] if self._trouble else []

    def summary(self) -> str:
        """For ``posthouse status``; "": nothing but the built-in one is asked for."""
        if self.name == BUILT_IN_ENGINE:
            return ""
        if self._record is None:
            return f"built-in, in place of {self.name}"
        tools = f", {len(self._schemas)} tools" if self._schemas else ""
        return f"{self.name} (plugin {self._record.key}{tools})"

    async def prepare(self) -> None:
        """At the start: can it be had at all, and which tools does it bring? Never raises.

        The instance that is made for it waits for the first conversation.
        """
        record = self._record
        if record is None:
            return
        try:
            self._spare = await self._made(record)
            spare = self._spare.engine
            await self._on_thread(lambda: self.trigger.look_at(spare), "give its threshold")
            self._schemas = await self._on_thread(lambda: schemas_of_own(record), "give its tools")
        except EngineError as exc:
            self._record = None
            self._refuse(str(exc))

    async def make(self, conversation_id: str) -> ContextEngine | None:
        """An engine of this conversation's own; None: the built-in one works (see `troubles`)."""
        record = self._record
        if record is None:
            return None
        own, self._spare = self._spare, None
        if own is None:
            try:
                own = await self._made(record)
            except EngineError as exc:
                self.refused(str(exc))
                return None
        if own.collected is not None:
            self._own[conversation_id] = own.collected
        return own.engine

    def has(self, method: str) -> bool:
        """Has it this one of the methods that may be left out? Runs none of its code."""
        given = self._record.collected if self._record is not None else None
        return given is not None and overrides(given.engine, ContextEngine, method)

    async def ask_aside(self, ask: Callable[[ContextEngine], T], what: str, seconds: float) -> T:
        """Ask an instance that is made for it and dropped again; it serves no conversation.

        Raises:
            EngineError: it failed, or did not answer in time.
        """
        record = self._record
        if record is None:
            raise EngineError("there is no such engine")

        def work() -> T:
            engine = own_engine(record).engine
            try:
                return ask(engine)
            finally:
                ended(engine)

        return await asked(self.threads, self._clock, self.name, work, what, seconds)

    def on_tools(self, call: Callable[[], object]) -> None:
        """What to do when an engine has other tools than were known. Called on any thread."""
        self._on_tools = call

    def has_tools(self, given: object) -> None:
        """What an instance says that it has; the first list is right for nearly all."""
        schemas = schemas_of(given)
        if schemas and schemas != self._schemas:
            self._schemas = schemas
            self._on_tools()

    def refused(self, why: str) -> None:
        """One conversation could not have an engine of its own, or it is of no use there."""
        self._say(why, f"context.engine {self.name} does not work in every conversation")

    # --- what an engine registered beside itself, for its conversation only -----------------------

    def hooks_of(self, conversation_id: str, hook: str) -> Sequence[Hook]:
        """Callbacks that are for this conversation only, beside everybody's."""
        own = self._own.get(conversation_id)
        return [call for name, call in own.hooks if name == hook] if own is not None else ()

    def tools_of(self, conversation_id: str) -> Sequence[PluginTool]:
        """Tools that in this conversation are this engine's own."""
        own = self._own.get(conversation_id)
        return own.tools if own is not None else ()

    def commands_of(self, conversation_id: str) -> Sequence[PluginCommand]:
        """Commands that in this conversation are this engine's own."""
        own = self._own.get(conversation_id)
        return own.commands if own is not None else ()

    def moved(self, old_id: str, new_id: str) -> None:
        """The engine goes on in another conversation."""
        if (own := self._own.pop(old_id, None)) is not None:
            self._own[new_id] = own

    def let_go(self, conversation_id: str) -> None:
        """The conversation's engine is not used any more."""
        self._own.pop(conversation_id, None)

    async def close(self) -> None:
        """The instance that waits for a conversation is not needed any more. Never raises."""
        spare, self._spare = self._spare, None
        if spare is None:
            return
        try:
            await self._on_thread(lambda: _shut_down(spare.engine), "shut down")
        except EngineError as exc:
            log.warning("context engine was not told", extra={"reason": str(exc)})

    # --- making one -------------------------------------------------------------------------------

    async def _made(self, record: PluginRecord) -> OwnEngine:
        return await self._on_thread(
            lambda: own_engine(record), "give a conversation its own engine"
        )

    async def _on_thread(self, work: Callable[[], T], what: str) -> T:
        return await asked(self.threads, self._clock, self.name, work, what)

    def _refuse(self, why: str) -> None:
        self._say(why, f"context.engine {self.name} is not used")

    def _say(self, why: str, what: str) -> None:
        text = f"{what}: {why}; {IN_ITS_PLACE}"
        if text != self._trouble:
            log.error("context engine refused", extra={"engine": self.name, "reason": why})
        self._trouble = text


# --- on the plugin's thread: pure but for the plugin's own code -----------------------------------


def _shut_down(engine: ContextEngine) -> None:
    shutdown = getattr(engine, "shutdown", None)
    if callable(shutdown):
        shutdown()


def own_engine(record: PluginRecord) -> OwnEngine:
    """An engine that shares nothing with the plugin's own, by the first way that works.

    Raises:
        EngineError: There is no way; says what was tried.
    """
    given = record.collected.engine if record.collected is not None else None
    if given is None:
        raise EngineError(f"plugin {record.key} registered no context engine")
    tried: list[str] = []
    clone = getattr(given, "clone_for_agent", None)
    if callable(clone):
        made = _tried("clone_for_agent", clone, given, tried)
        if made is not None:
            return OwnEngine(made)
    made = _tried("a deep copy", lambda: copy.deepcopy(given), given, tried)
    if made is not None:
        return OwnEngine(made)
    again = record.register_again
    if again is not None:
        box: list[Collected] = []

        def anew() -> Any:
            box.append(again())
            return box[0].engine

        made = _tried("registering anew", anew, given, tried)
        if made is not None:
            return OwnEngine(made, box[0])
    raise EngineError(
        f"plugin {record.key} can not give every conversation an engine of its own "
        f"({'; '.join(tried)})"
    )


def _tried(
    what: str, make: Callable[[], Any], given: ContextEngine, tried: list[str]
) -> ContextEngine | None:
    try:
        made = make()
    except BaseException as exc:  # noqa: BLE001  (a plugin's own code, on a plugin's own thread)
        tried.append(f"{what}: {type(exc).__name__}")
        return None
    if not isinstance(made, ContextEngine):
        tried.append(f"{what}: it gave no engine")
        return None
    if made is given:
        tried.append(f"{what}: it gave the same engine")
        return None
    return made


def schemas_of_own(record: PluginRecord) -> tuple[ToolSchema, ...]:
    """The tools of the plugin's own engine, which serves no conversation."""
    engine = record.collected.engine if record.collected is not None else None
    return schemas_of(engine.get_tool_schemas()) if engine is not None else ()


def schemas_of(given: object) -> tuple[ToolSchema, ...]:
    """Tools as an engine describes them, bare or wrapped; those without a name are left out."""
    found: dict[str, ToolSchema] = {}
    for item in given if isinstance(given, list | tuple) else ():
        inner = item.get("function") if isinstance(item, dict) else None
        about = inner if isinstance(inner, dict) else item
        name = about.get("name") if isinstance(about, dict) else None
        if not isinstance(name, str) or not is_tool_name(name) or name in found:
            log.warning("a tool of the context engine is left out", extra={"tool": str(name)[:64]})
            continue
        found[name] = ToolSchema(
            name,
            clean_text(str(about.get("description") or name))[:8000],
            usable_parameters(about.get("parameters")) or {"type": "object", "properties": {}},
        )
    return tuple(sorted(found.values(), key=lambda tool: tool.name)[:MAX_TOOLS])
