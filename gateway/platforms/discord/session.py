"""Owns who hears of what one connection does: feed, presses, menu, supervisor."""

from __future__ import annotations

from collections.abc import Callable

from gateway.platforms.discord.channels import ChannelFeed
from gateway.platforms.discord.health import Health
from gateway.platforms.discord.native.pressing import Presses
from gateway.platforms.discord.source import Item


class Session:
    """Tells the feed and the supervisor what the connection does (`client.Events`)."""

    def __init__(self, health: Health, on_ready: Callable[[], None]) -> None:
        self.health = health
        self.feed: ChannelFeed | None = None
        self.presses: Presses | None = None
        self._on_ready = on_ready

    def identifying(self) -> None:
        if self.feed is not None:
            self.feed.hold()

    def ready(self) -> None:
        if self.feed is not None:
            self.feed.release()
        self._on_ready()

    def connection(self, up: bool) -> None:
        self.health.connection(up)

    def alive(self) -> None:
        self.health.alive()

    def message(self, item: Item) -> None:
        if self.feed is not None:
            self.feed.live(item)

    def interaction(self, payload: object) -> None:
        if self.presses is not None:
            self.presses.pressed(payload)
