"""Owns what is read off one of Discord's message objects (JSON): `Facts`, or why not (pure).

Read here instead of by the SDK: what is strange in one message then costs that message, and not the
connection. What a message needs to be is checked; what only decorates it is left out if it is odd.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.messages import clean_text
from gateway.platforms.contract import VOICE, Attachment, AttachmentKind
from gateway.platforms.discord.convert import Facts, Replied
from gateway.platforms.discord.files import FileRef

RAW_CHARS = 20_000
"""What is kept of an object that could not be read."""
ORDINARY_TYPES = (0, 19)
"""A message and a reply; all others are written by Discord or made by a command."""
GROUP_DIRECT = 3
THREADS = (10, 11, 12)
_FORWARD = 1
_VOICE = 1 << 13
_EPOCH_MS = 1_420_070_400_000
_KINDS: Mapping[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}


class UnreadableError(ValueError):
    """A field without which it is no message is missing or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that could not be read, and what is known of it (0: not even that)."""

    id: int
    channel_id: int
    raw: str
    reason: str


def read_or_not(payload: object, *, is_edit: bool = False) -> Facts | Unreadable:
    """Never raises."""
    try:
        return read_message(payload, is_edit=is_edit)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as exc:
        fields = payload if isinstance(payload, dict) else {}
        return Unreadable(
            id_of(fields.get("id")) or 0,
            id_of(fields.get("channel_id")) or 0,
            _raw(payload),
            f"{type(exc).__name__}: {exc}",
        )


def read_message(payload: object, *, is_edit: bool = False) -> Facts:
    """The facts of a message from the gateway or the history.

    Raises:
        UnreadableError: it can not be read as a message.
    """
    message = _required_dict(payload, "message")
    author = _required_dict(message.get("author"), "author")
    member = _dict(message.get("member"))
    id_, channel_id = _required_id(message, "id"), _required_id(message, "channel_id")
    author_id = _required_id(author, "id")
    content = message.get("content")
    if not isinstance(content, str):
        raise UnreadableError("content is no text")
    kind = message.get("type", 0)
    if not isinstance(kind, int):
        raise UnreadableError("type is no number")
    guild_id = id_of(message.get("guild_id"))
    forwarded = _forwarded(message)
    if forwarded is not None and not content:
        content = _text(forwarded.get("content"))
    bearer = message if forwarded is None else forwarded
    flags = message.get("flags")
    return Facts(
        id=id_,
        channel_id=channel_id,
        author_id=author_id,
        author_name=name_of(author, member),
        text=content,
        sent_at=_time(message.get("timestamp")) or sent_at(id_),
        edited_at=_time(message.get("edited_timestamp")),
        is_edit=is_edit,
        guild_id=guild_id,
        # An event names its guild, or it is a direct message; the history names none.
        place_known=guild_id is None,
        is_person=not author.get("bot") and not author.get("system") and not _is_hook(message),
        is_ordinary=kind in ORDINARY_TYPES and message.get("channel_type") != GROUP_DIRECT,
        role_ids=ids_in(member["roles"]) if isinstance(member.get("roles"), list) else None,
        mentions={
            user_id: name_of(user, _dict(user.get("member")))
            for user in _dicts(message.get("mentions"))
            if (user_id := id_of(user.get("id"))) is not None
        },
        replied=_replied(message),
        is_forward=forwarded is not None,
        enclosures=tuple(_enclosures(message, bearer)),
        attachments=tuple(
            _attachments(bearer, channel_id, id_, isinstance(flags, int) and bool(flags & _VOICE))
        ),
        has_unseen_content=bool(bearer.get("embeds") or bearer.get("components")),
    )


def _is_hook(message: dict[str, Any]) -> bool:
    return message.get("webhook_id") is not None


def name_of(user: dict[str, Any], member: dict[str, Any]) -> str:
    """What people are shown for a user, here or anywhere."""
    for name in (member.get("nick"), user.get("global_name"), user.get("username")):
        if isinstance(name, str) and name:
            return name
    return ""


def _replied(message: dict[str, Any]) -> Replied | None:
    replied = _dict(message.get("referenced_message"))  # null: it was deleted
    author = _dict(replied.get("author"))
    id_, author_id = id_of(replied.get("id")), id_of(author.get("id"))
    if message.get("type") != 19 or id_ is None or author_id is None:
        return None
    passed_on = _forwarded(replied) or {}
    text = _text(replied.get("content")) or _text(passed_on.get("content"))
    return Replied(str(id_), str(author_id), text)


def _forwarded(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message that this one passes on. Discord does not say whose it was."""
    if _dict(message.get("message_reference")).get("type") != _FORWARD:
        return None
    for snapshot in _dicts(message.get("message_snapshots")):
        return _dict(snapshot.get("message"))
    return None


def _enclosures(message: dict[str, Any], bearer: dict[str, Any]) -> list[str]:
    """What is neither text nor file, in words."""
    stickers = _dicts(bearer.get("sticker_items"))
    shown = [f"[sticker: {_one_line(sticker.get('name'))}]" for sticker in stickers]
    poll = _dict(message.get("poll"))
    if poll:
        question = _one_line(_dict(poll.get("question")).get("text"))
        answers = [
            _one_line(_dict(answer.get("poll_media")).get("text"))
            for answer in _dicts(poll.get("answers"))
        ]
        shown.append(f"[poll: {' / '.join([question, *answers])}]")
    return shown


def _attachments(
    bearer: dict[str, Any], channel_id: int, message_id: int, is_voice: bool
) -> list[Attachment]:
    found = []
    for attachment in _dicts(bearer.get("attachments")):
        id_ = id_of(attachment.get("id"))
        if id_ is None:
            continue
        media_type = _text(attachment.get("content_type"))
        size = attachment.get("size")
        ref = FileRef(channel_id, message_id, id_, _text(attachment.get("url")))
        found.append(
            Attachment(
                kind=_KINDS.get(media_type.partition("/")[0].casefold(), "file"),
                ref=str(ref),
                file_name=_text(attachment.get("filename")),
                media_type=media_type,
                size_bytes=size if isinstance(size, int) and 0 <= size < 1 << 62 else None,
                label=VOICE if is_voice else "",
            )
        )
    return found


# --- single values


def id_of(value: object) -> int | None:
    """An id as Discord writes them; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 64:
        return value
    return None


def _required_id(fields: dict[str, Any], name: str) -> int:
    found = id_of(fields.get(name))
    if found is None:
        raise UnreadableError(f"{name} is no id")
    return found


def sent_at(id_: int) -> float:
    """When something with this id was made, in Unix seconds."""
    return (id_ >> 22) / 1000 + _EPOCH_MS / 1000


def id_at(unix_seconds: float) -> int:
    """The first id that something made then may have."""
    return max(0, int(unix_seconds * 1000) - _EPOCH_MS) << 22


def ids_in(values: list[Any]) -> frozenset[int]:
    """Those of them that are ids."""
    return frozenset(found for value in values if (found := id_of(value)) is not None)


def _required_dict(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableError(f"{name} is no object")
    return value


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _one_line(value: object) -> str:
    return " ".join(_text(value).split())


def _time(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _raw(payload: object) -> str:
    try:
        return json.dumps(payload, default=str)[:RAW_CHARS]
    except (ValueError, TypeError, RecursionError):
        return repr(type(payload))
