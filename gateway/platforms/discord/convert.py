"""Owns the way in from Discord: the facts of one message → `InboundMessage`, or nothing (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.messages import clean_text
from gateway.platforms.contract import InboundMessage

PLATFORM = "discord"
_MENTION = re.compile(r"<(?P<kind>@!?|@&|#)(?P<id>\d{1,20})>")
_EMOJI = re.compile(r"<a?(?P<name>:\w+:)\d{1,20}>")


@dataclass(frozen=True, slots=True)
class Replied:
    """The message that another one answers, as far as it is known."""

    id: str
    author_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a Discord message is, without the SDK."""

    id: int
    channel_id: int
    author_id: int
    author_name: str
    text: str
    sent_at: float
    guild_id: int | None = None
    is_thread: bool = False
    parent_id: int | None = None
    place_known: bool = True
    """False: whether this channel is a thread, and of what, has to be asked first."""
    is_person: bool = True
    """Not a bot, not a webhook."""
    is_ordinary: bool = True
    """Said by its author, not written by Discord about something that happened."""
    role_ids: frozenset[int] | None = frozenset()
    """None: has to be asked first (messages from the history do not say it)."""
    mentions: Mapping[int, str] = field(default_factory=dict)
    """User id → shown name; a reply that pings counts as a mention."""
    role_names: Mapping[int, str] = field(default_factory=dict)
    channel_names: Mapping[int, str] = field(default_factory=dict)
    replied: Replied | None = None
    enclosures: tuple[str, ...] = ()
    """What hangs on it beside the text: files, stickers, polls, forwarded texts."""
    has_unseen_content: bool = False
    """It carries something that is neither text nor in ``enclosures`` (embeds, components)."""


def is_blank_for_lack_of_intent(facts: Facts) -> bool:
    """Empty, although nobody can send an empty message: the content was withheld."""
    return (
        facts.is_person
        and facts.is_ordinary
        and facts.guild_id is not None
        and not facts.text
        and not facts.enclosures
        and not facts.has_unseen_content
    )


def convert(
    facts: Facts, bot_id: int, last_sent: Mapping[str, str] | None = None
) -> InboundMessage | None:
    """What a person said; None for bots, webhooks, system messages and empty ones.

    ``last_sent``: what the bot said last in each channel (channel id → message id).
    """
    if not facts.is_person or not facts.is_ordinary or facts.author_id == bot_id:
        return None
    text = "\n".join(part for part in (_text(facts, bot_id), *facts.enclosures) if part)
    if not text.strip():
        return None
    channel_id = str(facts.channel_id)
    direct = facts.guild_id is None
    replied_to_bot = facts.replied is not None and facts.replied.author_id == str(bot_id)
    return InboundMessage(
        platform=PLATFORM,
        bot_id=str(bot_id),
        chat_id=channel_id,
        chat_kind="direct" if direct else "group",
        message_id=str(facts.id),
        sender_id=str(facts.author_id),
        sender_name=clean_text(facts.author_name),
        text=clean_text(text),
        sent_at=facts.sent_at,
        thread_id=channel_id if facts.is_thread else None,
        parent_chat_id=None if facts.parent_id is None else str(facts.parent_id),
        sender_role_ids=frozenset(map(str, facts.role_ids or ())),
        addressed=direct or bot_id in facts.mentions or replied_to_bot,
        quoted_text=_quoted(facts.replied, bot_id, (last_sent or {}).get(channel_id)),
    )


def _text(facts: Facts, bot_id: int) -> str:
    """The text as people read it: names for ids, and without the mention that only addresses."""
    address = re.compile(rf"\s*<@!?{bot_id}>[\s,:]*")
    text, at = facts.text, 0
    while (match := address.match(text, at)) is not None:
        at = match.end()
    said = text[at:].strip() or text.strip()

    def named(match: re.Match[str]) -> str:
        number = int(match["id"])
        match match["kind"]:
            case "#":
                return f"#{facts.channel_names.get(number, 'unknown-channel')}"
            case "@&":
                return f"@{facts.role_names.get(number, 'unknown-role')}"
            case _:
                return f"@{facts.mentions.get(number, 'unknown-user')}"

    return _EMOJI.sub(r"\g<name>", _MENTION.sub(named, said))


def _quoted(replied: Replied | None, bot_id: int, newest_own: str | None) -> str | None:
    if replied is None or not replied.text:
        return None
    if replied.author_id == str(bot_id) and replied.id == newest_own:
        return None
    return clean_text(replied.text)
