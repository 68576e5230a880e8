"""Owns the way out to Discord: Markdown → its own, within the limits, and nonces (pure)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from agent.mail import PartDraft
from agent.messages import clean_text, is_blank
from gateway import texts
from gateway.delivery.splitting import DISCORD_LIMIT, split_markdown, utf16_len
from gateway.markdown.adapting import adapted
from gateway.markdown.as_file import beginning, document
from gateway.markdown.dialects import DISCORD

NONCE_CHARS: Final = 24
"""Discord takes up to 25."""
MAX_MESSAGES: Final = 10
"""A longer answer goes as its beginning and a file."""
_MARKS: Final = re.compile("`{3,}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def render(text: str) -> list[PartDraft]:
    """The messages of an answer: ``{"content": …}``.

    Counted in UTF-16 units, which is never less than what Discord counts. Of an answer that would
    take more than `MAX_MESSAGES`, the beginning and then the whole as a file: ``"document":
    {"name": …, "text": …}``, with what stands above it as ``content``.
    """
    clean = _CONTROL.sub("", clean_text(text).replace("\r\n", "\n").replace("\r", "\n"))
    if is_blank(clean):
        return [PartDraft({"content": texts.NOTHING_SAID})]
    if utf16_len(clean) > MAX_MESSAGES * DISCORD_LIMIT:
        return _as_file(clean)
    parts = _messages(clean)
    return parts if len(parts) <= MAX_MESSAGES else _as_file(clean)


def _messages(clean: str) -> list[PartDraft]:
    """What is nothing to see once it is adapted (an HTML entity) goes as it was written."""
    return _cut(adapted(clean, DISCORD)) or _cut(clean)


def _cut(shown: str) -> list[PartDraft]:
    # Discord cuts white space at both ends itself; cut here, what is stored is what is shown, and
    # an earlier send can be recognised by its content.
    chunks = [_balanced(chunk.strip()) for chunk in split_markdown(shown, DISCORD_LIMIT)]
    return [PartDraft({"content": chunk}) for chunk in chunks if not is_blank(chunk)]


def _balanced(message: str) -> str:
    """Discord pairs marks wherever they stand, so one too many would turn all code inside out."""
    if message.count("```") % 2 == 0:
        return message
    return _MARKS.sub(lambda match: "`" + "\u200b" * (len(match[0]) - 1), message)


def _as_file(clean: str) -> list[PartDraft]:
    first = _messages(beginning(clean, DISCORD_LIMIT))[:1]
    whole = {"content": texts.WHOLE_ANSWER, "document": document(clean)}
    return [*first, PartDraft(whole)]


def nonce(scope: str, part_id: int) -> str:
    """The same for every send of a part, and for no other part of any database.

    ``scope`` names the database: its row ids begin at 1 again when it is made anew, and Discord
    would take the new answer for the old one.
    """
    digest = hashlib.blake2b(f"{scope}\0{part_id}".encode(), digest_size=NONCE_CHARS // 2)
    return digest.hexdigest()
