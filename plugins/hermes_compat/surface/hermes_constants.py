"""Owns where plugins find their home (`hermes_constants`)."""

from __future__ import annotations

from pathlib import Path

from plugins.hermes_compat import host

__all__ = [
    "display_hermes_home",
    "get_config_path",
    "get_default_hermes_root",
    "get_hermes_dir",
    "get_hermes_home",
]


def get_hermes_home() -> Path:
    """The folder that plugins keep their files in."""
    return host.hermes_home()


def get_default_hermes_root() -> Path:
    """The same: there are no profiles below it."""
    return host.hermes_home()


def get_config_path() -> Path:
    """Their copy of the configuration."""
    return host.config_file()


def get_hermes_dir(new_subpath: str, old_name: str) -> Path:
    """A folder below the home: under its old name if it is there, else under the new one."""
    old = host.hermes_home() / old_name
    return old if old.exists() else host.hermes_home() / new_subpath


def display_hermes_home() -> str:
    """The home as people write it: with ``~`` where it lies in theirs."""
    home = host.hermes_home()
    try:
        return f"~/{home.relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # elsewhere; nobody knows where the user's home is
        return str(home)
