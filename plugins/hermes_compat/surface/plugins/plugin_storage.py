"""Owns the folder that a plugin keeps its files in (`plugins.plugin_storage`)."""

from __future__ import annotations

import re
from pathlib import Path

from plugins.hermes_compat import host

__all__ = ["plugin_data_dir"]


def plugin_data_dir(plugin_name: str) -> Path:
    """A folder of its own in the home of plugins; it is there when this returns.

    Raises:
        ValueError: the name would be a path.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", plugin_name):
        raise ValueError(f"{plugin_name!r} is no plugin's name")
    folder = host.hermes_home() / "plugin-data" / plugin_name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
