"""Owns the question for the time zone: guessed from the machine, checked by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from gateway.config.zones import is_zone, nearest_zones
from gateway.setup.talk import Talk


def guessed(env: Mapping[str, str], root: Path = Path("/")) -> str:
    """The machine's zone by its name; UTC where nothing names it."""
    named = [env.get("TZ", "").lstrip(":")]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named.append((root / "etc/timezone").read_text(encoding="utf-8").strip())
    named.append(_linked(root))
    return next((name for name in named if is_zone(name)), "UTC")


def is_systems(name: str, env: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Does it hold without a line in config.yaml, from this shell as under a service manager?

    A service has no ``TZ`` of somebody's shell, and goes by ``/etc/localtime`` alone.
    """
    if env.get("TZ", "").lstrip(":") not in ("", name):
        return False
    if not os.path.lexists(root / "etc/localtime"):
        return name == "UTC"
    return name == _linked(root)  # of a copied file nobody knows the name


def ask_zone(
    talk: Talk, kept: str | None, env: Mapping[str, str], root: Path = Path("/")
) -> str | None:
    """The zone in which people live who write; None: the system's, and that needs no key.

    ``kept``: what config.yaml says now. What stands there already stays, if it is taken again.
    """
    talk.say("\n4. Time zone\n   For reminders and for what the assistant says of the time.")
    default = kept or guessed(env, root)
    while True:
        name = talk.ask("   Zone", default)
        if is_zone(name):
            return None if kept is None and is_systems(name, env, root) else name
        near = nearest_zones(name)
        meant = f" Did you mean {', '.join(near)}?" if near else " For example Europe/Berlin."
        talk.say(f"   There is no zone of that name.{meant}")
        default = near[0] if near else default


def _linked(root: Path) -> str:
    return os.path.realpath(root / "etc/localtime").partition("/zoneinfo/")[2]
