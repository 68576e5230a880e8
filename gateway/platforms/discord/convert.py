"""Owns the way in from Discord: the facts of one message → `InboundMessage`, or nothing (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.messages import clean_text
from gateway.delivery.splitting import utf16_len
from gateway.platforms.contract import Attachment, InboundMessage

PLATFORM = "discord"
TEXT_LIMIT = 2_000
PAYING_TEXT_LIMIT = 4_000
"""Where the clients of those cut who pay for more."""
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
    edited_at: float | None = None
    is_edit: bool = False
    """Somebody changed a message; otherwise it is new."""
    guild_id: int | None = None
    is_thread: bool = False
    parent_id: int | None = None
    channel_name: str = ""
    """Of a server's channel or thread; "": nobody knows."""
    thread_owner_id: int | None = None
    place_known: bool = True
    """False: whether this channel is a thread, and of what, has to be asked first."""
    is_person: bool = True
    """Not a bot, not a webhook, not Discord."""
    is_ordinary: bool = True
    """Said by its author, not written by Discord about something that happened."""
    role_ids: frozenset[int] | None = frozenset()
    """None: has to be asked first (messages from the history do not say it)."""
    mentions: Mapping[int, str] = field(default_factory=dict)
    """User id → shown name; a reply that pings counts as a mention."""
    role_names: Mapping[int, str] = field(default_factory=dict)
    own_role_id: int | None = None
    """The role that Discord made for the bot: whoever picks it from the list means the bot."""
    channel_names: Mapping[int, str] = field(default_factory=dict)
    replied: Replied | None = None
    is_forward: bool = False
    """Somebody else's words; Discord does not say whose."""
    enclosures: tuple[str, ...] = ()
    """What is neither text nor file, in words: stickers, polls."""
    attachments: tuple[Attachment, ...] = ()
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
        and not facts.attachments
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
    raw = clean_text(facts.text)
    shown = _text(facts, raw, bot_id)
    text = "\n".join(part for part in (shown, *facts.enclosures) if part)
    if not text.strip() and not facts.attachments:
        return None
    channel_id = str(facts.channel_id)
    return InboundMessage(
        platform=PLATFORM,
        bot_id=str(bot_id),
        chat_id=channel_id,
        chat_kind="direct" if facts.guild_id is None else "group",
        message_id=str(facts.id),
        sender_id=str(facts.author_id),
        sender_name=clean_text(facts.author_name),
        chat_name=clean_text(facts.channel_name).strip() or None,
        text=clean_text(text),
        sent_at=facts.sent_at,
        thread_id=channel_id if facts.is_thread else None,
        parent_chat_id=None if facts.parent_id is None else str(facts.parent_id),
        sender_role_ids=frozenset(map(str, facts.role_ids or ())),
        addressed=_is_addressed(facts, bot_id),
        quoted_text=_quoted(facts, bot_id, (last_sent or {}).get(channel_id)),
        forwarded_from="" if facts.is_forward else None,
        attachments=facts.attachments,
        # Where this text would have been cut, counted as it is shown.
        text_limit=_cut_at(raw) + utf16_len(text) - utf16_len(raw),
    )


def passed_over(facts: Facts, bot_id: int) -> InboundMessage:
    """What is of no interest, as the gate takes it: only the cursor moves."""
    return InboundMessage(
        platform=PLATFORM,
        bot_id=str(bot_id),
        chat_id=str(facts.channel_id),
        chat_kind="direct" if facts.guild_id is None else "group",
        message_id=str(facts.id),
        sender_id=str(facts.author_id),
        sender_name="",
        text="",
        sent_at=facts.sent_at,
        parent_chat_id=None if facts.parent_id is None else str(facts.parent_id),
        sender_is_bot=True,
        addressed=False,
    )


def _cut_at(raw: str) -> int:
    return TEXT_LIMIT if utf16_len(raw) <= TEXT_LIMIT else PAYING_TEXT_LIMIT


def _is_addressed(facts: Facts, bot_id: int) -> bool:
    """A direct message, the bot's name (also as its role), an answer to it, or its own thread."""
    return (
        facts.guild_id is None
        or bot_id in facts.mentions
        or (facts.own_role_id is not None and f"<@&{facts.own_role_id}>" in facts.text)
        or (facts.replied is not None and facts.replied.author_id == str(bot_id))
        or facts.thread_owner_id == bot_id
    )


def _text(facts: Facts, raw: str, bot_id: int) -> str:
    """The text as people read it: names for ids, and without the mention that only addresses."""
    names = f"@!?{bot_id}" if facts.own_role_id is None else f"@!?{bot_id}|@&{facts.own_role_id}"
    address = re.compile(rf"\s*<(?:{names})>[\s,:]*")
    at = 0
    while (match := address.match(raw, at)) is not None:
        at = match.end()
    return _named(facts, raw[at:].strip() or raw.strip())


def _named(facts: Facts, text: str) -> str:
    def named(match: re.Match[str]) -> str:
        number = int(match["id"])
        match match["kind"]:
            case "#":
                return f"#{facts.channel_names.get(number, 'unknown-channel')}"
            case "@&":
                return f"@{facts.role_names.get(number, 'unknown-role')}"
            case _:
                return f"@{facts.mentions.get(number, 'unknown-user')}"

    return _EMOJI.sub(r"\g<name>", _MENTION.sub(named, text))


def places_named_in(text: str) -> tuple[list[int], list[int]]:
    """The roles and the channels that a text names by id."""
    found = [(match["kind"], int(match["id"])) for match in _MENTION.finditer(text)]
    return [id_ for kind, id_ in found if kind == "@&"], [id_ for kind, id_ in found if kind == "#"]


def _quoted(facts: Facts, bot_id: int, newest_own: str | None) -> str | None:
    replied = facts.replied
    if replied is None or not replied.text:
        return None
    if replied.author_id == str(bot_id) and replied.id == newest_own:
        return None
    return clean_text(_named(facts, replied.text))
