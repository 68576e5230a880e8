"""Owns the one profile that there is (`hermes_cli.profiles`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plugins.hermes_compat import host

__all__ = ["ProfileInfo", "get_active_profile_name", "list_profiles"]


@dataclass
class ProfileInfo:
    """A profile."""

    name: str
    path: Path
    is_default: bool = True
    gateway_running: bool = True
    model: str | None = None
    provider: str | None = None
    has_env: bool = False
    skill_count: int = 0


def _get_default_hermes_home() -> Path:
    """The home of plugins."""
    return host.hermes_home()


def get_active_profile_name() -> str:
    """Always ``default``."""
    return "default"


def list_profiles() -> list[ProfileInfo]:
    """The one."""
    return [ProfileInfo("default", host.hermes_home(), gateway_running=host.current().is_daemon)]
