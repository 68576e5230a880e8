"""Owns what is said of tokens that are not there: for which platform, and where each goes. Pure."""

from __future__ import annotations

from pathlib import Path

from gateway.config.environment import Secrets
from gateway.config.models import Config

_VARIABLES = {"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN"}
_LET_IN = ("allow_from", "allow_chats", "allow_channels", "allow_roles", "pairing")


def missing_tokens(config: Config, secrets: Secrets) -> list[str]:
    """One line for each platform that is switched on without its token."""
    return [
        f"{name}.enabled is true, but there is no {variable}: {where_to_put(variable)}"
        for name, variable in _without(secrets)
        if getattr(config, name).enabled is True
    ]


def awaited_tokens(config: Config, secrets: Secrets) -> dict[str, str]:
    """What there is to say of each token (by its name) whose platform only waits for it.

    People are let in there, and ``enabled`` is ``auto``, so that it stays off without a word.
    """
    return {
        variable: f"{name} lets people in, but there is no {variable}, so it stays off"
        for name, variable in _without(secrets)
        if getattr(config, name).enabled == "auto"
        and any(getattr(getattr(config, name), key, None) for key in _LET_IN)
    }


def where_to_put(name: str, folder: Path | None = None) -> str:
    """Where a secret belongs. ``folder``: that of the home's secrets, where it is known."""
    own = f"{folder / name}" if folder is not None else f"secrets/{name} in the home"
    return f"put it alone into {own} (chmod 600), or set {name} in the environment, or {name}_FILE"


def _without(secrets: Secrets) -> list[tuple[str, str]]:
    there = secrets.by_name()
    return [(name, variable) for name, variable in _VARIABLES.items() if not there[variable]]
