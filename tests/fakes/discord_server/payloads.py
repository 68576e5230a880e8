"""The JSON objects of the wire, made from the entities of the world."""

from __future__ import annotations

import datetime
from typing import Any

from tests.fakes.discord_server import state
from tests.fakes.discord_server.state import Channel, Guild, Member, Message, Role, User, World

JOINED = "2024-01-01T00:00:00+00:00"


def iso(stamp: float | None) -> str | None:
    if stamp is None:
        return None
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC).isoformat(timespec="milliseconds")


def user_payload(user: User) -> dict[str, Any]:
    return {
        "id": str(user.id),
        "username": user.name,
        "discriminator": "0",
        "global_name": None if user.bot else user.name.title(),
        "avatar": None,
        "bot": user.bot,
        "system": False,
        "public_flags": 0,
        "avatar_decoration_data": None,
    }


def own_user_payload(user: User) -> dict[str, Any]:
    extra = {"verified": True, "mfa_enabled": False, "locale": "en-US", "flags": 0, "email": None}
    return user_payload(user) | extra


def application_payload(world: World, allowed_intents: int) -> dict[str, Any]:
    flags = 1 << 23  # has application commands
    flags |= (1 << 13) if allowed_intents & state.INTENT_PRESENCES else 0
    flags |= (1 << 15) if allowed_intents & state.INTENT_MEMBERS else 0
    flags |= (1 << 19) if allowed_intents & state.INTENT_CONTENT else 0
    owner = User(world.bot.id + 1, "owner")
    return {
        "id": str(world.bot.id),
        "name": world.bot.name,
        "icon": None,
        "description": "",
        "summary": "",
        "bot_public": True,
        "bot_require_code_grant": False,
        "verify_key": "0" * 64,
        "flags": flags,
        "owner": user_payload(owner),
        "team": None,
        "hook": True,
        "bot": user_payload(world.bot),
    }


def role_payload(role: Role) -> dict[str, Any]:
    return {
        "id": str(role.id),
        "name": role.name,
        "permissions": str(role.permissions),
        "position": 0 if role.name == "@everyone" else 1,
        "color": 0,
        "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        "hoist": False,
        "managed": role.bot_id is not None,
        **({} if role.bot_id is None else {"tags": {"bot_id": str(role.bot_id)}}),
        "mentionable": True,
        "flags": 0,
        "icon": None,
        "unicode_emoji": None,
    }


def member_payload(world: World, member: Member, *, with_user: bool) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "roles": [str(role) for role in member.roles],
        "nick": member.nick,
        "avatar": None,
        "banner": None,
        "joined_at": JOINED,
        "premium_since": None,
        "deaf": False,
        "mute": False,
        "pending": False,
        "flags": 0,
        "communication_disabled_until": None,
    }
    if with_user:
        payload["user"] = user_payload(world.users[member.user_id])
    return payload


def channel_payload(world: World, channel: Channel) -> dict[str, Any]:
    last = channel.last_message_id
    payload: dict[str, Any] = {
        "id": str(channel.id),
        "type": channel.type,
        "last_message_id": None if last is None else str(last),
        "flags": 0,
    }
    if channel.type == state.DM:
        assert channel.recipient_id is not None
        return payload | {"recipients": [user_payload(world.users[channel.recipient_id])]}
    payload |= {
        "guild_id": str(channel.guild_id),
        "name": channel.name,
        "parent_id": None if channel.parent_id is None else str(channel.parent_id),
        "rate_limit_per_user": 0,
    }
    return payload | (_thread_fields(channel) if channel.is_thread else _text_fields(channel))


def _text_fields(channel: Channel) -> dict[str, Any]:
    deny = sum(state.PERMISSION_BITS[what] for what in channel.denied)
    overwrite = {"id": str(channel.guild_id), "type": 0, "allow": "0", "deny": str(deny)}
    return {
        "position": 0,
        "topic": None,
        "nsfw": False,
        "permission_overwrites": [overwrite] if deny else [],
        "default_auto_archive_duration": 1440,
    }


def _thread_fields(channel: Channel) -> dict[str, Any]:
    return {
        "owner_id": str(channel.owner_id),
        "message_count": len(channel.messages),
        "total_message_sent": len(channel.messages),
        "member_count": 1,
        "applied_tags": [],
        "thread_metadata": {
            "archived": channel.archived,
            "auto_archive_duration": 1440,
            "archive_timestamp": JOINED,
            "create_timestamp": JOINED,
            "locked": channel.locked,
        },
    }


def guild_payload(world: World, guild: Guild, *, all_members: bool) -> dict[str, Any]:
    """A guild as GUILD_CREATE shows it; without the members intent only the bot is listed."""
    channels = [world.channels[channel] for channel in guild.channels]
    seen = [channel for channel in channels if world.bot_sees(channel)]
    listed = guild.members.values() if all_members else [guild.members[world.bot.id]]
    return guild_facts(guild) | {
        "joined_at": JOINED,
        "large": False,
        "unavailable": False,
        "member_count": len(guild.members),
        "members": [member_payload(world, member, with_user=True) for member in listed],
        # Discord lists channels whether or not the bot may see them, but only threads it sees.
        "channels": [channel_payload(world, one) for one in channels if not one.is_thread],
        "threads": [
            channel_payload(world, one) for one in seen if one.is_thread and not one.archived
        ],
        "presences": [],
        "voice_states": [],
        "stage_instances": [],
        "guild_scheduled_events": [],
        "soundboard_sounds": [],
    }


