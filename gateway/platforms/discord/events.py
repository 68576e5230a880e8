"""Owns what one login to Discord tells its platform."""

from __future__ import annotations

from typing import Protocol

from gateway.platforms.discord.source import Item


class Events(Protocol):
    """What the connection tells, in order; none of these waits."""

    def identifying(self) -> None:
        """A new session begins: what came before it is not replayed."""
        ...

    def ready(self) -> None:
        """The new session is complete."""
        ...

    def connection(self, up: bool) -> None:
        """Every line works, or one does not."""
        ...

    def alive(self) -> None:
        """Discord was heard."""
        ...

    def message(self, item: Item) -> None:
        """A message came in, or an edit."""
        ...

    def interaction(self, payload: object) -> None:
        """Somebody chose a command of the menu or pressed a button, and waits for a sign."""
        ...
