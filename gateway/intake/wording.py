"""Owns how a person's words become the model's: cleaned, and signed where several people talk."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from agent.brought import CLOSING, OPENING
from agent.jobs.nouns import SCHEDULED
from agent.mail import InboxRecord
from agent.messages import SUMMARY_HEADER, Draft, clean_text, is_blank
from agent.tools import web
from gateway.platforms.contract import Attachment, InboundMessage

MAX_NAME_CHARS = 64
MAX_QUOTE_CHARS = 1_000
_NAME_LOOKED_AT_CHARS = 10_000
_LATE_SECONDS = 300.0
_SIGNED = "[message from "
_QUOTED = "[in reply to "
_FORWARDED = "[forwarded from "
_SCHEDULED = "[scheduled job "
"""So begins what nobody says at this moment: a job's prompt."""
ENCLOSED = "[attached "
"""So begins what is said of a file (`gateway.turns.enclosed`)."""
HEARD = "[heard in it, by a machine: "
"""So begins what a voice message says (`gateway.turns.hearing`)."""
_OPENINGS = (
    _SIGNED,
    _QUOTED,
    _FORWARDED,
    _SCHEDULED,
    ENCLOSED,
    HEARD,
    SUMMARY_HEADER.rstrip("]"),
    OPENING,
    CLOSING.rstrip("]"),
    web.OPENING,
    web.CLOSING.rstrip("]"),
)
"""How lines begin that nobody but us may write."""
_LINE_ENDS = re.compile(r"(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")


def readable(text: str) -> str:
    """The text as every border can carry it: half surrogates replaced, NUL left out."""
    return clean_text(text).replace("\x00", "")


def readable_message(message: InboundMessage) -> InboundMessage:
    """The same in all that people or platforms have written into it."""
    written = (message.text, message.sender_name, message.quoted_text, message.forwarded_from)
    if not message.attachments and all(map(_is_readable, written)):
        return message  # nearly always, and a copy costs more than a look
    return replace(
        message,
        text=readable(message.text),
        sender_name=readable(message.sender_name),
        quoted_text=None if message.quoted_text is None else readable(message.quoted_text),
        forwarded_from=None if message.forwarded_from is None else readable(message.forwarded_from),
        attachments=tuple(map(_readable_attachment, message.attachments)),
    )


def _is_readable(text: str | None) -> bool:
    return text is None or readable(text) == text


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
        lines.append(f"{_QUOTED}{quoted_words(quoted_text, MAX_QUOTE_CHARS)}]")
    if forwarded_from is not None:
        lines.append(f"{_FORWARDED}{quoted_name(forwarded_from)}]")
    sent = "\n".join([*lines, set_off(said)])
    message = {"role": "user", "content": said}
    return Draft(message, wire_content=sent if sent != said else None)  # type: ignore[arg-type]


def scheduled_draft(record: InboxRecord) -> Draft:
    """A job's prompt: the model is told that nobody is there who says it."""
    said = readable(record.text)
    job = record.payload[SCHEDULED]
    late = record.received_at - float(job["due_at"])
    lines = [
        f"{_SCHEDULED}{int(job['number'])} {quoted_name(str(job['name']))}, set up "
        f"{_by_whom(record)}; due {_identifier(job['due'])}"
        + (f", {late / 60:.0f} minutes ago" if late >= _LATE_SECONDS else "")
        + ". It runs by itself and nobody is writing at this moment; your answer is sent to the "
        "chat.]",
        set_off(said),
    ]
    return Draft({"role": "user", "content": said}, wire_content="\n".join(lines))


def _by_whom(record: InboxRecord) -> str:
    if record.payload[SCHEDULED].get("origin") == "config":
        return "in the configuration"
    name = str(record.payload.get("sender_name") or "")
    user = f"user {_identifier(str(record.payload.get('sender_id') or ''))}"
    return f"for {quoted_name(name)}, {user}" if name else f"for {user}"


