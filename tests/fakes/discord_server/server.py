"""The loopback Discord server: a world, its REST and gateway halves, and hands to move it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.fakes.discord_server import payloads, state
from tests.fakes.discord_server.control import control_routes
from tests.fakes.discord_server.faults import Fault
from tests.fakes.discord_server.interactions import Interaction, Interactions
from tests.fakes.discord_server.rest import API, Call, Rest, SentMessage, Typing
from tests.fakes.discord_server.state import (
    Channel,
    Clock,
    Guild,
    Member,
    Message,
    Role,
    User,
    World,
    entity_id,
)
from tests.fakes.discord_server.ws import Gateway, GatewaySettings, Received

PRIVILEGED_BITS = {
    "members": state.INTENT_MEMBERS,
    "presences": state.INTENT_PRESENCES,
    "message_content": state.INTENT_CONTENT,
}
# Any entity may be given as itself or as its id.
UserLike = User | int
ChannelLike = Channel | int
GuildLike = Guild | int
MessageLike = Message | int
Files = Iterable[tuple[str, bytes | str, str]]  # name, data, content type


class DiscordServer:
    """One Discord with one bot account, on 127.0.0.1.

    All helpers but those that wait are plain functions: what they cause is queued for the sockets
    at once, in order.
    """

    def __init__(
        self,
        token: str = "discord-test-token",
        *,
        port: int = 0,
        bot_id: int = 900_000_000_000_000_001,
        bot_name: str = "posthouse",
        clock: Clock = time.time,
        privileged: Iterable[str] = ("message_content",),
        heartbeat_interval: float = 41.25,
        session_ttl: float = 60.0,
        nonce_window: float = 180.0,
        interaction_deadline: float = 3.0,
        compress: bool = True,
        shards: int = 1,
    ) -> None:
        self.bot = User(bot_id, bot_name, bot=True)
        self.port = port
        self._changed_event = asyncio.Event()
        self._runner: web.AppRunner | None = None
        allowed = sum(PRIVILEGED_BITS[name] for name in privileged)
        self.settings = GatewaySettings(
            token, heartbeat_interval, allowed, session_ttl, compress, shards
        )
        self.gateway = Gateway(self.settings, clock, self._changed)
        self.world = World(clock, self.bot, self.gateway.emit)
        self.gateway.world = self.world
        self.interactions = Interactions(self.world, interaction_deadline)
        self.rest = Rest(
            self.world,
            self.interactions,
            token=lambda: self.settings.token,
            allowed_intents=lambda: self.settings.allowed_intents,
            gateway_info=self._gateway_info,
            nonce_window=nonce_window,
            changed=self._changed,
        )

    # -- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if error is None and self.crashes:
            raise ExceptionGroup("the loopback Discord server failed", self.crashes)

    async def start(self) -> None:
        """Listen; a second start after `stop` comes back on the same port with the same world."""
        self.rest.release.clear()
        app = web.Application(middlewares=[self.rest.middleware], client_max_size=30 << 20)
        app.add_routes(self.rest.routes())
        app.add_routes([web.get("/gw", self.gateway.handle), web.get("/gw/", self.gateway.handle)])
        app.add_routes([web.get("/attachments/{channel}/{id}/{name}", self.world.cdn.answer)])
        app.add_routes(control_routes(self))
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.world.cdn.base = self.base_url
        self.gateway.url = self.gateway_url

    async def stop(self) -> None:
        """Stop listening and cut every connection; the world stays."""
        if self._runner is None:
            return
        self.rest.release.set()
        self.gateway.kill()
        runner, self._runner = self._runner, None
        await runner.cleanup()

    @property
    def crashes(self) -> list[Exception]:
        """Bugs of this server met so far; leaving its block raises them."""
        return self.rest.crashes + self.gateway.crashes + self.world.cdn.crashes

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_base(self) -> str:
        return self.base_url + API

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gw/"

    @property
    def control_url(self) -> str:
        return f"{self.base_url}/_control"

    @property
    def token(self) -> str:
        return self.settings.token

    def set_token(self, token: str) -> None:
        """Reset the bot's token: requests and connections with the old one fail from here on."""
        self.settings.token = token

    def set_privileged(self, *names: str) -> None:
        """Which privileged intents the application was granted."""
        self.settings.allowed_intents = sum(PRIVILEGED_BITS[name] for name in names)

    def _gateway_info(self) -> dict[str, Any]:
        limit = {"total": 1000, "remaining": 999, "reset_after": 86_400_000, "max_concurrency": 1}
        shards = self.settings.shards
        return {"url": self.gateway_url, "shards": shards, "session_start_limit": limit}

    # -- the world ------------------------------------------------------------------------------

    def add_user(
        self, name: str, *, id_: int | None = None, bot: bool = False, accepts_dm: bool = True
    ) -> User:
        user = User(id_ or self.world.snowflakes.next(), name, bot, accepts_dm)
        self.world.users[user.id] = user
        return user

    def add_guild(
        self, name: str = "guild", *, id_: int | None = None, owner: UserLike | None = None
    ) -> Guild:
        """A guild with the bot in it; connected clients see it appear."""
        guild_id = id_ or self.world.snowflakes.next()
        keeper = self.world.user(owner) if owner is not None else self.add_user("keeper")
        guild = Guild(guild_id, name, keeper.id)
        guild.roles[guild_id] = Role(guild_id, "@everyone", state.EVERYONE_MAY)
        for user_id in (keeper.id, self.bot.id):
            guild.members[user_id] = Member(user_id)
        self.world.guilds[guild_id] = guild
        for session in list(self.gateway.sessions.values()):
            if session.wants(guild.id, state.INTENT_GUILDS):
                session.send("GUILD_CREATE", self.gateway.guild_event(session, guild))
        return guild

    def add_role(
        self,
        guild: GuildLike,
        name: str,
        *,
        id_: int | None = None,
        permissions: int = 0,
        of_the_bot: bool = False,
    ) -> Role:
        home = self.world.guild(guild)
        role = Role(id_ or self.world.snowflakes.next(), name, permissions)
        role.bot_id = self.bot.id if of_the_bot else None
        home.roles[role.id] = role
        data = {"guild_id": str(home.id), "role": payloads.role_payload(role)}
        self._emit_guild(home.id, "GUILD_ROLE_CREATE", data)
        return role

    def add_member(
        self,
        guild: GuildLike,
        user: UserLike,
        *,
        roles: Iterable[Role | int] = (),
        nick: str | None = None,
    ) -> Member:
        """Join a user to a guild, or change the roles of a member."""
        home, person = self.world.guild(guild), self.world.user(user)
        event = "GUILD_MEMBER_UPDATE" if person.id in home.members else "GUILD_MEMBER_ADD"
        member = Member(person.id, [entity_id(role) for role in roles], nick)
        home.members[person.id] = member
        data = payloads.member_payload(self.world, member, with_user=True)
        data["guild_id"] = str(home.id)
        self._emit_guild(home.id, event, data, state.INTENT_MEMBERS)
        return member

    def add_channel(
        self,
        guild: GuildLike,
        name: str = "general",
        *,
        id_: int | None = None,
        forum: bool = False,
    ) -> Channel:
        home = self.world.guild(guild)
        kind = state.FORUM if forum else state.TEXT
        channel = Channel(id_ or self.world.snowflakes.next(), kind, name, home.id)
        self.world.channels[channel.id] = channel
        home.channels.append(channel.id)
        self._emit_channel("CHANNEL_CREATE", channel)
        return channel

    def add_thread(
        self,
        channel: ChannelLike,
        name: str = "thread",
        *,
        id_: int | None = None,
        owner: UserLike | None = None,
        deliver: bool = True,
    ) -> Channel:
        parent = self.world.channel(channel)
        guild = self.world.guild_of(parent)
        assert guild is not None
        keeper = guild.owner_id if owner is None else entity_id(owner)
        thread_id = id_ or self.world.snowflakes.next()
        return self.rest.add_thread(parent, name, thread_id, keeper, deliver=deliver)

    def archive(self, thread: ChannelLike, *, locked: bool = False) -> None:
        """Archive a thread: it leaves GUILD_CREATE, and a new message wakes it unless locked."""
        found = self.world.channel(thread)
        found.archived, found.locked = True, locked
        self._emit_channel("THREAD_UPDATE", found)

    def open_dm(self, user: UserLike) -> Channel:
        return self.world.dm_with(self.world.user(user))

    def block_dm(self, user: UserLike, blocked: bool = True) -> None:
        self.world.user(user).accepts_dm = not blocked

    def deny(self, channel: ChannelLike, *what: str) -> None:
        """Take rights from the bot: view, send, send_in_threads, history, attach, embed, react."""
        unknown = set(what) - set(state.PERMISSION_BITS)
        if unknown:
            raise ValueError(f"unknown rights {sorted(unknown)}")
        self._set_denied(channel, self.world.channel(channel).denied | set(what))

    def allow(self, channel: ChannelLike, *what: str) -> None:
        self._set_denied(channel, self.world.channel(channel).denied - set(what))

    def _set_denied(self, channel: ChannelLike, denied: set[str]) -> None:
        found = self.world.channel(channel)
        found.denied = denied
        self._emit_channel("THREAD_UPDATE" if found.is_thread else "CHANNEL_UPDATE", found)

    def remove_channel(self, channel: ChannelLike) -> None:
        """Delete a channel with all its messages; afterwards it is 404/10003."""
        found = self.world.channel(channel)
        self._emit_channel("THREAD_DELETE" if found.is_thread else "CHANNEL_DELETE", found)
        guild = self.world.guild_of(found)
        if guild is not None:
            guild.channels.remove(found.id)
        for message in found.messages.values():
            message.deleted = True
        del self.world.channels[found.id]

    def kick_bot(self, guild: GuildLike) -> None:
        """Throw the bot out of a guild; its channels are 403/50001 from here on."""
        home = self.world.guild(guild)
        self._emit_guild(home.id, "GUILD_DELETE", {"id": str(home.id)})
        del home.members[self.bot.id]

    def _emit_channel(self, event: str, channel: Channel) -> None:
        assert channel.guild_id is not None
        self._emit_guild(channel.guild_id, event, payloads.channel_payload(self.world, channel))

    def _emit_guild(
        self, guild_id: int, event: str, data: dict[str, Any], intent: int = state.INTENT_GUILDS
    ) -> None:
        self.world.emit(event, lambda _see: data, guild_id=guild_id, intent=intent)

    # -- what people do -------------------------------------------------------------------------

    def user_says(
        self,
        channel: ChannelLike,
        user: UserLike,
        content: str = "",
        *,
        mention_bot: bool = False,
        reply_to: MessageLike | None = None,
        ping: bool = True,
        files: Files = (),
        deliver: bool = True,
        **fields: Any,
    ) -> Message:
        """Write in a channel; `fields` as `Message` has them (stickers, poll, flags).

        `deliver=False` keeps it from the gateway: only history shows it.
        """
        place, person = self.world.channel(channel), self.world.user(user)
        guild = self.world.guild_of(place)
        if guild is not None and person.id not in guild.members:
            self.add_member(guild, person)
        text = f"<@{self.bot.id}> {content}" if mention_bot else content
        if len(text) > state.USER_CONTENT_LIMIT:
            raise ValueError("nobody can write that much in one message; use user_pastes")
        message = self.world.new_message(
            place,
            person.id,
            text,
            reference=self._reply_reference(place, reply_to),
            ping_reply=ping,
            attachments=[self.world.attach(place, *_as_file(one)) for one in files],
            mention_everyone="@everyone" in text or "@here" in text,
            **fields,
        )
        return self.world.post(place, message, deliver=deliver)

    def user_forwards(
        self, channel: ChannelLike, user: UserLike, message: MessageLike, **options: Any
    ) -> Message:
        """Pass a message on: what it said stands in a snapshot, without its author."""
        original = self.world.message(message)
        reference = {
            "type": 1,
            "channel_id": str(original.channel_id),
            "message_id": str(original.id),
        }
        snapshot = {
            "type": original.type,
            "content": original.content,
            "embeds": original.embeds,
            "attachments": original.attachments,
            "timestamp": payloads.iso(original.created_at),
            "edited_timestamp": payloads.iso(original.edited_at),
            "flags": original.flags,
            "mentions": [],
            "mention_roles": [],
            "components": [],
        }
        place, person = self.world.channel(channel), self.world.user(user)
        self._ensure_member(place, person)
        forwarded = self.world.new_message(
            place,
            person.id,
            "",
            reference=reference,
            type=state.DEFAULT,
            snapshot=snapshot,
            flags=state.HAS_SNAPSHOT,
        )
        return self.world.post(place, forwarded, **options)

    def _reply_reference(
        self, place: Channel, reply_to: MessageLike | None
    ) -> dict[str, Any] | None:
        if reply_to is None:
            return None
        message = self.world.message(reply_to)
        reference = {"type": 0, "channel_id": str(place.id), "message_id": str(message.id)}
        return reference | ({"guild_id": str(place.guild_id)} if place.guild_id else {})

    def user_dms(self, user: UserLike, content: str = "", **options: Any) -> Message:
        """Write to the bot directly."""
        return self.user_says(self.open_dm(user), user, content, **options)

    def user_pastes(
        self, channel: ChannelLike, user: UserLike, text: str, *, size: int = 2000, **options: Any
    ) -> list[Message]:
        """Write a long text as several messages in a row."""
        pieces = state.long_paste(text, size)
        return [self.user_says(channel, user, piece, **options) for piece in pieces]

    def user_edits(self, message: MessageLike, content: str) -> Message:
        return self.world.edit(self.world.message(message), {"content": content.strip()})

    def unfurl(self, message: MessageLike, url: str = "https://example.org/") -> Message:
        """Let Discord add a link preview: an update without an edit, seconds after the message."""
        embed = {"type": "link", "url": url, "title": "Example"}
        return self.world.edit(self.world.message(message), {"embeds": [embed]}, edited=False)

    def expire_links(self) -> None:
        """All addresses of files that were told so far lead nowhere any more."""
        self.world.cdn.expire()

    def user_deletes(self, message: MessageLike) -> None:
        self.world.delete(self.world.message(message))

    def redeliver(self, message: MessageLike) -> None:
        """Send MESSAGE_CREATE for an old message once more."""
        self.world.emit_message("MESSAGE_CREATE", self.world.message(message))

    def user_reacts(self, message: MessageLike, user: UserLike, emoji: str) -> None:
        self.world.react(self.world.message(message), entity_id(user), emoji)

    def user_types(self, channel: ChannelLike, user: UserLike) -> None:
        self.world.typing(self.world.channel(channel), entity_id(user))

    def webhook_says(
        self, channel: ChannelLike, content: str, *, name: str = "hook", id_: int | None = None
    ) -> Message:
        place = self.world.channel(channel)
        hook = id_ or self.world.snowflakes.next()
        fields: dict[str, Any] = {"webhook_id": hook, "webhook_name": name}
        message = self.world.new_message(place, hook, content, **fields)
        return self.world.post(place, message)

    def system_message(
        self, channel: ChannelLike, user: UserLike, kind: str = "join", content: str = ""
    ) -> Message:
        """A message by Discord about a user: join, pin, boost or thread."""
        place = self.world.channel(channel)
        message = self.world.new_message(
            place, entity_id(user), content, type=state.SYSTEM_KINDS[kind]
        )
        return self.world.post(place, message)

    def slash(
        self,
        channel: ChannelLike,
        user: UserLike,
        name: str,
        options: dict[str, Any] | list[dict[str, Any]] | None = None,
        *,
        force: bool = False,
    ) -> Interaction:
        """Run a registered slash command (`force`: also one the bot has not registered)."""
        place, person = self.world.channel(channel), self.world.user(user)
        self._ensure_member(place, person)
        return self.interactions.slash(place, person, name, options, force=force)

    def click(self, message: MessageLike, user: UserLike, custom_id: str) -> Interaction:
        found, person = self.world.message(message), self.world.user(user)
        self._ensure_member(self.world.channels[found.channel_id], person)
        return self.interactions.click(found, person, custom_id)

    def _ensure_member(self, place: Channel, person: User) -> None:
        guild = self.world.guild_of(place)
        if guild is not None and person.id not in guild.members:
            self.add_member(guild, person)

    def dispatch(
        self, event: str, data: dict[str, Any], *, guild_id: int | None = None, intent: int = 0
    ) -> None:
        """Send any event, also one that no real server would send."""
        self.world.emit(event, lambda _see: data, guild_id=guild_id, intent=intent)

    # -- faults ---------------------------------------------------------------------------------

    def fault(self, kind: str, **options: Any) -> Fault:
        """Script a fault for REST; see `faults.Fault` for what can be chosen."""
        if options.get("channel_id") is not None:
            options["channel_id"] = entity_id(options["channel_id"])
        return self.rest.faults.add(kind, **options)

    def clear_faults(self) -> None:
        """Forget scripted faults and drop what hangs."""
        self.rest.faults.clear()
        self.gateway.refuse = 0
        self.rest.release.set()
        self.rest.release = asyncio.Event()

    def kill_sockets(self, code: int | None = None) -> int:
        """Close all gateway sockets with a code, or (None) cut them off; returns how many."""
        return self.gateway.kill(code)

    def reconnect(self) -> None:
        """Op 7."""
        self.gateway.ask_to_reconnect()

    def invalidate_session(self, *, resumable: bool = False) -> None:
        """Op 9."""
        self.gateway.invalidate(resumable=resumable)

    def forget_sessions(self) -> None:
        """The next RESUME fails; nothing sent meanwhile is replayed."""
        self.gateway.forget_sessions()

    def make_zombies(self) -> None:
        """Present sockets stay open and say nothing more: no events, no heartbeat ACKs."""
        self.gateway.make_zombies()

    def push_raw(self, data: str | bytes) -> None:
        """Send anything at all over the present sockets."""
        for connection in self.gateway.connections:
            connection.push_raw(data)

    def refuse_gateway(self, times: int = -1) -> None:
        """Refuse the next upgrades (-1: all, until `refuse_gateway(0)`)."""
        self.gateway.refuse = times

    # -- what the bot did -----------------------------------------------------------------------

    @property
    def sent(self) -> list[SentMessage]:
        """Messages that the bot made, in order, deleted ones too."""
        return self.rest.sent

    @property
    def calls(self) -> list[Call]:
        return self.rest.calls

    @property
    def typings(self) -> list[Typing]:
        return self.rest.typings

    @property
    def received(self) -> list[Received]:
        """Frames that clients sent over the gateway."""
        return self.gateway.received

    @property
    def connected(self) -> bool:
        """Whether a client has identified or resumed and its socket is open."""
        return any(one.session is not None for one in self.gateway.connections)

    def sent_in(self, channel: ChannelLike) -> list[SentMessage]:
        return [one for one in self.sent if one.channel_id == entity_id(channel)]

    def visible(self, channel: ChannelLike) -> list[Message]:
        """What a person sees in the channel now, oldest first."""
        messages = self.world.channel(channel).messages.values()
        return sorted((one for one in messages if not one.ephemeral), key=lambda one: one.id)

    def texts(self, channel: ChannelLike) -> list[str]:
        return [message.content for message in self.visible(channel)]

    def bot_texts(self, channel: ChannelLike) -> list[str]:
        """The bot's own visible messages in the channel."""
        return [one.content for one in self.visible(channel) if one.author_id == self.bot.id]

    def commands(self, guild: GuildLike | None = None) -> list[dict[str, Any]]:
        """The commands the bot has registered."""
        return self.interactions.commands.get(None if guild is None else entity_id(guild), [])

    def calls_to(self, method: str, path: str) -> list[Call]:
        """Recorded calls whose path (without /api/v10) matches a shell pattern."""
        probe = Fault("status", method=method, path=path)
        return [one for one in self.calls if probe.matches(one.method, one.path, None, "")]

    def stats(self) -> dict[str, Any]:
        gateway = self.gateway.stats
        return vars(gateway) | {
            "connected": self.connected,
            "sockets": len(self.gateway.connections),
            "sessions": len(self.gateway.sessions),
            "sent": len(self.sent),
            "calls": len(self.calls),
            "typings": len(self.typings),
            "crashes": [repr(one) for one in self.crashes],
            "faults_left": [vars(one) for one in self.rest.faults.faults if one.times != 0],
        }

    # -- waiting --------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._changed_event.set()

    async def wait_for(self, condition: Callable[[], Any], timeout: float = 30.0) -> Any:
        """Wait until the condition holds; looked at whenever something happens here."""
        async with asyncio.timeout(timeout):
            while not (result := condition()):
                self._changed_event.clear()
                await self._changed_event.wait()
            return result

    async def wait_sent(
        self, count: int = 1, *, channel: ChannelLike | None = None, timeout: float = 30.0
    ) -> list[SentMessage]:
        """Wait until the bot has made this many messages (in the channel)."""

        def enough() -> list[SentMessage] | None:
            sent = self.sent if channel is None else self.sent_in(channel)
            return sent if len(sent) >= count else None

        result: list[SentMessage] = await self.wait_for(enough, timeout)
        return result

    async def wait_connected(self, connected: bool = True, *, timeout: float = 30.0) -> None:
        await self.wait_for(lambda: self.connected is connected, timeout)


def _as_file(file: tuple[str, bytes | str, str]) -> tuple[str, bytes, str]:
    """Text is accepted as data, because control calls can carry nothing else."""
    name, data, kind = file
    return name, data.encode() if isinstance(data, str) else data, kind
