"""Owns the text of HTML, made by a process of its own."""

from __future__ import annotations

from dataclasses import dataclass

from agent.media.reader_process import asked

HTML_DEADLINE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class HtmlText:
    """What of a page can be read."""

    title: str
    """On one line; "": it has none."""
    text: str
    """Markdown, with whole addresses in its links."""
    cut: bool
    """There was more of it than was asked for."""


async def html_text(
    data: bytes,
    *,
    url: str,
    label: str = "",
    max_chars: int,
    deadline_seconds: float = HTML_DEADLINE_SECONDS,
) -> HtmlText:
    """A page's title and text.

    Args:
        data: The page.
        url: Where it is from: its links start there.
        label: What the server calls its letters; "": nothing.
        max_chars: Of the text.
        deadline_seconds: Of the process that reads it.

    Raises:
        DocumentUnreadable: too slow, or too much to unpack.
    """
    found = await asked(
        "agent.media.html_reader",
        {"url": url, "label": label, "max_chars": max_chars},
        data,
        deadline_seconds=deadline_seconds,
    )
    return HtmlText(found["title"], found["text"], found["cut"])
