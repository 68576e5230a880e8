"""Owns the configuration of platforms in the form in which plugins ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plugins.hermes_compat import configuration

PLATFORMS = ("telegram", "discord", "console")


@dataclass(frozen=True)
class PlatformName:
    """A platform's name; plugins read its ``value``."""

    value: str


@dataclass
class PlatformConfig:
    """One platform."""

    enabled: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    """Its whole section."""


@dataclass
class GatewayConfig:
    """All platforms by their names."""

    platforms: dict[str, PlatformConfig] = field(default_factory=dict)

    def get_connected_platforms(self) -> list[PlatformName]:
        """Those that are switched on, or that have a section and are not switched off."""
        return [PlatformName(name) for name, found in self.platforms.items() if found.enabled]


def load_gateway_config() -> GatewayConfig:
    """Read from the plugins' copy of the configuration."""
    return GatewayConfig(dict(_platforms(configuration.read())))


def _platforms(config: dict[str, Any]) -> Iterator[tuple[str, PlatformConfig]]:
    for name in PLATFORMS:
        section = config.get(name)
        if isinstance(section, dict):
            off = section.get("enabled") in (False, "false", "off", "no")
            yield name, PlatformConfig(not off, dict(section))
