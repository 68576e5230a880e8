"""Owns pypdf: a process that reads a PDF from its input and writes the text of some pages as JSON.

The input begins with a line such as ``{"page": 1, "offset": 0, "max_chars": 4000}``.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

from agent.media import process_bounds

MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_CPU_SECONDS = 25
MAX_PAGES_AT_ONCE = 50
"""Pages without text (scans) are looked through quickly, but not by the thousand."""


def bound_this_process() -> None:
    """What a PDF may take."""
    process_bounds.bound_this_process(memory_bytes=MAX_MEMORY_BYTES, cpu_seconds=MAX_CPU_SECONDS)


def read_pages(data: bytes, page: int, offset: int, max_chars: int) -> dict[str, Any]:
    """`agent.media.documents.PdfText` as an object, or ``{"error": why}``."""
    import pypdf  # noqa: PLC0415 - heavy, and only in this process
    from pypdf.errors import FileNotDecryptedError  # noqa: PLC0415

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "it is locked with a password"}
        return _pages(reader, page, offset, max_chars)
    except FileNotDecryptedError:
        return {"error": "it is locked with a password"}
    except MemoryError:
        return {"error": "it is too much to unpack"}
    except Exception as exc:  # noqa: BLE001 - hostile documents raise whatever they like
        return {"error": f"it is damaged ({type(exc).__name__})"}


def _pages(reader: Any, page: int, offset: int, max_chars: int) -> dict[str, Any]:
    count = len(reader.pages)
    if not 1 <= page <= count:
        return {"error": f"there is no page {page}; it has {count} pages"}
    said: list[str] = []
    room, skip, number = max_chars, offset, page
    last = min(count, page + MAX_PAGES_AT_ONCE - 1)
    while number <= last and room > 0:
        text = _page_text(reader.pages[number - 1])[skip:]
        head = f"[page {number} of {count}]\n"
        said.append(head + (text[:room] or "(no text on this page)"))
        if len(text) > room:
            return _told(said, count, number, skip + room)
        room -= len(text) + len(head)
        skip, number = 0, number + 1
    return _told(said, count, number if number <= count else None, 0)


def _page_text(page: Any) -> str:
    try:
        found = str(page.extract_text() or "")
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - one bad page is no reason to give up the others
        return "(this page can not be read)"
    return found.encode("utf-8", "replace").decode("utf-8").strip()


def _told(said: list[str], pages: int, next_page: int | None, next_offset: int) -> dict[str, Any]:
    return {
        "text": "\n\n".join(said),
        "pages": pages,
        "next_page": next_page,
        "next_offset": next_offset,
    }


def main() -> None:
    """Read, answer, end."""
    logging.disable(logging.CRITICAL)
    question = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    bound_this_process()
    sys.setrecursionlimit(2_000)
    answer = read_pages(data, question["page"], question["offset"], question["max_chars"])
    # Escaped, letters could be three times as long, and too much for who asked.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8"))


if __name__ == "__main__":
    main()
