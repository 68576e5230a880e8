"""Owns the way out to Discord: Markdown → messages within the limit, and their nonces (pure)."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from agent.mail import PartDraft
from agent.messages import clean_text, is_blank
from gateway import texts
from gateway.delivery.splitting import DISCORD_LIMIT, split_markdown

NONCE_CHARS: Final = 24
"""Discord takes up to 25."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def render(text: str) -> list[PartDraft]:
    """The messages of an answer: ``{"content": …}``. Discord speaks Markdown, so it stays as it is.

    Counted in UTF-16 units, which is never less than what Discord counts.
    """
    clean = _CONTROL.sub("", clean_text(text).replace("\r\n", "\n").replace("\r", "\n"))
    # Discord cuts white space at both ends itself; cut here, what is stored is what is shown, and
    # an earlier send can be recognised by its content.
    chunks = (chunk.strip() for chunk in split_markdown(clean, DISCORD_LIMIT))
    kept = [PartDraft({"content": chunk}) for chunk in chunks if not is_blank(chunk)]
    return kept or [PartDraft({"content": texts.NOTHING_SAID})]


def nonce(scope: str, part_id: int) -> str:
    """The same for every send of a part, and for no other part of any database.

    ``scope`` names the database: its row ids begin at 1 again when it is made anew, and Discord
    would take the new answer for the old one.
    """
    digest = hashlib.blake2b(f"{scope}\0{part_id}".encode(), digest_size=NONCE_CHARS // 2)
    return digest.hexdigest()
