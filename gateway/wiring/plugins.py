"""Owns how the plugins of a process come to be: found, given their home, loaded. Never raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.archive_ports import Archive
from agent.clock import SystemClock
from agent.daemon_threads import DaemonThreads
from agent.ports import Clock
from agent.store_ports import Store
from gateway.commands.registry import ALIASES, COMMANDS
from gateway.config.environment import (
    environment,
    references,
    set_up_for_plugins,
    values_to_hide,
)
from gateway.config.models import Config
from gateway.plugins.compat import lend_names
from gateway.plugins.discovery import Found, in_folders
from gateway.plugins.engines import EngineSource
from gateway.plugins.facade import Facade
from gateway.plugins.forgetting import FORGET_SESSIONS
from gateway.plugins.importing import BUNDLED
from gateway.plugins.loading import PluginLoader
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.names import OUR_PLATFORMS, OUR_TOOLS
from gateway.plugins.packages import in_packages, installed_entry_points, is_installed
from gateway.plugins.providers import ProviderSource
from gateway.plugins.report import Row, nobody_is_called_so, not_selectable, rows, summary
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames
from gateway.wiring.plugin_gifts import Gifts, gifts_of
from gateway.wiring.surroundings import Surroundings

T = TypeVar("T")

COLLIDES = (
    "plugins are off: Hermes Agent itself is installed in posthouse's Python environment, and its "
    "packages have the names of ours; take it out (pip uninstall hermes-agent)"
)
_NO_SECRETS = {"HOME", "USER", "LOGNAME", "PATH", "SHELL", "TERM", "LANG", "TMPDIR", "TZ"}
"""Servers of tools may ask for these as well; everything else in the process needs them."""
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class Plugins:
    """What the daemon has of its plugins."""

    manager: PluginManager
    facade: Facade
    engines: EngineSource
    providers: ProviderSource
    gifts: Gifts
    remarks: tuple[str, ...]
    """About the configuration and the façade: what no single plugin is to blame for."""

    def troubles(self) -> list[str]:
        """What an operator should know, a line each."""
        return [
            *self.engines.troubles(),
            *self.providers.troubles(),
            *self.manager.troubles(),
            *self.gifts.troubles(),
            *self.remarks,
        ]

    def keep_what_is_old(self) -> list[str]:
        """Engine and provider that work and can not erase what retention deletes, by name."""
        sources = (self.engines, self.providers)
        return [one.name for one in sources if one.works and not one.has(FORGET_SESSIONS)]

    def engine(self) -> str:
        """Which context engine works, in words; "": the built-in one, as configured."""
        return self.engines.summary()

    def engine_threshold(self, window_tokens: int) -> int | None:
        """From where on it compresses; None: the built-in one works, or it does not say."""
        return self.engines.trigger.tokens(window_tokens) if self.engines.works else None

    def memory(self) -> str:
        """Which memory provider works, in words; "": none is asked for."""
        return self.providers.summary()

    def summary(self) -> str:
        """In one line."""
        return summary(self.manager.records, self.manager.off)

    def let_go(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """What has to be told of the daemon's end, by name."""
        return [("hooks of plugins", self.gifts.companion.close)]

    def rows(self) -> list[Row]:
        """For `posthouse plugins list`."""
        return rows(self.manager.records)


