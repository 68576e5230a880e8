"""The world behind the loopback Discord server: users, guilds, channels, messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord_server import errors
from tests.fakes.discord_server.cdn import Cdn, File

Clock = Callable[[], float]
# build(see_content) makes the event's data; without MESSAGE_CONTENT it is built blanked.
Build = Callable[[bool], dict[str, Any]]
Emit = Callable[..., None]

DISCORD_EPOCH_MS = 1_420_070_400_000
CONTENT_LIMIT = 2000  # in code points: what Discord counts; UTF-16 units would be stricter
USER_CONTENT_LIMIT = 4000  # people with Nitro may write this much
NONCE_LIMIT = 25

TEXT, DM, NEWS_THREAD, PUBLIC_THREAD, PRIVATE_THREAD, FORUM = 0, 1, 10, 11, 12, 15
THREADS = (NEWS_THREAD, PUBLIC_THREAD, PRIVATE_THREAD)

DEFAULT, REPLY, COMMAND_RESPONSE = 0, 19, 20
SYSTEM_KINDS = {"pin": 6, "join": 7, "boost": 8, "thread": 18}

EPHEMERAL, LOADING, VOICE, HAS_SNAPSHOT = 1 << 6, 1 << 7, 1 << 13, 1 << 14

INTENT_GUILDS, INTENT_MEMBERS, INTENT_PRESENCES = 1 << 0, 1 << 1, 1 << 8
INTENT_GUILD_MESSAGES, INTENT_GUILD_REACTIONS, INTENT_GUILD_TYPING = 1 << 9, 1 << 10, 1 << 11
INTENT_DM_MESSAGES, INTENT_DM_REACTIONS, INTENT_DM_TYPING = 1 << 12, 1 << 13, 1 << 14
INTENT_CONTENT = 1 << 15

PERMISSION_BITS = {
    "react": 1 << 6,
    "view": 1 << 10,
    "send": 1 << 11,
    "manage": 1 << 13,
    "embed": 1 << 14,
    "attach": 1 << 15,
    "history": 1 << 16,
    "everyone": 1 << 17,
    "send_in_threads": 1 << 38,
}
# What @everyone may do in a new guild: all of the above but managing and mentioning everyone.
EVERYONE_MAY = sum(
    bit for name, bit in PERMISSION_BITS.items() if name not in ("manage", "everyone")
)

_USER_MENTION = re.compile(r"<@!?(\d{1,20})>")
_ROLE_MENTION = re.compile(r"<@&(\d{1,20})>")


class Snowflakes:
    """Ids that carry the clock's time and always increase, also if the clock is set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 1 << 40

    def next(self) -> int:
        stamp = (int(self._clock() * 1000) - DISCORD_EPOCH_MS) << 22
        self._last = max(self._last + 1, stamp)
        return self._last


@dataclass
class User:
    id: int
    name: str
    bot: bool = False
    accepts_dm: bool = True


@dataclass
class Role:
    id: int
    name: str
    permissions: int = 0
    bot_id: int | None = None
    """Of the role that Discord makes for a bot."""


@dataclass
class Member:
    user_id: int
    roles: list[int] = field(default_factory=list)
    nick: str | None = None


@dataclass
class Guild:
    id: int
    name: str
    owner_id: int
    roles: dict[int, Role] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    channels: list[int] = field(default_factory=list)
    premium_tier: int = 0
    """How much its members pay for: larger files, among other things."""


@dataclass
class Message:
    id: int
    channel_id: int
    author_id: int
    content: str
    created_at: float
    type: int = DEFAULT
    edited_at: float | None = None
    reference: dict[str, Any] | None = None
    mentions: list[int] = field(default_factory=list)
    mention_roles: list[int] = field(default_factory=list)
    mention_everyone: bool = False
    attachments: list[dict[str, Any]] = field(default_factory=list)
    embeds: list[dict[str, Any]] = field(default_factory=list)
    components: list[dict[str, Any]] = field(default_factory=list)
    flags: int = 0
    nonce: str | int | None = None
    webhook_id: int | None = None
    webhook_name: str | None = None
    interaction: dict[str, Any] | None = None
    reactions: dict[str, list[int]] = field(default_factory=dict)
    stickers: list[dict[str, Any]] = field(default_factory=list)
    poll: dict[str, Any] | None = None
    snapshot: dict[str, Any] | None = None
    """Of a forwarded message."""
    deleted: bool = False

    @property
    def ephemeral(self) -> bool:
        return bool(self.flags & EPHEMERAL)


@dataclass
class Channel:
    id: int
    type: int
    name: str = ""
    guild_id: int | None = None
    parent_id: int | None = None
    recipient_id: int | None = None
    owner_id: int | None = None
    archived: bool = False
    locked: bool = False
    denied: set[str] = field(default_factory=set)
    messages: dict[int, Message] = field(default_factory=dict)

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS

    @property
    def last_message_id(self) -> int | None:
        return next(reversed(self.messages), None)


