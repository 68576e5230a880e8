"""Owns what a search says of an index that was no help to it, and whom it tells."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger(__name__)

OUTDATED = "it is marked as damaged, or was made by another version"


@dataclass(frozen=True, slots=True)
class Damage:
    """Why the index was no help."""

    reason: str
    in_pages: bool
    """SQLite met a page that is none, which may be of any table."""


class OnDamage(Protocol):
    """Whom it concerns that the index was no help."""

    def __call__(self, reason: str, *, in_pages: bool = False) -> None:
        """As `Damage`."""
        ...


def scanning(reason: str, *, in_pages: bool = False) -> None:
    """What is said where nobody can make it anew."""
    _log.warning("search index is not whole, scanning instead: %s", reason)
