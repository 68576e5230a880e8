"""What Discord is asked about a place, and how often."""

from __future__ import annotations

from typing import Any, cast

import discord
import pytest

from gateway.platforms.discord import asking
from gateway.platforms.discord.asking import Asking
from gateway.platforms.discord.convert import Facts
from tests.fakes.clock import FakeClock


class Places:
    """A login (`discord.Client`) whose cache knows no channel; and its requests."""

    def __init__(self) -> None:
        self.http = self
        self.asked: list[int] = []

    def get_guild(self, guild_id: int) -> None:
        return None

    async def logs_from(self, channel_id: int, limit: int, *, after: int) -> list[Any]:
        author = {"id": "7", "username": "ada"}
        message = {"id": "50", "channel_id": str(channel_id), "author": author, "content": "hello"}
        return [message]

    # The SDK has this name twice: in the cache, and as a request.
    def get_channel(self, channel_id: int) -> Any:
        return _Answer(self, channel_id)


class _Answer:
    """Not in the cache (no channel of the SDK); awaited, it is Discord's answer."""

    def __init__(self, places: Places, channel_id: int) -> None:
        self._places, self._channel_id = places, channel_id

    def __await__(self) -> Any:
        self._places.asked.append(self._channel_id)
        return {"id": str(self._channel_id), "type": 11, "guild_id": "3", "parent_id": "9"}
        yield


async def test_places_are_asked_for_once_and_not_remembered_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "MAX_PLACES", 3)
    places = Places()
    asks = Asking(cast(discord.Client, places), discord, FakeClock(), timeout_seconds=5)
    for channel_id in (1, 2, 3, 1, 1, 4, 1, 2, 4):
        (found,) = await asks.page(channel_id, 0)
        assert isinstance(found, Facts)
        assert (found.guild_id, found.is_thread, found.parent_id) == (3, True, 9)
    assert places.asked == [1, 2, 3, 4, 2], "the one that was not needed for longest has gone"
