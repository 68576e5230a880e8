"""Owns discord.py itself: loaded late, and a client of it built for what is needed here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import discord


class LineEvents(Protocol):
    """What the SDK tells of a line (a shard; without shards there is line 0)."""

    def identifying(self, shard_id: int) -> None:
        """A new session begins."""
        ...

    def ready(self, shard_id: int) -> None:
        """It is complete."""
        ...

    def resumed(self, shard_id: int) -> None:
        """The old one goes on."""
        ...

    def lost(self, shard_id: int) -> None:
        """No connection; the SDK tries again."""
        ...


def load_sdk() -> Any:
    """The SDK: half a second and 40 MB that other commands need not pay."""
    with warnings.catch_warnings():
        # Its voice half imports audioop, which warns on Python 3.11 and 3.12.
        warnings.simplefilter("ignore", DeprecationWarning)
        import discord  # noqa: PLC0415
        import discord.gateway  # noqa: PLC0415
        import discord.http  # noqa: PLC0415
    # No voice here, so no advice about its libraries.
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    logger = logging.getLogger("discord")
    logger.setLevel(max(logging.WARNING, logger.level))
    return discord


def build_bot(
    lines: LineEvents,
    *,
    shards: int,
    turn: Callable[[int, bool], Awaitable[None]],
    guild_ready_seconds: float,
    heartbeat_timeout_seconds: float,
) -> discord.Client:
    """A client that hears of guilds and messages, keeps no messages and pings nobody.

    ``turn``: told the shard, and whether it is its first session; comes back when that may begin.
    """
    import discord  # noqa: PLC0415 - see load_sdk

    sharded = shards > 1
    base: Any = discord.AutoShardedClient if sharded else discord.Client

    class Gateway(base):  # type: ignore[misc]
        def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
            # Its timers outlive its end, and would run into a loop that is gone.
            if not self.is_closed():
                super().dispatch(event, *args, **kwargs)

        async def before_identify_hook(
            self, shard_id: int | None, *, initial: bool = False
        ) -> None:
            lines.identifying(shard_id or 0)
            await turn(shard_id or 0, initial)

        def _look(self, shard_id: int) -> None:
            """Once its last guild is there nothing is missing: the SDK waits for two seconds more.

            With a guild that Discord can not show at the moment it is the SDK that decides.
            """
            mine = (g for g in self.guilds if (g.shard_id or 0) == shard_id)
            if not any(guild.unavailable for guild in mine):
                lines.ready(shard_id)

        async def on_connect(self) -> None:
            if not sharded:
                self._look(0)

        async def on_shard_connect(self, shard_id: int) -> None:
            self._look(shard_id)

        async def on_guild_available(self, guild: discord.Guild) -> None:
            self._look(guild.shard_id or 0)

        async def on_guild_join(self, guild: discord.Guild) -> None:
            self._look(guild.shard_id or 0)

        # The SDK says these without a shard as well, also where there are several.
        async def on_ready(self) -> None:
            if not sharded:
                lines.ready(0)

        async def on_resumed(self) -> None:
            if not sharded:
                lines.resumed(0)

        async def on_disconnect(self) -> None:
            if not sharded:
                lines.lost(0)

        async def on_shard_ready(self, shard_id: int) -> None:
            lines.ready(shard_id)

        async def on_shard_resumed(self, shard_id: int) -> None:
            lines.resumed(shard_id)

        async def on_shard_disconnect(self, shard_id: int) -> None:
            lines.lost(shard_id)

    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content = True
    made: discord.Client = Gateway(
        intents=intents,
        max_messages=None,
        chunk_guilds_at_startup=False,
        member_cache_flags=discord.MemberCacheFlags.none(),
        allowed_mentions=discord.AllowedMentions.none(),
        # The smallest that the SDK takes: a longer ban is not slept through inside a send.
        max_ratelimit_timeout=30.0,
        guild_ready_timeout=guild_ready_seconds,
        heartbeat_timeout=heartbeat_timeout_seconds,
        **({"shard_count": shards} if sharded else {}),
    )
    return made
