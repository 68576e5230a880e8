"""Owns what the configuration says of a plugin: enabled, selected, its entry, settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.plugins.discovery import Found, Role
from gateway.plugins.names import BUILT_IN_ENGINE, listed, same_section


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The keys of config.yaml that are about plugins."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    engine: str = BUILT_IN_ENGINE
    provider: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Whole sections of config.yaml that are named after plugins."""

    def is_disabled(self, found: Found) -> bool:
        """Is it switched off, whatever else stands there?"""
        return listed(found.names, self.disabled)

    def is_selected(self, found: Found) -> bool:
        """Does the key that is for its kind name it?"""
        match found.role:
            case Role.GENERAL:
                return listed(found.names, self.enabled)
            case Role.ENGINE:
                return self.engine == found.key.rsplit("/", 1)[-1]
            case Role.MEMORY:
                return self.provider is not None and self.provider in found.names_of_provider

    def entry(self, names: Iterable[str]) -> Mapping[str, Any]:
        """What stands under ``plugins.entries`` for a plugin."""
        return self._first(self.entries, names)

    def settings(self, names: Iterable[str]) -> Mapping[str, Any]:
        """A plugin's own settings: its section, and over it what its entry says."""
        named = list(names)
        said = self.entry(named).get("settings")
        return {
            **self._first(self.sections, named),
            **(said if isinstance(said, Mapping) else {}),
        }

    @staticmethod
    def _first(among: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
        for name in names:
            for key, value in among.items():
                short = name.rsplit("/", 1)[-1]
                same = same_section(str(key)) in (same_section(name), same_section(short))
                if same and isinstance(value, Mapping):
                    return value
        return {}


def setting(settings: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """One setting by its name, or by a dotted path into it."""
    if key in settings:
        return settings[key]
    value: Any = settings
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value
