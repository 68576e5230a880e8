"""Owns how an answer goes that is too long for messages: its beginning, and all of it as a file."""

from __future__ import annotations

from typing import Final

from gateway.delivery.splitting import split_markdown

FILE_NAME: Final = "answer.md"
_LOOKED_AT: Final = 2
"""Limits of text, more than enough for one message of it."""


def beginning(text: str, limit: int) -> str:
    """The Markdown for one message, cut at a good place. ``text`` is not blank."""
    return split_markdown(text.lstrip("\n")[: _LOOKED_AT * limit], limit)[0]


def document(text: str) -> dict[str, str]:
    """What a part's payload has under ``document``: the file's name, and all that is in it.

    It is sent as UTF-8. The text is here in full, so that nothing else has to outlive a restart.
    """
    return {"name": FILE_NAME, "text": text}
