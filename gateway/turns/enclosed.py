"""Owns what the model reads of a message's files: a line for each, pictures behind theirs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import cast

from agent.attachments import StoredFile
from agent.messages import Content, Draft, Message, Part
from gateway import texts
from gateway.intake.wording import ENCLOSED, MAX_NAME_CHARS, quoted_name, readable
from gateway.platforms.contract import Attachment

_KINDS = {"image": "picture", "audio": "sound", "video": "video", "file": "file"}
_MAX_EXTENSION_CHARS = 9


@dataclass(frozen=True, slots=True)
class Enclosed:
    """What hangs on the messages of a turn, as the model shall see it."""

    parts: tuple[Part, ...] = ()
    notices: tuple[str, ...] = ()
    """For the person, where something could not be had."""

    def on(self, draft: Draft) -> Draft:
        """The message with its files; the same object if there are none."""
        if not self.parts:
            return draft
        message = cast(
            Message, {**draft.message, "content": _joined(draft.message["content"], self.parts)}
        )
        wire = draft.wire_content
        return replace(
            draft,
            message=message,
            wire_content=None if wire is None else _joined(wire, self.parts),
        )


NOTHING = Enclosed()


def line_of(attachment: Attachment, stored: StoredFile | None, remark: str = "") -> str:
    """What the model reads of a file. Nobody can write one: `gateway.intake.wording`."""
    name = safe_file_name(attachment.file_name)
    told = [f"{what_it_is(attachment)} {quoted_name(name)}" if name else what_it_is(attachment)]
    size = attachment.size_bytes if stored is None else stored.size_bytes
    if size is not None and size >= 0:
        told.append(shown_size(size))
    if stored is not None:
        told.append(stored.media_type)
    if remark:
        told.append(remark)
    end = f": attachment {stored.name}" if stored is not None else ""
    return f"{ENCLOSED}{', '.join(told)}{end}]"


def what_it_is(attachment: Attachment) -> str:
    """In a word or two: as its platform calls it, without what is no letter."""
    label = " ".join("".join(ch if ch.isalpha() else " " for ch in attachment.label).split())
    return label[:MAX_NAME_CHARS] or _KINDS.get(attachment.kind, "file")


def plain(text: str) -> str:
    """A platform's words on one line, without what could end ours."""
    shown = " ".join(readable(text).replace("[", "(").replace("]", ")").split())
    return shown[:200] or texts.FILE_NOT_NOW


def safe_file_name(name: str) -> str:
    """A sender's name for a file, on one line, without folders, short; "": it says nothing.

    Only ever shown: no file is kept under it.
    """
    visible = "".join(ch if ch.isprintable() else " " for ch in readable(name))
    base = " ".join(visible.replace("\\", "/").split("/")[-1].split()).strip(". ")
    extension = PurePosixPath(base).suffix
    if len(base) <= MAX_NAME_CHARS or len(extension) > _MAX_EXTENSION_CHARS:
        return base[:MAX_NAME_CHARS].rstrip()
    return f"{base[: MAX_NAME_CHARS - len(extension) - 1].rstrip()}…{extension}"


def shown_size(size_bytes: int) -> str:
    """A size in words: 0 bytes, 812 bytes, 12 kB, 3.4 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    if size_bytes < 1_000_000:
        return f"{round(size_bytes / 1000)} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def text_part(text: str) -> Part:
    """Text as a part of a message."""
    return {"type": "text", "text": text}


def _joined(content: Content, parts: Sequence[Part]) -> Content:
    """Content with parts behind it: texts side by side as one, plain text without a picture."""
    before = [text_part(content)] if isinstance(content, str) else list(content or ())
    joined: list[Part] = []
    for part in (*before, *parts):
        if part["type"] == "text" and not part["text"].strip():
            continue
        if joined and joined[-1]["type"] == part["type"] == "text":
            joined[-1] = text_part(f"{joined[-1]['text']}\n{part['text']}")
        else:
            joined.append(part)
    if all(part["type"] == "text" for part in joined):
        return "".join(part["text"] for part in joined)
    return joined
