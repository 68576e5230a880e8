"""Owns the dispatch of plugins' hooks: which are in force where, with what they are called."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, TimeoutError  # noqa: A004  (they are the builtin's)
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.errors import StoreError
from agent.keywords import accepted, names_taken
from agent.messages import Message, public
from agent.turn_companions import History
from gateway.plugins.calling import (
    Callee,
    PluginCalls,
    Raised,
    Step,
)
from gateway.plugins.collected import Hook
from gateway.plugins.manager import PluginManager
from gateway.plugins.whereabouts import Whereabouts

log = logging.getLogger(__name__)

HISTORY_SECONDS = 2.0
HISTORY = "conversation_history"
_MANY = 500


class OwnHooks(Protocol):
    """Who knows what a plugin registered once more, for the instance of one conversation."""

    @property
    def plugin(self) -> str:
        """Its key; "": there is no such plugin."""
        ...

    def hooks_of(self, conversation_id: str, hook: str) -> Sequence[Hook]:
        """Those that are this conversation's alone."""
        ...


@dataclass(frozen=True, slots=True)
class Occasion:
    """One moment at which hooks are called."""

    name: str
    payload: Mapping[str, Any]
    """What is offered; each hook gets what it takes."""
    where: Whereabouts
    history: History | None = None
    """Read only if a hook takes it; each gets a copy of its own."""


@dataclass(slots=True)
class _Copies:
    """The list of a conversation for several hooks: read once, on the loop, from their thread."""

    history: History
    loop: asyncio.AbstractEventLoop
    read: list[Message] | None = field(default=None)

    def one(self) -> list[Message]:
        """A copy that may be written to."""
        if self.read is None:
            waits = asyncio.run_coroutine_threadsafe(self._load(), self.loop)
            try:
                self.read = waits.result(HISTORY_SECONDS)
            except (TimeoutError, CancelledError, StoreError):
                waits.cancel()
                self.read = []
        return copy.deepcopy(self.read)

    async def _load(self) -> list[Message]:
        return [_as_told(row.message, row.created_at) for row in await self.history()]


def _as_told(message: Message, created_at: float) -> Message:
    told: dict[str, Any] = {**public(message), "timestamp": created_at}
    told.pop("anthropic_content_blocks", None)  # of the provider, and large
    return told  # type: ignore[return-value]  # with a key that is known to plugins only


class HookDispatch:
    """Calls hooks, from the manager's live lists and from those that one conversation has."""

    def __init__(
        self, manager: PluginManager, calls: PluginCalls, own: OwnHooks | None = None
    ) -> None:
        self._manager = manager
        self._calls = calls
        self._own = own
        self._callees: dict[tuple[str | int, str], tuple[Hook, Callee]] = {}
        """With the hook, so that no other one gets its id."""

    def has(self, *names: str) -> bool:
        """Is there a hook of one of these names, for anybody?"""
        return any(self._manager.hooks.get(name) for name in names)

    def any_for(self, occasion: Occasion) -> bool:
        """Is there a hook that would be called?"""
        return bool(self._in_force(occasion))

    async def call(
        self, occasions: Iterable[Occasion], each_seconds: float, all_seconds: float
    ) -> list[tuple[str, Any]]:
        """Call all hooks of these occasions, in order; (name, what it gave) of those that did."""
        loop = asyncio.get_running_loop()
        names: dict[int, str] = {}
        steps: list[Step] = []
        for occasion in occasions:
            copies = _Copies(occasion.history, loop) if occasion.history is not None else None
            for hook in self._in_force(occasion):
                step = Step(
                    self._callee(hook, occasion.name),
                    _call_of(hook, occasion, copies),
                    within=occasion.where.bound,
                )
                names[id(step)] = occasion.name
                steps.append(step)
        if not steps:
            return []
        outcomes = await self._calls.each(steps, each_seconds, all_seconds)
        return [
            (names[id(step)], given) for step, given in outcomes if not isinstance(given, Raised)
        ]

    def _in_force(self, occasion: Occasion) -> list[Hook]:
        """A conversation's own instances in place of those that everybody shares."""
        name = occasion.name
        registered = list(self._manager.hooks.get(name, ()))
        shared = [hook for hook in registered if callable(hook)]  # plugins append by themselves
        if self._own is None:
            return shared
        own = self._own.hooks_of(occasion.where.conversation_id, name)
        if not own:
            return shared
        record = self._manager.record(self._own.plugin)
        given = record.collected.hooks if record is not None and record.collected else []
        replaced = {id(hook) for _, hook in given}
        return [*(hook for hook in shared if id(hook) not in replaced), *own]

    def _callee(self, hook: Hook, name: str) -> Callee:
        """One for all hooks of a plugin by one name; if it hangs in one it would in the next.

        A conversation's own hooks stand for themselves.
        """
        owner = self._owner(hook)
        key = (owner, name) if owner else (id(hook), name)
        known = self._callees.get(key)
        if known is None:
            if len(self._callees) >= _MANY:  # those of conversations that are long over
                self._callees = {k: v for k, v in self._callees.items() if v[1].hanging}
            plugin = owner or str(getattr(hook, "__module__", "") or "unknown")
            known = self._callees[key] = (hook, Callee(plugin, f"hook {name}", most_hanging=1))
        return known[1]

    def _owner(self, hook: Hook) -> str:
        for record in self._manager.records:
            given = record.collected.hooks if record.collected is not None else ()
            if any(other is hook for _, other in given):
                return record.key
        return ""


def _call_of(hook: Hook, occasion: Occasion, copies: _Copies | None) -> Callable[[], Any]:
    def call() -> Any:
        # Here, on their thread: even the question what it takes may be answered by its own code.
        taken = names_taken(hook)
        offered = dict(occasion.payload)
        if copies is not None and (taken is None or HISTORY in taken):
            offered[HISTORY] = copies.one()
        return hook(**accepted(hook, offered))

    return call
