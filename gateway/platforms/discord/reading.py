"""Owns what is read off one of the SDK's messages: `Facts`, without importing the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.platforms.discord.convert import Facts, Replied

if TYPE_CHECKING:
    import discord


def read_message(message: discord.Message) -> Facts:
    """The facts of a message from the gateway or the history."""
    channel: Any = message.channel
    kind = str(channel.type) if getattr(channel, "type", None) is not None else ""
    is_thread = kind.endswith("thread")
    guild_id = message.guild.id if message.guild else getattr(channel, "guild_id", None)
    return Facts(
        id=message.id,
        channel_id=channel.id,
        author_id=message.author.id,
        author_name=message.author.display_name,
        text=message.content,
        sent_at=message.created_at.timestamp(),
        guild_id=guild_id,
        is_thread=is_thread,
        parent_id=channel.parent_id if is_thread else None,
        # A channel that the SDK does not know (an archived thread) has no name.
        place_known=guild_id is None or hasattr(channel, "name"),
        is_person=not message.author.bot and message.webhook_id is None,
        is_ordinary=message.type.name in ("default", "reply"),
        role_ids=_roles(message, guild_id),
        mentions={user.id: user.display_name for user in message.mentions},
        role_names={role.id: role.name for role in message.role_mentions},
        channel_names={c.id: c.name for c in message.channel_mentions},
        replied=_replied(message),
        enclosures=tuple(_enclosures(message)),
        has_unseen_content=bool(message.embeds or message.components),
    )


def _roles(message: discord.Message, guild_id: int | None) -> frozenset[int] | None:
    if guild_id is None:
        return frozenset()
    roles = getattr(message.author, "roles", None)  # only a member has roles
    return None if roles is None else frozenset(role.id for role in roles)


def _replied(message: discord.Message) -> Replied | None:
    if message.type.name != "reply" or message.reference is None:
        return None
    resolved: Any = message.reference.resolved
    author = getattr(resolved, "author", None)  # a deleted message has none
    if author is None:
        return None
    return Replied(str(resolved.id), str(author.id), resolved.content)


def _enclosures(message: discord.Message) -> list[str]:
    """What stands for the content that the model can not see yet, in words."""
    shown = [_file(attachment) for attachment in message.attachments]
    shown += [f"[sticker: {sticker.name}]" for sticker in message.stickers]
    if message.poll is not None:
        shown.append(f"[poll: {message.poll.question}]")
    for snapshot in message.message_snapshots:
        files = [_file(attachment) for attachment in snapshot.attachments]
        shown.append("\n".join(["[forwarded message]", snapshot.content, *files]).strip())
    return shown


def _file(attachment: discord.Attachment) -> str:
    kind = (attachment.content_type or "").partition("/")[0]
    word = {"image": "photo", "video": "video", "audio": "audio"}.get(kind, "file")
    return f"[{word}: {attachment.filename}]"
