"""Owns lending plugins the names of their host: `plugins.hermes_compat`, loaded by its name."""

from __future__ import annotations

import importlib
from pathlib import Path

from gateway.plugins.manager import PluginManager

COMPAT = "plugins.hermes_compat"


def lend_names(home: Path, manager: PluginManager) -> list[str]:
    """Make the host's modules importable for what is loaded from now on; gives what is wrong.

    Args:
        home: The façade.
        manager: What plugins get that ask for it.
    """
    try:
        compat = importlib.import_module(COMPAT)
    except ModuleNotFoundError as exc:
        return [
            f"plugins do not find the modules of their host ({exc}): another installed package is "
            "called `plugins` and stands in the way of ours"
        ]
    compat.install(home, manager)
    return []
