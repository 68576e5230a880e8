"""Owns which plugins installed packages offer, by their entry points. Imports none."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import (
    Distribution,
    EntryPoint,
    PackageNotFoundError,
    distribution,
    distributions,
)

from gateway.plugins.discovery import Found, Role, Source
from gateway.plugins.manifest import Manifest, plain_line
from gateway.plugins.names import is_plugin_name

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "hermes_agent.plugins"


def in_packages(entry_points: Iterable[EntryPoint]) -> list[Found]:
    """All plugins that installed packages offer."""
    return [_entry(point) for point in sorted(entry_points, key=lambda p: (p.name, p.value))]


def installed_entry_points() -> list[EntryPoint]:
    """Those of every installed package; one whose metadata is broken hides no other."""
    points: dict[tuple[str, str], EntryPoint] = {}
    for package in distributions():
        try:
            offered = package.entry_points.select(group=ENTRY_POINT_GROUP)
        except (ValueError, TypeError, AttributeError, OSError):
            log.warning("a package's entry points can not be read", exc_info=True)
            continue
        for point in offered:
            # The first of a name on the path is the one that is imported.
            points.setdefault((point.name, package.name), point)
    return list(points.values())


def _entry(point: EntryPoint) -> Found:
    package = point.dist
    about = Manifest(
        point.name,
        key=point.name,
        source=Source.ENTRY_POINT.value,
        version=package.version if package is not None else "",
        description=_said(package, "Summary"),
        author=_said(package, "Author"),
        path=package.name if package is not None else None,
    )
    error = "" if is_plugin_name(point.name) else f"{point.name[:80]!r} can not be a plugin's name"
    try:
        module = point.module
    except AttributeError:  # it is not written as one
        module, error = "", f"entry point {point.name[:80]!r} does not name a module"
    return Found(
        point.name,
        Source.ENTRY_POINT,
        Role.GENERAL,
        about,
        entry_point=point,
        module_name=module,
        error=error,
    )


def _said(package: Distribution | None, name: str) -> str:
    if package is None or name not in package.metadata:
        return ""
    return plain_line(str(package.metadata[name]))


def is_installed(package: str) -> bool:
    """Is there such a distribution beside us?"""
    try:
        distribution(package)
    except (PackageNotFoundError, ValueError):
        return False
    return True
