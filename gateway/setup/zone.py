"""Owns the time zone: guessed from the machine, checked by name."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from gateway.setup.talk import Talk


def guessed(env: Mapping[str, str], root: Path = Path("/")) -> str:
    """The machine's zone by its name; UTC where nothing names it."""
    named = [env.get("TZ", "").lstrip(":")]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named.append((root / "etc/timezone").read_text(encoding="utf-8").strip())
    named.append(os.path.realpath(root / "etc/localtime").partition("/zoneinfo/")[2])
    return next((name for name in named if is_zone(name)), "UTC")


def is_zone(name: str) -> bool:
    """Is there a zone of that name?"""
    try:
        return bool(name) and ZoneInfo(name) is not None
    except (KeyError, ValueError, OSError):
        return False


def nearest(name: str) -> list[str]:
    """Zones that were most likely meant."""
    places = {zone.rpartition("/")[2].lower(): zone for zone in sorted(available_timezones())}
    word = name.strip().replace(" ", "_").rpartition("/")[2].lower()
    return [places[w] for w in difflib.get_close_matches(word, list(places), n=3, cutoff=0.6)]


def ask_zone(talk: Talk, kept: str | None, env: Mapping[str, str]) -> str:
    """The zone in which people live who write."""
    talk.say("\n4. Time zone\n   For reminders and for what the assistant says of the time.")
    default = kept or guessed(env)
    while True:
        name = talk.ask("   Zone", default)
        if is_zone(name):
            return name
        near = nearest(name)
        meant = f" Did you mean {', '.join(near)}?" if near else " For example Europe/Berlin."
        talk.say(f"   There is no zone of that name.{meant}")
        default = near[0] if near else default
