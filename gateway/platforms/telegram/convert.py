"""Owns the way in from Telegram: one raw update → `InboundMessage`, or nothing (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.messages import clean_text
from gateway.platforms.contract import InboundMessage

PLATFORM = "telegram"
_ANONYMOUS_CHANNEL_FORWARDER = 777000
"""The account in whose name Telegram copies channel posts into a linked group."""

_PLACEHOLDERS = (
    ("animation", "[animation]"),  # before document: an animation carries both
    ("photo", "[photo]"),
    ("video", "[video]"),
    ("video_note", "[video message]"),
    ("voice", "[voice message]"),
    ("audio", "[audio]"),
    ("document", "[file]"),
    ("sticker", "[sticker]"),
    ("contact", "[contact]"),
    ("venue", "[place]"),  # before location: a venue carries both
    ("location", "[location]"),
    ("poll", "[poll]"),
    ("dice", "[dice]"),
    ("story", "[story]"),
    ("paid_media", "[paid media]"),
    ("game", "[game]"),
    ("checklist", "[checklist]"),
)


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself, and what it said last in each chat (chat id → message id)."""

    id: int
    username: str
    last_sent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """Somebody said something new."""

    message: InboundMessage


@dataclass(frozen=True, slots=True)
class Edited:
    """Somebody changed what they had said; this is all of it as it is now."""

    message: InboundMessage


@dataclass(frozen=True, slots=True)
class Moved:
    """A group has become a supergroup, which has another id."""

    old_chat_id: str
    new_chat_id: str


