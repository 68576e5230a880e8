"""Owns the names of time zones: is it one, and which was most likely meant."""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

_SIMILAR = 0.75
"""Paris is nothing like Mars, but it is to 0.6."""


def is_zone(name: str) -> bool:
    """Is there a zone of that name?"""
    try:
        return bool(name) and ZoneInfo(name) is not None
    except (KeyError, ValueError, OSError):
        return False


def nearest_zones(name: str) -> list[str]:
    """Zones that were most likely meant, by the name of the place, the nearest first."""
    import difflib  # noqa: PLC0415 - only for a name that is wrong

    places = {zone.rpartition("/")[2].lower(): zone for zone in sorted(available_timezones())}
    word = name.strip().replace(" ", "_").rpartition("/")[2].lower()
    return [places[w] for w in difflib.get_close_matches(word, list(places), n=3, cutoff=_SIMILAR)]
