"""Owns the text of documents: decoded, or taken out of a PDF by a process of its own."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.media.kinds import LOOKED_AT_BYTES, looks_like_text, utf_16_without_mark

PDF_DEADLINE_SECONDS = 30.0
MAX_PDF_ANSWER_BYTES = 4 * 1024 * 1024
_MARKS = (  # the longer ones first: one begins like another
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

log = logging.getLogger(__name__)


class DocumentUnreadable(Exception):
    """No text can be had; the text says why, in words for a model."""


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
    return data.decode("cp1252", "replace")


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

    Read in a process of its own, without our environment, bounded in memory and time, and killed
    when it takes too long: a document may be made to keep its reader busy for ever.

    Raises:
        DocumentUnreadable: damaged, locked with a password, no such page, too slow.
    """
    question = json.dumps({"page": page, "offset": offset, "max_chars": max_chars})
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", "agent.media.pdf_reader", question),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except OSError as exc:
        log.warning("No process to read a PDF", exc_info=True)
        raise DocumentUnreadable("documents can not be read right now") from exc
    try:
        async with asyncio.timeout(deadline_seconds):
            out, _ = await process.communicate(data)
    except TimeoutError:
        raise DocumentUnreadable("it takes too long to read") from None
    finally:
        if process.returncode is None:  # also when the turn was stopped
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return _pdf_text(_answer(out))


def _answer(out: bytes) -> Mapping[str, Any]:
    """What the process said; it may have died, of what the document did to it."""
    try:
        found = json.loads(out) if len(out) <= MAX_PDF_ANSWER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DocumentUnreadable("it is damaged, or too much to unpack")
    return found


def _pdf_text(found: Mapping[str, Any]) -> PdfText:
    if "error" in found:
        raise DocumentUnreadable(str(found["error"]))
    return PdfText(found["text"], found["pages"], found["next_page"], found["next_offset"])
