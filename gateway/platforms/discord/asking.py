"""Owns what Discord is asked about messages: pages of history, places, roles, names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.ports import Clock
from gateway.platforms.discord.convert import Facts, places_named_in
from gateway.platforms.discord.files import FileRef, address_in
from gateway.platforms.discord.out.refusals import CLOUDFLARE_SECONDS, by_a_guard
from gateway.platforms.discord.reading import THREADS, Unreadable, id_of, read_or_not
from gateway.platforms.discord.source import (
    PAGE_MESSAGES,
    ChannelGone,
    HistoryUnavailable,
    OpenThread,
)

if TYPE_CHECKING:
    import discord

ROLES_SECONDS = 60.0
"""How long the roles of somebody who wrote while the bot was away are believed."""
MAX_PLACES = 1_000
"""Of channels that the SDK's cache does not know; those heard of last."""
_FILE_LIMITS = {2: 50 << 20, 3: 100 << 20}
"""Bytes, by the level that a server's members pay for; where it is less, nobody need ask."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a channel is."""

    guild_id: int | None
    is_thread: bool = False
    parent_id: int | None = None
    owner_id: int | None = None


class Asking:
    """`source.Source`, by the SDK's requests; its cache of guilds saves most of them."""

    def __init__(self, bot: discord.Client, sdk: Any, clock: Clock, *, timeout_seconds: float):
        self._bot = bot
        self._sdk = sdk
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._places: dict[int, Place] = {}
        self._roles: dict[tuple[int, int], tuple[float, frozenset[int]]] = {}

    async def page(self, channel_id: int, after: int) -> Sequence[Facts | Unreadable]:
        """`source.Source.page`."""
        place = await self._place(channel_id)
        async with self._mapped():
            payloads: Any = await self._bot.http.logs_from(channel_id, PAGE_MESSAGES, after=after)
        if not isinstance(payloads, list):
            raise HistoryUnavailable("discord's history is no list")
        return [_in_place(read_or_not(payload), place, channel_id) for payload in payloads]

    async def complete(self, facts: Facts) -> Facts:
        """`source.Source.complete`."""
        if not facts.place_known:
            facts = _placed(facts, await self._place_or_none(facts))
        if facts.role_ids is None:
            facts = replace(facts, role_ids=await self._roles_where(facts))
        return self._named(facts)

    def active_threads(self) -> Mapping[int, OpenThread]:
        """`source.Source.active_threads`."""
        return {
            thread.id: OpenThread(thread.parent_id, thread.last_message_id or 0)
            for guild in self._bot.guilds
            for thread in guild.threads
        }

    def upload_limit_bytes(self, channel_id: int) -> int | None:
        """Of one file, by what is paid for where this channel is; None: nobody knows."""
        channel = self._bot.get_channel(channel_id)
        if not isinstance(channel, self._sdk.Thread | self._sdk.abc.GuildChannel):
            return None
        # Not the SDK's own look-up, which knows the levels of today only.
        return _FILE_LIMITS.get(channel.guild.premium_tier)

    async def file_address(self, ref: FileRef) -> str | None:
        """Where a file lies now; None: its message has it no more.

        Raises:
            ChannelGone, HistoryUnavailable
        """
        async with self._mapped():
            message: Any = await self._bot.http.get_message(ref.channel_id, ref.message_id)
        return address_in(message, ref.attachment_id)

    async def roles_of(self, channel_id: int, user_id: int) -> frozenset[str] | None:
        """Of a person, where this channel is; of who has left: none. None: there is no guild.

        Raises:
            ChannelGone, HistoryUnavailable
        """
        guild_id = (await self._place(channel_id)).guild_id
        if guild_id is None:
            return None
        return frozenset(map(str, await self._member_roles(guild_id, user_id)))

    # --- places

    async def _place_or_none(self, facts: Facts) -> Place:
        try:
            return await self._place(facts.channel_id)
        except ChannelGone:
            return Place(facts.guild_id)

    async def _place(self, channel_id: int) -> Place:
        known = self._cached_place(channel_id)
        if known is not None:
            return known
        known = self._places.pop(channel_id, None)
        if known is None:
            async with self._mapped():
                channel: Any = await self._bot.http.get_channel(channel_id)
            known = _place_of(channel)
        self._places[channel_id] = known  # the last one in the order
        while len(self._places) > MAX_PLACES:
            del self._places[next(iter(self._places))]
        return known

    def _cached_place(self, channel_id: int) -> Place | None:
        channel = self._bot.get_channel(channel_id)
        if isinstance(channel, self._sdk.Thread):
            return Place(channel.guild.id, True, channel.parent_id, channel.owner_id)
        if isinstance(channel, self._sdk.abc.GuildChannel):
            return Place(channel.guild.id)
        return None

    # --- people and names

    async def _roles_where(self, facts: Facts) -> frozenset[int]:
        """Messages of the history do not tell their author's roles."""
        if facts.guild_id is None:
            return frozenset()
        return await self._member_roles(facts.guild_id, facts.author_id)

    async def _member_roles(self, guild_id: int, user_id: int) -> frozenset[int]:
        key, now = (guild_id, user_id), self._clock.monotonic()
        asked_at, roles = self._roles.get(key, (None, frozenset()))
        if asked_at is not None and now - asked_at < ROLES_SECONDS:
            return roles
        try:
            async with self._mapped():
                member: Any = await self._bot.http.get_member(*key)
        except ChannelGone:  # no member any more
            return frozenset()
        found = member.get("roles") if isinstance(member, dict) else None
        ids = [id_of(role) for role in found] if isinstance(found, list) else []
        roles = frozenset(role for role in ids if role is not None)
        self._roles = {k: v for k, v in self._roles.items() if now - v[0] < ROLES_SECONDS}
        self._roles[key] = (now, roles)
        return roles

    def _named(self, facts: Facts) -> Facts:
        guild = None if facts.guild_id is None else self._bot.get_guild(facts.guild_id)
        if guild is None:
            return facts
        own = guild.self_role
        text = facts.text if facts.replied is None else f"{facts.text} {facts.replied.text}"
        role_ids, channel_ids = places_named_in(text)
        roles = [guild.get_role(role_id) for role_id in role_ids]
        channels = [guild.get_channel_or_thread(channel_id) for channel_id in channel_ids]
        here = guild.get_channel_or_thread(facts.channel_id)
        return replace(
            facts,
            channel_name="" if here is None else here.name,
            own_role_id=None if own is None else own.id,
            role_names={role.id: role.name for role in roles if role is not None},
            channel_names={place.id: place.name for place in channels if place is not None},
        )

    # --- errors

    @asynccontextmanager
    async def _mapped(self) -> AsyncGenerator[None, None]:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        discord = self._sdk
        try:
            async with asyncio.timeout(self._timeout_seconds):
                yield
        except (discord.Forbidden, discord.NotFound) as exc:
            if by_a_guard(exc.status, exc.code):
                raise HistoryUnavailable(shown(exc)) from exc
            raise ChannelGone(shown(exc)) from exc
        except discord.RateLimited as exc:
            raise HistoryUnavailable(shown(exc), exc.retry_after) from exc
        except discord.HTTPException as exc:
            if exc.status in (400, 410):  # this kind of channel has no messages
                raise ChannelGone(shown(exc)) from exc
            pause_seconds = CLOUDFLARE_SECONDS if exc.status == 429 else 0.0
            raise HistoryUnavailable(shown(exc), pause_seconds) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise HistoryUnavailable(shown(exc)) from exc
        except RuntimeError as exc:
            if "closed" not in str(exc).lower():
                raise
            raise HistoryUnavailable("discord: the connection is closed") from exc


def shown(exc: BaseException) -> str:
    """An error in a line."""
    return f"{type(exc).__name__}: {exc}"[:300]


def _place_of(channel: Any) -> Place:
    if not isinstance(channel, dict):
        raise HistoryUnavailable("discord's channel is no object")
    guild_id = id_of(channel.get("guild_id"))
    if channel.get("type") not in THREADS:
        return Place(guild_id)
    return Place(guild_id, True, id_of(channel.get("parent_id")), id_of(channel.get("owner_id")))


def _in_place(item: Facts | Unreadable, place: Place, channel_id: int) -> Facts | Unreadable:
    if isinstance(item, Unreadable):
        return replace(item, channel_id=channel_id)
    return replace(_placed(item, place), channel_id=channel_id)


def _placed(facts: Facts, place: Place) -> Facts:
    return replace(
        facts,
        guild_id=place.guild_id,
        is_thread=place.is_thread,
        parent_id=place.parent_id,
        thread_owner_id=place.owner_id,
        place_known=True,
    )
