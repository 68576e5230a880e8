"""Owns the name of the time zone that jobs are set in: stored with each, so it has to be a name."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

_UTC = ("Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu")
_NAMELESS = ("local", "", None)
"""Keys of zones that were read from a file (`gateway.config.environment.local_zone`)."""


def name_of(
    zone: tzinfo,
    localtime: Path = Path("/etc/localtime"),
    timezone: Path = Path("/etc/timezone"),
) -> str:
    """An IANA name for the zone; of the system's one by the link that it is, or the file beside it.

    "UTC", where the system does not tell: the confirmation of each job names it, and ``timezone``
    in config.yaml sets it right.
    """
    key = getattr(zone, "key", None)
    if key not in _NAMELESS:
        return str(key)
    if key is None:
        return "UTC"  # `datetime.UTC`: the system has none
    for name in (_linked(localtime), _written(timezone)):
        if name and _is_zone(name):
            return "UTC" if name in _UTC else name
    return "UTC"


def _linked(localtime: Path) -> str:
    """From /usr/share/zoneinfo/Europe/Berlin the last two."""
    try:
        parts = localtime.resolve().parts
    except (OSError, RuntimeError):
        return ""
    if "zoneinfo" not in parts:
        return ""
    rest = parts[parts.index("zoneinfo") + 1 :]
    return "/".join(rest[1:] if rest[:1] in (("posix",), ("right",)) else rest)


def _written(timezone: Path) -> str:
    try:
        return timezone.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return False
    return True
