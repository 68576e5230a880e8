"""Owns the check that this process runs our packages and nobody else's."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import ModuleType

import agent
import gateway
import storage
from agent.errors import ConfigError

NEIGHBOUR = "hermes-agent"
"""Its wheel has top-level packages of the same names: installed beside us, one overwrites files of
the other."""


def check_installation(packages: tuple[ModuleType, ...] = (agent, storage, gateway)) -> None:
    """Refuse to run on a mixture.

    Raises:
        ConfigError: our packages come from different places, or share one with that neighbour.
    """
    places = {str(Path(str(p.__file__)).resolve().parents[1]): p.__name__ for p in packages}
    if len(places) > 1:
        found = ", ".join(f"{name} from {place}" for place, name in sorted(places.items()))
        raise ConfigError(
            [f"posthouse's packages come from different places ({found}): use a venv of its own"]
        )
    try:
        importlib.metadata.version(NEIGHBOUR)
    except importlib.metadata.PackageNotFoundError:
        return
    raise ConfigError(
        [
            f"{NEIGHBOUR} is installed in this environment and uses the same package names: "
            "install posthouse in a venv of its own"
        ]
    )
