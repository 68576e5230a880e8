"""Owns the way in from Telegram: one raw update → what it says to the gateway (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.messages import clean_text
from gateway.platforms.contract import InboundMessage
from gateway.platforms.telegram.marks import Mark, command_of, read_text, without_address
from gateway.platforms.telegram.media import attachments, in_words, shown
from gateway.platforms.telegram.native.buttons import Pressed, pressed
from gateway.platforms.telegram.people import forwarded_from, speaker, title_of
from gateway.platforms.telegram.values import LARGEST_NUMBER, date, identifier, thread

PLATFORM = "telegram"
TEXT_LIMIT = 4096
"""UTF-16 units; the apps cut longer texts into several messages."""
ALLOWED_UPDATES = ("message", "edited_message", "callback_query")
"""What `convert` reads; Telegram is not asked for anything else."""


@dataclass(frozen=True, slots=True)
class Me:
    """The bot itself, and what it said last in each chat (chat id → message id)."""

    id: int
    username: str
    last_sent: Mapping[str, str] = field(default_factory=dict)
    commands: Collection[str] = ()
    """The names of those that the gateway knows."""


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


News = Said | Edited | Moved | Pressed
"""What an update can say to the gateway."""


def update_id(update: object) -> int | None:
    """The number of an update, or None if it has none that could confirm it.

    A negative one would make Telegram forget what nobody has read yet.
    """
    value = update.get("update_id") if isinstance(update, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST_NUMBER else None


def chat_of(update: object) -> str | None:
    """The chat of an update, whatever else is wrong with it: what keeps its order."""
    if not isinstance(update, Mapping):
        return None
    for kind in ALLOWED_UPDATES:
        message = update.get(kind)
        if kind == "callback_query" and isinstance(message, Mapping):
            message = message.get("message")
        chat = message.get("chat") if isinstance(message, Mapping) else None
        number = chat.get("id") if isinstance(chat, Mapping) else None
        if isinstance(number, int) and abs(number) <= LARGEST_NUMBER:
            return str(number)
    return None


def convert(update: Mapping[str, Any], me: Me) -> News | None:
    """What an update says; None: nothing to the gateway.

    Channel posts, business and guest messages, reactions, service messages, what bots say and
    commands that name another bot are nothing.

    Raises:
        Exception: this is no update as Telegram makes it.
    """
    said, edited = update.get("message"), update.get("edited_message")
    if said is not None:
        moved = _moved(said)
        if moved is not None:
            return moved
        message = _message(said, me, update)
        return None if message is None else Said(message)
    if edited is not None:
        message = _message(edited, me, update)
        return None if message is None else Edited(message)
    query = update.get("callback_query")
    if query is not None:
        number = update_id(update)
        shown = None if number is None else str(number)
        return pressed(query, me.id, shown, me.commands)
    return None


def _moved(message: Mapping[str, Any]) -> Moved | None:
    """Both chats get such a message, each naming the other."""
    here, there = message.get("migrate_to_chat_id"), message.get("migrate_from_chat_id")
    if here is None and there is None:
        return None
    chat_id = identifier(message["chat"]["id"])
    pair = (chat_id, identifier(here)) if here is not None else (identifier(there), chat_id)
    if pair[0] == pair[1] or not all(chat.startswith("-") for chat in pair):
        raise ValueError("a chat that can not have moved there")
    return Moved(*pair)


def _message(
    message: Mapping[str, Any], me: Me, update: Mapping[str, Any]
) -> InboundMessage | None:
    chat = message["chat"]
    if not _is_read(message, chat):
        return None
    sender = speaker(message, me.id)
    if sender is None:
        return None
    text, marks = read_text(message)
    files, words = attachments(message), in_words(message)
    if not text.strip() and not files and words is None:
        return None
    forwarded = forwarded_from(message)
    direct = chat["type"] == "private"
    replied = _replied(message)
    addressed = direct
    if forwarded is None:  # words that are only passed on address and order nobody
        command = command_of(marks)
        if command is not None and "@" in command.text and not command.names(me.id, me.username):
            return None
        ours = command is not None and command.text[1:].lower() in me.commands
        addressed = direct or ours or _is_addressed(marks, replied, me)
        text = without_address(text, marks, me.id, me.username)
    chat_id = identifier(chat["id"])
    return InboundMessage(
        platform=PLATFORM,
        bot_id=str(me.id),
        chat_id=chat_id,
        chat_kind="direct" if direct else "group",
        message_id=identifier(message["message_id"]),
        sender_id=sender[0],
        sender_name=clean_text(sender[1]),
        chat_name=None if direct else title_of(chat),
        text="\n".join(filter(None, (clean_text(text).strip(), words))),
        sent_at=date(message["date"]),
        thread_id=thread(message, direct=direct),
        update_id=None if update_id(update) is None else str(update_id(update)),
        addressed=addressed,
        quoted_text=_quoted(message, replied, me.last_sent.get(chat_id), me),
        forwarded_from=forwarded,
        attachments=files,
        album_id=_album(message),
        text_limit=TEXT_LIMIT,
    )


def _is_read(message: Mapping[str, Any], chat: Mapping[str, Any]) -> bool:
    """Is this a chat, and a way of talking in it, that the bot takes part in?"""
    if chat["type"] not in ("private", "group", "supergroup") or chat.get("is_direct_messages"):
        return False
    return not any(
        message.get(key)
        for key in ("is_automatic_forward", "business_connection_id", "guest_query_id")
    )


# --- where and to whom ---------------------------------------------------------------------------


def _is_addressed(marks: list[Mark], replied: Mapping[str, Any] | None, me: Me) -> bool:
    if replied is not None and (replied.get("from") or {}).get("id") == me.id:
        return True
    return any(mark.names(me.id, me.username) for mark in marks)


def _album(message: Mapping[str, Any]) -> str | None:
    album = message.get("media_group_id")
    return None if album is None else clean_text(str(album))


# --- what it answers ----------------------------------------------------------------------------


def _replied(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message that this one answers.

    In a topic every message that answers nothing "answers" the service message that made the
    topic; that is not an answer, not even if the bot made the topic.
    """
    replied: Mapping[str, Any] | None = message.get("reply_to_message")
    if replied is None or "forum_topic_created" in replied:
        return None
    if message.get("is_topic_message") and _is_root(replied, message):
        return None
    return replied


def _is_root(replied: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    return bool(replied.get("message_id") == message.get("message_thread_id"))


def _quoted(
    message: Mapping[str, Any], replied: Mapping[str, Any] | None, newest_own: str | None, me: Me
) -> str | None:
    """What is answered, in words, unless everybody knows it anyway: the bot's own newest message.

    The part that the sender has chosen says the most; a message of another chat may stand in
    ``external_reply``, with its media but without its text.
    """
    chosen = (message.get("quote") or {}).get("text")
    if chosen:
        return clean_text(str(chosen))
    if replied is not None:
        own = (replied.get("from") or {}).get("id") == me.id
        if own and str(replied.get("message_id")) == newest_own:
            return None
        return shown(replied)
    elsewhere = message.get("external_reply")
    if elsewhere:
        return shown(elsewhere)
    return "[story]" if message.get("reply_to_story") else None
