"""Owns the port for small things that the gateway remembers over a restart, each under a name."""

from __future__ import annotations

from typing import Protocol


class Remembered(Protocol):
    """A handful of values; nothing that grows belongs here."""

    async def fact(self, name: str) -> str | None:
        """What was remembered under this name; None: nothing."""
        ...

    async def set_fact(self, name: str, value: str | None) -> None:
        """Remember this; None: forget it.

        Raises:
            StoreUnavailable: not remembered.
        """
        ...
