"""Owns which providers of models there are, for plugins that ask (`hermes_cli.auth`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["PROVIDER_REGISTRY", "ProviderConfig"]


@dataclass
class ProviderConfig:
    """A provider."""

    id: str
    name: str
    auth_type: str = "api_key"
    inference_base_url: str = ""
    api_key_env_vars: tuple[str, ...] = ()
    base_url_env_var: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


PROVIDER_REGISTRY: dict[str, ProviderConfig] = {
    "anthropic": ProviderConfig("anthropic", "Anthropic", api_key_env_vars=("ANTHROPIC_API_KEY",))
}
"""The one that speaks for the configured model; `agent.auxiliary_client.call_llm` uses it whatever
a plugin names."""
