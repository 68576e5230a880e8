"""Owns how memory providers describe their settings (`plugins.memory.config_schema`)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "KIND_BOOL",
    "KIND_JSON",
    "KIND_NUMBER",
    "KIND_SECRET",
    "KIND_SELECT",
    "KIND_TEXT",
    "STORAGE_FLAT_JSON",
    "STORAGE_HONCHO_HOST_BLOCK",
    "ProviderConfigSchema",
    "ProviderField",
    "ProviderFieldOption",
]

KIND_TEXT, KIND_SELECT, KIND_SECRET = "text", "select", "secret"
KIND_BOOL, KIND_NUMBER, KIND_JSON = "bool", "number", "json"
STORAGE_FLAT_JSON = "flat_json"
STORAGE_HONCHO_HOST_BLOCK = "honcho_host_block"


@dataclass(frozen=True)
class ProviderFieldOption:
    """One choice of a field."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class ProviderField:
    """One setting."""

    key: str
    label: str
    kind: str = KIND_TEXT
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    aliases: tuple[str, ...] = ()
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        """Does it belong into the environment?"""
        return self.kind == KIND_SECRET

    def allowed_values(self) -> set[str]:
        """What may be chosen."""
        return {option.value for option in self.options}


@dataclass(frozen=True)
class ProviderConfigSchema:
    """All settings of a provider."""

    name: str
    label: str
    storage: str = STORAGE_FLAT_JSON
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        """Those worth showing first."""
        return tuple(field for field in self.fields if field.inline)
