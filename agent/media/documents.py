"""Owns the text of documents: decoded, or taken out of a PDF by a process of its own."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from agent.media.charsets import in_pieces
from agent.media.kinds import LOOKED_AT_BYTES, looks_like_text, utf_16_without_mark
from agent.media.reader_process import asked

PDF_DEADLINE_SECONDS = 30.0
_MARKS = (  # the longer ones first: one begins like another
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decoded(data: bytes) -> str | None:
    """The text of a text file, in whatever encoding people use; None: it is no text."""
    if not looks_like_text(data):
        return None
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    if (codec_found := utf_16_without_mark(data[:LOOKED_AT_BYTES])) and b"\x00" in data:
        return data.decode(codec_found, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        # Cut within its last letter it is still what it was before.
        if exc.start >= len(data) - 3 and exc.reason == "unexpected end of data":
            return data.decode("utf-8", "replace")
    return in_pieces(data, "cp1252")


@dataclass(frozen=True, slots=True)
class PdfText:
    """Text of some pages in a row."""

    text: str
    pages: int
    """That the document has."""
    next_page: int | None
    """Where it goes on; None: that was all."""
    next_offset: int = 0
    """In characters of that page."""


async def pdf_text(
    data: bytes,
    *,
    page: int,
    offset: int,
    max_chars: int,
    deadline_seconds: float = PDF_DEADLINE_SECONDS,
) -> PdfText:
    """The text of a PDF from a page on (the first is 1), and from a character of that page on.

    Read in a process of its own, without our environment, bounded in memory and time: a document
    may be made to keep its reader busy for ever.

    Raises:
        DocumentUnreadable: damaged, locked with a password, no such page, too slow.
    """
    found = await asked(
        "agent.media.pdf_reader",
        {"page": page, "offset": offset, "max_chars": max_chars},
        data,
        deadline_seconds=deadline_seconds,
    )
    return PdfText(found["text"], found["pages"], found["next_page"], found["next_offset"])
