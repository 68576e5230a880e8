"""Owns what hangs on a message besides its text: files to be fetched, and the rest in words (pure).

What is neither (pinned messages, new members, video chats, boosts: all that Telegram itself says
in a chat) is nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.messages import clean_text
from gateway.platforms.contract import VOICE, Attachment, AttachmentKind

MAX_FILE_BYTES = 20_000_000
"""What Telegram gives to a bot."""
_NAME_CHARS = 200
_WORDS_CHARS = 300
_LISTED = 12
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """The files of a message that can be fetched: one, if any. Thumbnails are none.

    Raises:
        TypeError, LookupError, AttributeError: it is not as Telegram makes it.
    """
    if message.keys().isdisjoint(_FILES):
        return ()
    for key, read in _FILES.items():
        if message.get(key):
            found = read(message[key])
            return () if found is None else (found,)
    return ()


def in_words(message: Mapping[str, Any]) -> str | None:
    """What a message is that is neither text nor a file that can be fetched."""
    if message.keys().isdisjoint(_IN_WORDS):
        return None
    sticker = message.get("sticker")
    if sticker and _is_moving(sticker):
        return f"[moving sticker{_after(' ', sticker.get('emoji'))}]"
    for key, say in _WORDS.items():
        if message.get(key):
            return say(message[key])
    return None


def shown(message: Mapping[str, Any]) -> str | None:
    """A message as somebody who answers it saw it: its text, else what it is. None: neither."""
    text = message.get("text") or message.get("caption")
    if text:
        return clean_text(str(text))
    for found in attachments(message):
        return f"[{found.label or found.kind}{_after(': ', found.file_name)}]"
    return in_words(message)


# --- files --------------------------------------------------------------------------------------


def _file(kind: AttachmentKind, label: str = "") -> Callable[[Mapping[str, Any]], Attachment]:
    def read(value: Mapping[str, Any]) -> Attachment:
        media_type = _word(value.get("mime_type"), 100)
        return Attachment(
            kind=_kind(media_type, kind),
            ref=_ref(value),
            file_name=_word(value.get("file_name") or value.get("title"), _NAME_CHARS),
            media_type=media_type,
            size_bytes=_size(value),
            label=label,
        )

    return read


def _photo(sizes: Any) -> Attachment:
    """The largest picture that Telegram would give us; they come in several sizes."""
    within = [size for size in sizes if (_size(size) or 0) <= MAX_FILE_BYTES]
    best = max(within, key=_area) if within else min(sizes, key=_area)
    return Attachment("image", _ref(best), "", "image/jpeg", _size(best), "photo")


def _live_photo(value: Mapping[str, Any]) -> Attachment:
    still = value.get("photo")
    return _photo(still) if still else _file("video", "live photo")(value)


def _sticker(value: Mapping[str, Any]) -> Attachment | None:
    if _is_moving(value):
        return None
    label = f"sticker{_after(' ', value.get('emoji'))}"
    return Attachment("image", _ref(value), "", "image/webp", _size(value), label)


def _is_moving(sticker: Mapping[str, Any]) -> bool:
    return bool(sticker.get("is_animated") or sticker.get("is_video"))


_FILES: dict[str, Callable[[Any], Attachment | None]] = {
    "animation": _file("video", "animation"),  # before document: an animation carries both
    "live_photo": _live_photo,  # before photo: it may carry both
    "photo": _photo,
    "video": _file("video"),
    "video_note": _file("video", "video message"),
    "voice": _file("audio", VOICE),
    "audio": _file("audio"),
    "document": _file("file"),
    "sticker": _sticker,
}


def _kind(media_type: str, kind: AttachmentKind) -> AttachmentKind:
    """Pictures, sounds and films may be sent as plain files as well."""
    if media_type.lower() in _IMAGES:
        return "image"
    if kind == "file" and media_type.lower().startswith("audio/"):
        return "audio"
    if kind == "file" and media_type.lower().startswith("video/"):
        return "video"
    return kind


def _ref(value: Mapping[str, Any]) -> str:
    ref = value["file_id"]
    if not isinstance(ref, str) or not ref:
        raise TypeError("a file without an id")
    return clean_text(ref)


def _size(value: Mapping[str, Any]) -> int | None:
    size = value.get("file_size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _area(size: Mapping[str, Any]) -> int:
    return int(size.get("width") or 0) * int(size.get("height") or 0)


# --- words --------------------------------------------------------------------------------------


def _location(value: Mapping[str, Any]) -> str:
    live = "live " if value.get("live_period") else ""
    return f"[{live}location: {_coordinates(value)}]"


def _venue(value: Mapping[str, Any]) -> str:
    named = _listed((value.get("title"), value.get("address")), ", ")
    return f"[place: {named} ({_coordinates(value['location'])})]"


def _coordinates(value: Mapping[str, Any]) -> str:
    return f"{float(value['latitude']):.6f}, {float(value['longitude']):.6f}"


def _contact(value: Mapping[str, Any]) -> str:
    name = _listed((value.get("first_name"), value.get("last_name")), " ")
    return f"[contact: {_listed((name, value.get('phone_number')), ', ')}]"


def _poll(value: Mapping[str, Any]) -> str:
    options = _listed([option.get("text") for option in value.get("options") or ()], " / ")
    return f"[poll: {_word(value.get('question'))}{_after(' - options: ', options)}]"


def _dice(value: Mapping[str, Any]) -> str:
    return f"[dice{_after(' ', value.get('emoji'))}: {int(value['value'])}]"


def _checklist(value: Mapping[str, Any]) -> str:
    tasks = [
        f"{'[x]' if task.get('completion_date') else '[ ]'} {_word(task.get('text'))}"
        for task in value.get("tasks") or ()
    ]
    return f"[checklist: {_word(value.get('title'))}{_after(' - ', _listed(tasks, ', '))}]"


def _titled(what: str) -> Callable[[Any], str]:
    def say(value: Any) -> str:
        title = value.get("title") if isinstance(value, Mapping) else None
        return f"[{what}{_after(': ', title)}]"

    return say


_WORDS: dict[str, Callable[[Any], str]] = {
    "contact": _contact,
    "venue": _venue,  # before location: a venue carries both
    "location": _location,
    "poll": _poll,
    "dice": _dice,
    "checklist": _checklist,
    "story": _titled("story"),
    "paid_media": _titled("paid media"),
    "game": _titled("game"),
    "invoice": _titled("invoice"),
}

_IN_WORDS = frozenset({"sticker", *_WORDS})


def _word(value: object, limit_chars: int = _WORDS_CHARS) -> str:
    """Text that somebody chose, on one line."""
    if value is None:
        return ""
    text = " ".join(clean_text(str(value)).split())
    return text if len(text) <= limit_chars else f"{text[:limit_chars]}…"


def _listed(values: Any, between: str) -> str:
    words = [word for word in map(_word, values) if word]
    more = "…" if len(words) > _LISTED else ""
    return between.join(words[:_LISTED]) + more


def _after(between: str, value: object) -> str:
    word = _word(value, 2_000)
    return f"{between}{word}" if word else ""