News = Said | Edited | Moved
"""What an update can say to the gateway."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """An entity with the text under it; ``start`` and ``end`` count UTF-16 units."""

    type: str
    start: int
    end: int
    text: str
    user_id: int | None


def update_id(update: object) -> int | None:
    """The number of an update, or None if it has none."""
    value = update.get("update_id") if isinstance(update, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def convert(update: Mapping[str, Any], me: Me) -> News | None:
    """What an update says; None: nothing to the gateway."""
    message = _message(update, me)
    return None if message is None else Said(message)


def _message(update: Mapping[str, Any], me: Me) -> InboundMessage | None:
    """What a person said to the bot; None for all that is no new message of a person.

    Edits, channel posts, service messages, other bots' messages and commands that name another bot
    are nothing.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: this is no update as Telegram makes it.
    """
    message = update.get("message")
    if message is None:
        return None
    chat = message["chat"]
    if chat["type"] == "channel" or message.get("is_automatic_forward"):
        return None
    sender = _sender(message)
    text, marks = _text(message)
    placeholder = _placeholder(message)
    if sender is None or (not text.strip() and placeholder is None):
        return None
    direct = chat["type"] == "private"
    command = marks[0] if marks and marks[0].type == "bot_command" and marks[0].start == 0 else None
    if command is not None and "@" in command.text and not _names(command.text, me):
        return None
    replied = _replied(message)
    said = _without_address(text, marks, me, command)
    if placeholder is not None:
        said = f"{said}\n{placeholder}" if said else placeholder
    chat_id = str(int(chat["id"]))
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    return InboundMessage(
        platform=PLATFORM,
        bot_id=str(me.id),
        chat_id=chat_id,
        chat_kind="direct" if direct else "group",
        message_id=str(int(message["message_id"])),
        sender_id=sender[0],
        sender_name=clean_text(sender[1]),
        text=clean_text(said),
        sent_at=float(message["date"]),
        thread_id=None if thread is None else str(int(thread)),
        update_id=str(int(update["update_id"])),
        addressed=direct or command is not None or _is_addressed(marks, replied, me),
        quoted_text=_quoted(message, replied, me.last_sent.get(chat_id), me),
        album_id=_album(message),
    )


# --- who ----------------------------------------------------------------------------------------


def _sender(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """Id and name of whoever speaks; None if that is a bot or nobody.

    An anonymous admin speaks as the group, and somebody may speak as a channel: Telegram then
    shows a bot of its own as the sender, and the chat in ``sender_chat`` is the one that counts.
    """
    voice = message.get("sender_chat")
    if voice is not None:
        return str(int(voice["id"])), str(voice.get("title") or voice.get("username") or "")
    person = message.get("from")
    if person is None or person.get("is_bot") or person["id"] == _ANONYMOUS_CHANNEL_FORWARDER:
        return None
    names = (person.get("first_name"), person.get("last_name"))
    shown = " ".join(str(name) for name in names if name)
    return str(int(person["id"])), shown or str(person.get("username") or "")


def _is_addressed(marks: list[_Mark], replied: Mapping[str, Any] | None, me: Me) -> bool:
    if replied is not None and (replied.get("from") or {}).get("id") == me.id:
        return True
    return any(_is_me(mark, me) for mark in marks)


def _is_me(mark: _Mark, me: Me) -> bool:
    if mark.type == "mention":
        return mark.text.lower() == f"@{me.username.lower()}"
    if mark.type == "bot_command":
        return "@" in mark.text and _names(mark.text, me)
    return mark.type == "text_mention" and mark.user_id == me.id


def _names(command: str, me: Me) -> bool:
    return command.partition("@")[2].lower() == me.username.lower()


# --- what ---------------------------------------------------------------------------------------


def _text(message: Mapping[str, Any]) -> tuple[str, list[_Mark]]:
    """Text or caption with its marks, in order; marks that point nowhere are left out."""
    text, entities = message.get("text"), message.get("entities")
    if text is None:
        text, entities = message.get("caption"), message.get("caption_entities")
    if text is None:
        return "", []
    if not isinstance(text, str):
        raise TypeError("the text is no string")
    units = text.encode("utf-16-le", "surrogatepass")
    marks = []
    for entity in entities or ():
        start, length = int(entity["offset"]), int(entity["length"])
        if start < 0 or length <= 0 or (start + length) * 2 > len(units):
            continue
        under = units[start * 2 : (start + length) * 2].decode("utf-16-le", "surrogatepass")
        user = entity.get("user") or {}
        marks.append(_Mark(str(entity["type"]), start, start + length, under, user.get("id")))
    return text, sorted(marks, key=lambda mark: mark.start)


def _without_address(text: str, marks: list[_Mark], me: Me, command: _Mark | None) -> str:
    """The text without what only says whom it is for: ``@bot`` in front, ``@bot`` of a command."""
    if command is not None:
        return text.replace(command.text, command.text.partition("@")[0], 1).strip()
    units = text.encode("utf-16-le", "surrogatepass")
    at = 0
    for mark in marks:
        between = units[at * 2 : mark.start * 2].decode("utf-16-le", "surrogatepass")
        if between.strip(" \t\r\n,:") or mark.type == "bot_command" or not _is_me(mark, me):
            break
        at = mark.end
    rest = units[at * 2 :].decode("utf-16-le", "surrogatepass")
    said = rest.lstrip(" \t\r\n,:").rstrip() if at else text.strip()
    # A bare mention still says something ("look here"): it must not become an empty message.
    return said or text.strip()


def _placeholder(message: Mapping[str, Any]) -> str | None:
    """What stands for the media that the model can not see yet."""
    for key, shown in _PLACEHOLDERS:
        value = message.get(key)
        if not value:
            continue
        detail = ""
        if isinstance(value, Mapping):
            detail = str(
                value.get("file_name")
                or value.get("title")
                or value.get("question")
                or value.get("emoji")
                or ""
            )
        return f"{shown[:-1]}: {detail}]" if detail else shown
    return None


def _replied(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message that this one answers.

    In a topic every message that answers nothing "answers" the service message that made the
    topic; that is not an answer, not even if the bot made the topic.
    """
    replied: Mapping[str, Any] | None = message.get("reply_to_message")
    if replied is None or "forum_topic_created" in replied:
        return None
    return replied


def _quoted(
    message: Mapping[str, Any], replied: Mapping[str, Any] | None, newest_own: str | None, me: Me
) -> str | None:
    chosen = (message.get("quote") or {}).get("text")
    if chosen:
        return clean_text(str(chosen))
    if replied is None:
        return None
    own = (replied.get("from") or {}).get("id") == me.id
    if own and str(replied.get("message_id")) == newest_own:
        return None
    text = replied.get("text") or replied.get("caption") or _placeholder(replied)
    return clean_text(str(text)) if text else None


def _album(message: Mapping[str, Any]) -> str | None:
    album = message.get("media_group_id")
    return None if album is None else str(album)
