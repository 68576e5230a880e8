"""Owns what is known of every plugin: its record, and what all loaded ones gave together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gateway.plugins.collected import (
    Collected,
    Hook,
    PluginCommand,
    PluginPlatform,
    PluginSkill,
    PluginTool,
)
from gateway.plugins.discovery import Found, Role

_aside: ContextVar[dict[str, list[Hook]] | None] = ContextVar("hooks aside", default=None)


@contextmanager
def hooks_noted_in(collected: Collected) -> Iterator[None]:
    """What a plugin appends to the manager's hooks within, on this thread, is what it gave.

    So it goes with the plugin if that fails, and where it registers anew for one conversation it is
    that conversation's.
    """
    appended: dict[str, list[Hook]] = defaultdict(list)
    token = _aside.set(appended)
    try:
        yield
    finally:
        _aside.reset(token)
        for name, callbacks in appended.items():
            collected.hooks += [(name, each) for each in callbacks if callable(each)]


class PluginState(StrEnum):
    """What has become of a plugin."""

    LOADED = "loaded"
    NOT_ENABLED = "not enabled"
    """Neither enabled nor selected; it was not imported."""
    DISABLED = "disabled"
    """`plugins.disabled` names it."""
    OVERRIDDEN = "overridden"
    """Another one with the same key, of a later source, counts."""
    UNUSABLE = "unusable"
    """As `NOT_ENABLED`; and it could not be loaded if it were asked for."""
    FAILED = "failed"
    LATE = "late"
    """Missed its deadline; what it still gives is not taken."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin and what has become of it."""

    found: Found
    state: PluginState
    reason: str = ""
    """Why it is not loaded, in words for the operator."""
    trace: tuple[str, ...] = ()
    """The last lines of what it raised."""
    remarks: tuple[str, ...] = ()
    """What is missing or odd, though it may be loaded: packages, variables, refused names."""
    seconds: float = 0.0
    """How long importing and registering took."""
    collected: Collected | None = None
    """What it gave, once it is loaded."""
    register_again: Callable[[], Collected] | None = None
    """Calls its `register` anew, into a collection of its own. Synchronous code of others: only on
    a plugin thread with a deadline. Raises whatever the plugin raises."""

    @property
    def key(self) -> str:
        """What `plugins.enabled` calls it."""
        return self.found.key

    @property
    def loaded(self) -> bool:
        """Is it in force?"""
        return self.state is PluginState.LOADED


class PluginManager:
    """The plugins of this process: there before the first is loaded, complete before anything runs.

    Only the hooks change later: plugins append to them while they run.
    """

    def __init__(self, records: Iterable[PluginRecord] = (), *, off: str = "") -> None:
        """``off``: why no plugin is loaded at all, whatever is enabled."""
        self.records: tuple[PluginRecord, ...] = ()
        self.off = off
        self._in_force: dict[str, list[Hook]] = {}
        self.take(records)

    def take(self, records: Iterable[PluginRecord]) -> None:
        """Add records, in the order in which they were loaded."""
        more = tuple(records)
        self.records += more
        for record in more:
            if record.loaded and record.collected is not None:
                for name, callback in record.collected.hooks:
                    self._in_force.setdefault(name, []).append(callback)

    @property
    def hooks(self) -> dict[str, list[Hook]]:
        """Callbacks by the name of their hook; the live dict, dispatch from a copy of its lists."""
        return self._in_force

    @property
    def _hooks(self) -> dict[str, list[Hook]]:
        """Under this name plugins reach for a dict of lists, and append."""
        noted = _aside.get()
        return self._in_force if noted is None else noted

    def _loaded(self) -> list[Collected]:
        return [r.collected for r in self.records if r.loaded and r.collected is not None]

    @property
    def tools(self) -> list[PluginTool]:
        """All tools of loaded plugins; no two have one name."""
        return [tool for given in self._loaded() for tool in given.tools]

    @property
    def commands(self) -> list[PluginCommand]:
        """All commands of loaded plugins; no two have one name, and none has one of ours."""
        return [command for given in self._loaded() for command in given.commands]

    @property
    def skills(self) -> list[PluginSkill]:
        """All skills of loaded plugins."""
        return [skill for given in self._loaded() for skill in given.skills]

    @property
    def platforms(self) -> list[PluginPlatform]:
        """All platforms of loaded plugins."""
        return [platform for given in self._loaded() for platform in given.platforms]

    @property
    def transcribers(self) -> list[tuple[str, Any]]:
        """(plugin, what hears) of loaded plugins; the first one is asked."""
        return [
            (record.key, each)
            for record in self.records
            if record.loaded and record.collected is not None
            for each in record.collected.transcribers
        ]

    def engine(self, name: str) -> PluginRecord | None:
        """The loaded plugin whose context engine is selected by this name.

        First the shipped folder of that name, then the user's, then any enabled plugin whose engine
        says that it is called so. None: there is none; `why_not` says why.
        """
        return self._selected(
            Role.ENGINE, name, lambda given: given.engine is not None and given.engine_name == name
        )

    def provider(self, name: str) -> PluginRecord | None:
        """The loaded plugin whose memory provider is selected by this name; as `engine`."""
        return self._selected(
            Role.MEMORY,
            name,
            lambda given: given.memory_provider is not None and given.provider_name == name,
        )

    def _selected(
        self, role: Role, name: str, gives: Callable[[Collected], bool]
    ) -> PluginRecord | None:
        loaded = [r for r in self.records if r.loaded and r.collected is not None]
        by_folder = [r for r in loaded if r.found.role is role and name in r.found.names]
        by_name = [r for r in loaded if r.collected is not None and gives(r.collected)]
        return next(iter([*by_folder, *by_name]), None)

    def record(self, name: str) -> PluginRecord | None:
        """By its key, or by another name that the configuration may use; those in force first."""
        order = sorted(self.records, key=lambda r: r.state is PluginState.OVERRIDDEN)
        by_key = [r for r in order if r.key == name]
        by_name = [r for r in order if name in r.found.names]
        return next(iter([*by_key, *by_name]), None)

    def why_not(self, name: str) -> str:
        """Why nothing is selected by this name, in words for the operator."""
        record = self.record(name)
        if self.off:
            return self.off
        if record is None:
            silent = [r.key for r in self.records if r.state is PluginState.NOT_ENABLED][:8]
            others = f" (not enabled: {', '.join(silent)})" if silent else ""
            return f"no enabled plugin offers {name!r}{others}; see `posthouse plugins list`"
        if record.loaded:
            return f"plugin {record.key} is loaded, but offers nothing of this name"
        return f"plugin {record.key} is {record.state.value}: {record.reason}"

    def troubles(self) -> list[str]:
        """One line for each plugin that should run and does not."""
        return troubles_of(self.records, self.off)


def troubles_of(records: Sequence[PluginRecord], off: str) -> list[str]:
    """As `PluginManager.troubles`."""
    if off:
        return [off]
    return [
        f"plugin {r.key} {'is late' if r.state is PluginState.LATE else 'failed'}: {r.reason}"
        for r in records
        if r.state in (PluginState.FAILED, PluginState.LATE)
    ]