class PluginHouse:
    """Finds and loads the plugins of one configuration."""

    def __init__(self, config: Config, around: Surroundings, clock: Clock) -> None:
        self.settings = PluginSettings(
            enabled=tuple(config.plugins.enabled),
            disabled=tuple(config.plugins.disabled),
            engine=config.context.engine,
            provider=config.memory.provider,
            entries=config.plugins.entries,
            sections=around.plugin_sections,
        )
        self._config = config
        self._around = around
        self._clock = clock
        self._threads = DaemonThreads(2, name="plugin files")
        self.facade = Facade(around.home.hermes, around.home.plugins)
        self.off = ""
        self.remarks: list[str] = []

    async def find(self) -> list[Found]:
        """All there are; imports none of them."""
        return await self._aside(self._find)

    def _find(self) -> list[Found]:
        self.off = COLLIDES if is_installed("hermes-agent") else ""
        env = self._around.env
        project = env.get("HERMES_ENABLE_PROJECT_PLUGINS", "").strip().lower() in _TRUE
        folder = Path(".hermes/plugins").absolute() if project else None
        found = in_folders(BUNDLED, self._around.home.plugins, folder)
        return [*found, *in_packages(installed_entry_points())]

    async def set_up(
        self, found: Sequence[Found], archive: Archive | None, manager: PluginManager
    ) -> list[str]:
        """Their home, their environment and the names of their host, before the first is imported.

        ``manager``: the one that they get when they ask for it.
        """
        try:
            remarks = await self._aside(self._prepare)
        except OSError as exc:
            remarks = [f"{self.facade.folder} can not be made for plugins: {exc.strerror}"]
        else:
            if archive is not None:
                await self.facade.refresh(archive)
        wanted = [f for f in found if self.settings.is_selected(f)]
        declared = {v for f in wanted for v in f.manifest.requires_env}
        secrets = [n for n in references(self._config) if n not in _NO_SECRETS]
        set_up_for_plugins(self.facade.folder, declared, secrets)
        return [*remarks, *await self._aside(lambda: lend_names(self.facade.folder, manager))]

    def _prepare(self) -> list[str]:
        said = self._config.model_dump(mode="json", exclude_unset=True)
        return self.facade.prepare(
            {**said, **self._around.plugin_sections},
            [
                *self._around.secrets.values(),
                *values_to_hide(self._config, self._around.env, self._around.home.secrets),
            ],
        )

    def loader(self) -> PluginLoader:
        """For those that were found."""
        names = TakenNames(tools=OUR_TOOLS, commands=[*COMMANDS, *ALIASES], platforms=OUR_PLATFORMS)
        return PluginLoader(self.settings, names, self._clock, environment())

    async def _aside(self, call: Callable[[], T]) -> T:
        """Files are read beside the loop."""
        return await asyncio.wrap_future(self._threads.submit(call))


async def said_before_loading(config: Config, around: Surroundings) -> list[str]:
    """What a check of the configuration can say; imports no plugin."""
    house = PluginHouse(config, around, SystemClock())
    records = house.loader().only_noted_all(await house.find())
    if house.off:
        return [house.off]
    return [
        *PluginManager(records).troubles(),
        *nobody_is_called_so(records, house.settings),
        *not_selectable(records, house.settings),
    ]


async def load_plugins(config: Config, around: Surroundings, clock: Clock, store: Store) -> Plugins:
    """Everything that the configuration asks for; whatever fails is a record, not an error."""
    house = PluginHouse(config, around, clock)
    found = await house.find()
    if house.off:
        off = [PluginRecord(f, PluginState.NOT_ENABLED, house.off) for f in found]
        manager = PluginManager(off, off=house.off)
        engines = EngineSource(config.context.engine, manager, clock)
        providers = ProviderSource(config.memory.provider, manager, clock)
        gifts = await gifts_of(manager, engines, house.settings, clock, store.conversation)
        return Plugins(manager, house.facade, engines, providers, gifts, ())
    manager = PluginManager()
    remarks = await house.set_up(found, store, manager)
    manager.take(await house.loader().load_all(found))
    remarks += nobody_is_called_so(manager.records, house.settings)
    engines = EngineSource(config.context.engine, manager, clock)
    await engines.prepare()
    providers = ProviderSource(config.memory.provider, manager, clock)
    await providers.prepare()
    gifts = await gifts_of(manager, engines, house.settings, clock, store.conversation)
    return Plugins(manager, house.facade, engines, providers, gifts, tuple(remarks))