def set_off(text: str) -> str:
    """Foreign words with every line marked that looks like one of ours."""
    pieces = _LINE_ENDS.split(text)
    return "".join(f"> {piece}" if _looks_ours(piece) else piece for piece in pieces)


def _looks_ours(line: str) -> bool:
    if (
        len(line) < _SHORTEST_OPENING or _BRACKET.search(line) is None
    ):  # nearly every line: what follows takes its time
        return False
    return _looks_of(line).startswith(_LOOKS_OF_OPENINGS)


def _looks_of(text: str) -> str:
    """What a text begins to look like: unseen letters, spaces, case, foreign forms left out."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    shown = (ch for ch in plain if ch not in _DECORATION and not _is_unseen(ch))
    return "".join(islice(shown, _LOOKED_AT_CHARS)).translate(_LOOK_ALIKES)


@lru_cache(10_000)
def _is_unseen(ch: str) -> bool:
    return unicodedata.category(ch) in _UNSEEN or is_blank(ch)


_LOOKED_AT_CHARS = 80
"""More than the longest opening has."""
_DECORATION = frozenset("*_~`#\\")
_UNSEEN = ("Cf", "Cc", "Mn", "Me", "Mc")
_BRACKETS = "\u2045\u2772\u27e6\u27ec\u298b\u298d\u298f\u2e22\u2e24\u3010\u3014\u3018\u301a"
"""Square brackets of other scripts."""
_BRACKET = re.compile(f"[\\[\uff3b\ufe39\ufe3b\ufe47\ufe5d\ufe17{_BRACKETS}]")
_LOOK_ALIKES = str.maketrans(
    # small letters of Cyrillic, Greek and others
    _BRACKETS
    + "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u0501\u051b\u051d\u04bb\u04cf"
    "\u043c\u043d\u0442\u043a\u0433\u03bf\u03b1\u03b5\u03b9\u03bd\u03c1\u03c5\u03ba\u03c4\u03b7"
    "\u0131\u0261\u0251\u01c0\u2223",
    "[" * len(_BRACKETS) + "aeopcyxisjdqwhl" + "mhtkr" + "oaeivpuktn" + "igall",
)
_LOOKS_OF_OPENINGS = tuple(_looks_of(opening) for opening in _OPENINGS)
_SHORTEST_OPENING = 5
"""One letter may stand for several (a ligature)."""


def shown_name(name: str) -> str:
    """A name that people choose (of a person, a file) on one line: nothing in it acts or hides."""
    shown = "".join(
        " " if unicodedata.category(ch) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Me") else ch
        for ch in name[:_NAME_LOOKED_AT_CHARS]
    )
    shown = " ".join(shown.split())
    # A mark in front would stand on what is in front of the name.
    while shown and (unicodedata.category(shown[0]) in _UNSEEN or shown[0] == " "):
        shown = shown[1:]
    return "someone" if is_blank(shown) else shown[:MAX_NAME_CHARS].rstrip()


def quoted_name(name: str) -> str:
    """The same in quotes, whose end nothing in it can forge: for a line that the model reads."""
    return json.dumps(shown_name(name).translate(_NO_ENDS), ensure_ascii=False)


_NO_ENDS = str.maketrans(
    {
        **dict.fromkeys('"\u201c\u201d\u201e\u201f\uff02\u2033\u00ab\u00bb', "'"),
        **dict.fromkeys("[\uff3b\u3010", "("),
        **dict.fromkeys("]\uff3d\u3011", ")"),
    }
)


def _identifier(sender_id: str) -> str:
    return re.sub(r"[^\w.:+-]", "", sender_id, flags=re.ASCII)[:64]


def quoted_words(text: str, max_chars: int) -> str:
    """Somebody's words on one line, quoted, for a line that the model reads; "": nothing to see."""
    shown = " ".join(readable(text).split())
    if is_blank(shown):
        return ""
    if len(shown) > max_chars:
        shown = shown[:max_chars] + "…"
    return json.dumps(shown, ensure_ascii=False)
