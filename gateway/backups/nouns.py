"""Owns what backups are made with: the copying of a database, lent by whoever may open stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SPARE_BYTES = 16 * 1024 * 1024
"""Stays free beside what a backup takes."""


class Facts(Protocol):
    """What is known of a database that was looked at to its last page."""

    @property
    def schema(self) -> int:
        """Its version."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """Table → rows."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the attachments that it names."""
        ...

    @property
    def bytes(self) -> int:
        """Of the file."""
        ...

    @property
    def index_damage(self) -> str | None:
        """Why its search index, or that of what it was copied from, is not whole."""
        ...

    @property
    def sha256(self) -> str:
        """Of the file."""
        ...


class Prepare(Protocol):
    """Makes a copy fit for the place of another database."""

    def __call__(self, copy: Path, replaced: Path, *, forget_again: bool) -> bool:
        """``forget_again``: whoever was forgotten there since. False: that can not be read."""
        ...


@dataclass(frozen=True, slots=True)
class StoreTools:
    """What can be done with databases of ours; all of it blocks."""

    copy: Callable[[Path, Path, float], Facts]
    """From, to, now: a checked copy, made beside whoever writes. What fails leaves none."""
    facts: Callable[[Path], Facts]
    """Check one that nobody writes to. Raises what says that it is damaged, or too new."""
    prepare: Prepare
    would_come_back: Callable[[Path, Path], tuple[str, ...] | None]
    """Who was forgotten in the second since the first was made, and is in it; None: who knows."""
    is_spare: Callable[[Path], bool]
    """One of ours that nobody has open, so that a newer copy may take its place."""
