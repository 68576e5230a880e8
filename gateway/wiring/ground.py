"""Owns what every part of a daemon is built on: configuration, surroundings, clock, ids, store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from agent.ports import Clock, IdSource
from agent.store_ports import Store
from gateway.config.environment import local_zone
from gateway.config.models import Config
from gateway.wiring.surroundings import Surroundings

if TYPE_CHECKING:
    from gateway.wiring.plugins import Plugins


@dataclass(frozen=True, slots=True)
class Ground:
    """What every part is built on."""

    config: Config
    around: Surroundings
    clock: Clock
    ids: IdSource
    store: Store
    plugins: Plugins | None = None
    """None: the configuration asks for none."""

    @property
    def zone(self) -> tzinfo:
        """Of the people: days and hours are told in it."""
        name = self.config.timezone
        return ZoneInfo(name) if name else local_zone(self.around.env)