def entity_id(entity: Any) -> int:
    """The id of an entity, or the id itself (also as text, as control calls carry it)."""
    return int(getattr(entity, "id", entity))


class World:
    """All that exists, and the rules that hold whoever asks."""

    def __init__(self, clock: Clock, bot: User, emit: Emit) -> None:
        self.clock = clock
        self.bot = bot
        self.emit = emit
        self.snowflakes = Snowflakes(clock)
        self.users: dict[int, User] = {bot.id: bot}
        self.guilds: dict[int, Guild] = {}
        self.channels: dict[int, Channel] = {}
        self.messages: dict[int, Message] = {}
        self.cdn = Cdn()

    def channel(self, channel: Any) -> Channel:
        found = self.channels.get(entity_id(channel))
        if found is None:
            raise errors.unknown_channel()
        return found

    def user(self, user: Any) -> User:
        found = self.users.get(entity_id(user))
        if found is None:
            raise errors.unknown_user()
        return found

    def guild(self, guild: Any) -> Guild:
        found = self.guilds.get(entity_id(guild))
        if found is None:
            raise errors.unknown_guild()
        return found

    def message(self, message: Any) -> Message:
        found = self.messages.get(entity_id(message))
        if found is None or found.deleted:
            raise errors.unknown_message()
        return found

    def message_in(self, channel: Channel, message_id: int) -> Message:
        found = channel.messages.get(message_id)
        if found is None:
            raise errors.unknown_message()
        return found

    def guild_of(self, channel: Channel) -> Guild | None:
        return None if channel.guild_id is None else self.guilds.get(channel.guild_id)

    def member_of(self, channel: Channel, user_id: int) -> Member | None:
        guild = self.guild_of(channel)
        return None if guild is None else guild.members.get(user_id)

    def parent_of(self, channel: Channel) -> Channel | None:
        return None if channel.parent_id is None else self.channels.get(channel.parent_id)

    def bot_sees(self, channel: Channel) -> bool:
        if channel.guild_id is None:
            return True
        return self.member_of(channel, self.bot.id) is not None and self.may(channel, "view")

    def may(self, channel: Channel, what: str) -> bool:
        """Whether the bot may do `what` here; a thread has its parent's rules but for sending."""
        if what in channel.denied:
            return False
        parent = self.parent_of(channel)
        if parent is not None and channel.is_thread:
            return self.may(parent, "send_in_threads" if what == "send" else what)
        if what in ("manage", "everyone"):
            return self._granted(channel, what)
        return True

    def _granted(self, channel: Channel, what: str) -> bool:
        guild, member = self.guild_of(channel), self.member_of(channel, self.bot.id)
        if guild is None or member is None:
            return False
        held = [guild.roles[role] for role in member.roles if role in guild.roles]
        return any(role.permissions & PERMISSION_BITS[what] for role in held)

    def dm_with(self, user: User) -> Channel:
        """The one direct channel with this user, opened if there is none yet."""
        for channel in self.channels.values():
            if channel.type == DM and channel.recipient_id == user.id:
                return channel
        channel = Channel(self.snowflakes.next(), DM, recipient_id=user.id)
        self.channels[channel.id] = channel
        return channel

    def history(
        self,
        channel: Channel,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """One page, newest first; `after` is the page that follows directly upon the id."""
        kept = [message for message in channel.messages.values() if not message.ephemeral]
        kept.sort(key=lambda message: message.id)
        if after is not None:
            page = [message for message in kept if message.id > after][:limit]
        elif before is not None:
            page = [message for message in kept if message.id < before][-limit:]
        elif around is not None:
            older = [message for message in kept if message.id < around]
            rest = [message for message in kept if message.id >= around]
            half = limit // 2
            page = (older[-half:] if half else []) + rest[: limit - half]
        else:
            page = kept[-limit:]
        return page[::-1]

    def attach(self, channel: Channel, name: str, data: bytes, kind: str) -> dict[str, Any]:
        """Store a file and give the attachment object that points at it."""
        attachment_id = self.snowflakes.next()
        self.cdn.files[attachment_id] = File(channel.id, attachment_id, name, data, kind)
        return {
            "id": str(attachment_id),
            "filename": name,
            "size": len(data),
            "content_type": kind,
        }

    def post(self, channel: Channel, message: Message, *, deliver: bool = True) -> Message:
        """Put a finished message into its channel and tell the gateway."""
        self.messages[message.id] = message
        channel.messages[message.id] = message
        if channel.is_thread:
            channel.archived = False  # a message wakes an archived thread
        if deliver and not message.ephemeral:
            self.emit_message("MESSAGE_CREATE", message)
        return message

    def new_message(
        self,
        channel: Channel,
        author_id: int,
        content: str,
        *,
        reference: dict[str, Any] | None = None,
        ping_reply: bool = True,
        **fields: Any,
    ) -> Message:
        """A message with its mentions worked out, not yet posted."""
        fields.setdefault("type", REPLY if reference is not None else DEFAULT)
        message = Message(
            id=self.snowflakes.next(),
            channel_id=channel.id,
            author_id=author_id,
            # Discord cuts white space at both ends, which is why people send zero-width spaces.
            content=content.strip(),
            created_at=self.clock(),
            reference=reference,
            **fields,
        )
        self.find_mentions(message, ping_reply)
        return message

    def find_mentions(self, message: Message, ping_reply: bool = True) -> None:
        known = [int(found) for found in _USER_MENTION.findall(message.content)]
        replied = self.replied_to(message)
        if replied is not None and ping_reply and message.snapshot is None:
            known.append(replied.author_id)
        message.mentions = list(dict.fromkeys(user for user in known if user in self.users))
        guild = self.guild_of(self.channels[message.channel_id])
        roles = guild.roles if guild is not None else {}
        found_roles = [int(found) for found in _ROLE_MENTION.findall(message.content)]
        message.mention_roles = [role for role in dict.fromkeys(found_roles) if role in roles]

    def replied_to(self, message: Message) -> Message | None:
        if message.reference is None:
            return None
        found = self.messages.get(int(message.reference["message_id"]))
        return None if found is None or found.deleted else found

    def content_is_open(self, message: Message) -> bool:
        """Whether the bot sees the text without the MESSAGE_CONTENT intent."""
        channel = self.channels[message.channel_id]
        return (
            channel.guild_id is None
            or message.author_id == self.bot.id
            or self.bot.id in message.mentions
        )

    def edit(self, message: Message, fields: dict[str, Any], *, edited: bool = True) -> Message:
        replied = self.replied_to(message)
        pinged = replied is not None and replied.author_id in message.mentions
        for name, value in fields.items():
            setattr(message, name, value)
        self.find_mentions(message, pinged)
        if edited:
            message.edited_at = self.clock()
        if not message.ephemeral:
            self.emit_message("MESSAGE_UPDATE", message)
        return message

    def delete(self, message: Message) -> None:
        message.deleted = True
        channel = self.channels[message.channel_id]
        channel.messages.pop(message.id, None)
        if not message.ephemeral:
            data = {"id": str(message.id), "channel_id": str(channel.id)}
            self._emit_in(channel, "MESSAGE_DELETE", data, INTENT_GUILD_MESSAGES)

    def react(self, message: Message, user_id: int, emoji: str, *, add: bool = True) -> None:
        users = message.reactions.setdefault(emoji, [])
        if (user_id in users) == add:
            return
        if add:
            users.append(user_id)
        else:
            users.remove(user_id)
        if not users:
            del message.reactions[emoji]
        data = {
            "user_id": str(user_id),
            "channel_id": str(message.channel_id),
            "message_id": str(message.id),
            "message_author_id": str(message.author_id),
            "emoji": emoji_payload(emoji),
            "burst": False,
            "type": 0,
        }
        event = "MESSAGE_REACTION_ADD" if add else "MESSAGE_REACTION_REMOVE"
        channel = self.channels[message.channel_id]
        self._emit_in(channel, event, data, INTENT_GUILD_REACTIONS)

    def typing(self, channel: Channel, user_id: int) -> None:
        data = {
            "channel_id": str(channel.id),
            "user_id": str(user_id),
            "timestamp": int(self.clock()),
        }
        self._emit_in(channel, "TYPING_START", data, INTENT_GUILD_TYPING)

    def _emit_in(self, channel: Channel, event: str, data: dict[str, Any], intent: int) -> None:
        if not self.bot_sees(channel):
            return
        if channel.guild_id is not None:
            data["guild_id"] = str(channel.guild_id)
        else:
            intent <<= 3  # each direct-message intent stands three bits above its guild sibling
        self.emit(event, lambda _see: data, guild_id=channel.guild_id, intent=intent)

    def emit_message(self, event: str, message: Message) -> None:
        # Imported late: the payloads need the entities above.
        from tests.fakes.discord_server.payloads import message_payload

        channel = self.channels[message.channel_id]
        if not self.bot_sees(channel):
            return
        guild = channel.guild_id
        # Built at once for both kinds of readers: a later edit must not change an earlier event.
        built = {
            see: message_payload(self, message, see_content=see, event=True)
            for see in (True, False)
        }
        intent = INTENT_DM_MESSAGES if guild is None else INTENT_GUILD_MESSAGES
        self.emit(event, built.__getitem__, guild_id=guild, intent=intent)


def emoji_payload(emoji: str) -> dict[str, Any]:
    name, _, custom = emoji.partition(":")
    return {"id": custom or None, "name": name}


def long_paste(text: str, size: int = CONTENT_LIMIT) -> Iterable[str]:
    """The pieces a person's client makes of a text that is too long."""
    return (text[start : start + size] for start in range(0, len(text), size))
