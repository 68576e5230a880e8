"""Owns what the nightly care needs of the store: its file, what a check finds, its search index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Found(Protocol):
    """What a check has found: `storage.upkeep.Examined`."""

    @property
    def sound(self) -> bool:
        """Nothing."""
        ...

    @property
    def pages(self) -> Sequence[str]:
        """Damage to what is stored."""
        ...

    @property
    def search(self) -> Sequence[str]:
        """Damage to the index of search."""
        ...

    def lines(self) -> list[str]:
        """All of it, for people."""
        ...


class Index(Protocol):
    """Whether the full-text index is whole: `storage.search.keeper.IndexKeeper`."""

    @property
    def remark(self) -> str | None:
        """What people are told while it is not."""
        ...

    @property
    def rebuilds(self) -> int:
        """How often it was made anew since the start."""
        ...

    def hurt(self, reason: str, *, of: int | None = None) -> None:
        """It is not; ``of``: the one after so many rebuilds was not, and is none of today's."""
        ...

    async def wanted(self) -> bool:
        """Wait until it is not; True: a page of the file is damaged, and nobody knows whose."""
        ...

    def wait_seconds(self) -> float:
        """Until it may be made anew."""
        ...


class Care(Protocol):
    """What can be done with the file beside the writes."""

    @property
    def index(self) -> Index:
        """Of search."""
        ...

    async def index_trouble(self) -> str | None:
        """Read every word of the index without holding anybody up; what is wrong with it."""
        ...

    async def maintain(self) -> bool:
        """One small step of upkeep; True: there may be more."""
        ...

    async def examine(self, *, thorough: bool) -> Found:
        """Look at all of it without holding anybody up."""
        ...

    async def mend(self, found: Found) -> None:
        """Make anew what is not the messages themselves."""
        ...

    def condemn(self, reason: str) -> None:
        """Write nothing more."""
        ...

    def trouble(self) -> str | None:
        """Why nothing can be written at this moment."""
        ...

    def idle_seconds(self) -> float:
        """For how long nothing was written."""
        ...

    async def unused_bytes(self) -> tuple[int, int]:
        """How much of the file nothing is in, and how long it is."""
        ...

    async def rewrite_file(self) -> bool:
        """Write it anew without that."""
        ...

    async def fact(self, name: str) -> str | None:
        """Something remembered."""
        ...

    async def set_fact(self, name: str, value: str | None) -> None:
        """Remember it."""
        ...
