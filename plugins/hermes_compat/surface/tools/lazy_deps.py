"""Owns what happens where a plugin wants packages installed: nothing; what is missing is named.

(`tools.lazy_deps`)
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from plugins.hermes_compat import host

__all__ = ["FeatureUnavailable", "ensure", "feature_missing", "is_available"]

_PACKAGE = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


class FeatureUnavailable(RuntimeError):
    """Packages of a feature are not there."""

    def __init__(self, feature: str, missing: tuple[str, ...] = (), reason: str = "") -> None:
        self.feature = feature
        self.missing = missing
        self.reason = reason or "packages are missing, and nothing is installed at run time"
        how = " ".join(f"'{package}'" for package in missing)
        super().__init__(f"{feature}: {self.reason}" + (f"; pip install {how}" if how else ""))


def ensure(feature: str, *, prompt: bool = True) -> None:
    """Return if the packages of a feature are there; nothing is installed.

    Which they are is what the manifest of the plugin says: the last part of the feature's name is
    the plugin's. Of a feature that nobody knows nothing is said: the import that follows will.

    Raises:
        FeatureUnavailable: some are not there.
    """
    missing = feature_missing(feature)
    if missing:
        raise FeatureUnavailable(feature, missing)


def is_available(feature: str) -> bool:
    """Are all its packages there?"""
    return not feature_missing(feature)


def feature_missing(feature: str) -> tuple[str, ...]:
    """Requirements of a feature that are not met; versions are not compared."""
    return tuple(wanted for wanted in _requirements(feature) if not _is_there(wanted))


def _requirements(feature: str) -> tuple[str, ...]:
    manager = host.current().manager
    find = getattr(manager, "record", None)
    record = find(feature.rsplit(".", 1)[-1]) if callable(find) else None
    return tuple(record.found.manifest.pip_dependencies) if record is not None else ()


def _is_there(requirement: str) -> bool:
    name = _PACKAGE.match(requirement)
    if name is None:
        return True
    try:
        version(name[1])
    except PackageNotFoundError:
        return False
    return True
