"""Owns what every part of a daemon is built on: configuration, surroundings, clock, ids, store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from agent.media.transcription import Transcriber
from agent.ports import Clock, IdSource
from agent.store_ports import Store
from gateway.config.environment import local_zone
from gateway.config.models import Config
from gateway.intake.access import PlatformPolicy
from gateway.reloading import Reloads
from gateway.wiring.surroundings import Surroundings

if TYPE_CHECKING:
    from gateway.wiring.plugins import Plugins


@dataclass(frozen=True, slots=True)
class Ground:
    """What every part is built on."""

    config: Config
    """As it was at the start; what may change meanwhile is in `reloads`."""
    around: Surroundings
    clock: Clock
    ids: IdSource
    store: Store
    reloads: Reloads
    plugins: Plugins | None = None
    """None: the configuration asks for none."""

    @property
    def now(self) -> Config:
        """The configuration in force."""
        return self.reloads.config

    @property
    def transcriber(self) -> Transcriber | None:
        """Whoever hears voice messages; None: nobody does."""
        brought = self.plugins.gifts.transcriber if self.plugins is not None else None
        return self.around.transcriber or brought

    @property
    def foreign_policies(self) -> Mapping[str, PlatformPolicy]:
        """Who may talk on the platforms of plugins."""
        foreign = self.plugins.gifts.foreign if self.plugins is not None else None
        return foreign.policies if foreign is not None else {}

    def let_go(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """What of plugins has to be told of the daemon's end, by name."""
        return self.plugins.let_go() if self.plugins is not None else []

    @property
    def zone(self) -> tzinfo:
        """Of the people, as it is now: days and hours are told in it."""
        name = self.now.timezone
        return ZoneInfo(name) if name else local_zone(self.around.env)
