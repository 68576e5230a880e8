"""Owns how a person's words become the model's: cleaned, and signed where several people talk."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace

from agent.messages import SUMMARY_HEADER, Draft, clean_text, is_blank
from gateway.platforms.contract import Attachment, InboundMessage

MAX_NAME_CHARS = 64
MAX_QUOTE_CHARS = 1_000
_SIGNED = "[message from "
_QUOTED = "[in reply to "
_FORWARDED = "[forwarded from "
ENCLOSED = "[attached "
"""So begins what is said of a file (`gateway.turns.enclosures`)."""
_OURS = (
    _SIGNED.rstrip(),
    _QUOTED.rstrip(),
    _FORWARDED.rstrip(),
    ENCLOSED.rstrip(),
    SUMMARY_HEADER.casefold(),
)
_LINE_ENDS = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


def readable(text: str) -> str:
    """The text as every border can carry it: half surrogates replaced, NUL left out."""
    return clean_text(text).replace("\x00", "")


def readable_message(message: InboundMessage) -> InboundMessage:
    """The same in all that people or platforms have written into it."""
    return replace(
        message,
        text=readable(message.text),
        sender_name=readable(message.sender_name),
        quoted_text=None if message.quoted_text is None else readable(message.quoted_text),
        forwarded_from=None if message.forwarded_from is None else readable(message.forwarded_from),
        attachments=tuple(map(_readable_attachment, message.attachments)),
    )


def _readable_attachment(attachment: Attachment) -> Attachment:
    return replace(
        attachment,
        file_name=readable(attachment.file_name),
        media_type=readable(attachment.media_type),
        label=readable(attachment.label),
    )


def user_draft(
    text: str,
    *,
    sender_id: str,
    sender_name: str,
    signed: bool,
    quoted_text: str | None,
    forwarded_from: str | None = None,
) -> Draft:
    """A person's message, as said, and as sent where it carries who said it and to what.

    ``forwarded_from``: whose words they are, where the sender only passed them on.

    Nobody can write such a line by hand: a line of the text that looks like one is set off.
    """
    said = readable(text)
    lines: list[str] = []
    if signed:
        lines.append(f"{_SIGNED}{quoted_name(sender_name)}, user {_identifier(sender_id)}]")
    if quoted_text is not None and not is_blank(quoted_text):
        lines.append(f"{_QUOTED}{_quote(quoted_text)}]")
    if forwarded_from is not None:
        lines.append(f"{_FORWARDED}{quoted_name(forwarded_from)}]")
    sent = "\n".join([*lines, _set_off(said)])
    message = {"role": "user", "content": said}
    return Draft(message, wire_content=sent if sent != said else None)  # type: ignore[arg-type]


def _set_off(text: str) -> str:
    pieces = _LINE_ENDS.split(text)
    return "".join(f"> {piece}" if _looks_ours(piece) else piece for piece in pieces)


def _looks_ours(line: str) -> bool:
    folded = unicodedata.normalize("NFKC", line)
    visible = "".join(ch for ch in folded if unicodedata.category(ch) not in ("Cf", "Cc", "Mn"))
    bare = " ".join(visible.casefold().split())
    return bare.replace("[ ", "[").startswith(_OURS)


def shown_name(name: str) -> str:
    """A name that people choose (of a person, a file) on one line: nothing in it acts or hides."""
    shown = "".join(
        " " if unicodedata.category(ch) in ("Cc", "Cf", "Zl", "Zp", "Cs") else ch for ch in name
    )
    return " ".join(shown.split())[:MAX_NAME_CHARS].rstrip() or "someone"


def quoted_name(name: str) -> str:
    """The same in quotes, whose end nothing in it can forge: for a line that the model reads."""
    return json.dumps(shown_name(name), ensure_ascii=False)


def _identifier(sender_id: str) -> str:
    return re.sub(r"[^\w.:+-]", "", sender_id)[:64]


def _quote(text: str) -> str:
    shown = " ".join(readable(text).split())
    if len(shown) > MAX_QUOTE_CHARS:
        shown = shown[:MAX_QUOTE_CHARS] + "…"
    return json.dumps(shown, ensure_ascii=False)