def guild_facts(guild: Guild) -> dict[str, Any]:
    """The part of a guild that REST shows too."""
    return {
        "id": str(guild.id),
        "name": guild.name,
        "icon": None,
        "splash": None,
        "discovery_splash": None,
        "banner": None,
        "description": None,
        "owner_id": str(guild.owner_id),
        "afk_channel_id": None,
        "afk_timeout": 300,
        "verification_level": 0,
        "default_message_notifications": 0,
        "explicit_content_filter": 0,
        "mfa_level": 0,
        "application_id": None,
        "system_channel_id": None,
        "system_channel_flags": 0,
        "rules_channel_id": None,
        "public_updates_channel_id": None,
        "safety_alerts_channel_id": None,
        "max_members": 500000,
        "vanity_url_code": None,
        "premium_tier": guild.premium_tier,
        "premium_subscription_count": 0,
        "premium_progress_bar_enabled": False,
        "preferred_locale": "en-US",
        "nsfw_level": 0,
        "nsfw": False,
        "emojis": [],
        "stickers": [],
        "features": [],
        "roles": [role_payload(role) for role in guild.roles.values()],
    }


def message_payload(
    world: World,
    message: Message,
    *,
    see_content: bool,
    event: bool = False,
    with_reference: bool = True,
) -> dict[str, Any]:
    """A message; `event` adds what only the gateway sends (guild_id, member)."""
    visible = see_content or world.content_is_open(message)
    payload: dict[str, Any] = {
        "id": str(message.id),
        "channel_id": str(message.channel_id),
        "author": _author_payload(world, message),
        "content": message.content if visible else "",
        "timestamp": iso(message.created_at),
        "edited_timestamp": iso(message.edited_at),
        "tts": False,
        "mention_everyone": message.mention_everyone,
        "mentions": [user_payload(world.users[user]) for user in message.mentions],
        "mention_roles": [str(role) for role in message.mention_roles],
        "attachments": signed(world, message.attachments) if visible else [],
        "embeds": message.embeds if visible else [],
        "components": message.components if visible else [],
        "pinned": False,
        "type": message.type,
        "flags": message.flags,
    }
    payload |= _optional_fields(world, message)
    if event:
        _add_event_fields(world, message, payload)
    if message.snapshot is not None:
        content = message.snapshot if visible else message.snapshot | {"content": ""}
        content = content | {"attachments": signed(world, content["attachments"])}
        payload["message_snapshots"] = [{"message": content}]
    if message.stickers:
        payload["sticker_items"] = message.stickers
    if message.poll is not None:
        payload["poll"] = message.poll
    if message.reference is not None:
        payload["message_reference"] = message.reference
        if with_reference and message.type == state.REPLY:
            payload["referenced_message"] = _referenced(world, message, see_content)
    return payload


def signed(world: World, attachments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the addresses of today."""
    urls = [world.cdn.url(int(one["id"])) for one in attachments]
    pairs = zip(attachments, urls, strict=True)
    return [one | {"url": url, "proxy_url": url} for one, url in pairs]


def _author_payload(world: World, message: Message) -> dict[str, Any]:
    if message.webhook_id is None or message.interaction is not None:
        return user_payload(world.users[message.author_id])
    author = user_payload(User(message.webhook_id, message.webhook_name or "hook", bot=True))
    return author | {"discriminator": "0000", "global_name": None}


def _optional_fields(world: World, message: Message) -> dict[str, Any]:
    """Fields that Discord leaves out when they have nothing to say."""
    fields: dict[str, Any] = {}
    if message.nonce is not None:
        fields["nonce"] = message.nonce
    if message.webhook_id is not None:
        fields["webhook_id"] = str(message.webhook_id)
    if message.interaction is not None:
        fields["interaction_metadata"] = message.interaction
        fields["application_id"] = str(world.bot.id)
    if message.reactions:
        fields["reactions"] = [
            {
                "emoji": state.emoji_payload(emoji),
                "count": len(users),
                "count_details": {"burst": 0, "normal": len(users)},
                "me": world.bot.id in users,
                "me_burst": False,
                "burst_colors": [],
            }
            for emoji, users in message.reactions.items()
        ]
    return fields


def _add_event_fields(world: World, message: Message, payload: dict[str, Any]) -> None:
    channel = world.channels[message.channel_id]
    payload["channel_type"] = channel.type
    if channel.guild_id is None:
        return
    payload["guild_id"] = str(channel.guild_id)
    member = world.member_of(channel, message.author_id)
    if member is not None and message.webhook_id is None:
        payload["member"] = member_payload(world, member, with_user=False)
    for mention in payload["mentions"]:
        mentioned = world.member_of(channel, int(mention["id"]))
        if mentioned is not None:
            mention["member"] = member_payload(world, mentioned, with_user=False)


def _referenced(world: World, message: Message, see_content: bool) -> dict[str, Any] | None:
    replied = world.replied_to(message)
    if replied is None:
        return None  # null says that it was deleted
    return message_payload(world, replied, see_content=see_content, with_reference=False)
