"""Owns justhtml: a process that reads HTML from its input and writes title and Markdown as JSON.

The input begins with a line such as ``{"url": "https://…", "label": "utf-8", "max_chars": 400}``.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from agent.media import process_bounds
from agent.media.charsets import web_text

MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_CPU_SECONDS = 20
MAX_TITLE_CHARS = 300
MAX_LINK_CHARS = 500
MIN_MAIN_CHARS = 200
"""A page's own idea of its main part counts only if there is something in it."""
_UNSEEN = frozenset(
    (
        *("script", "style", "template", "noscript", "svg", "math", "select", "textarea"),
        *("button", "iframe", "object", "video", "audio", "canvas", "dialog", "#comment"),
    )
)
_CALLED = {
    **dict.fromkeys(("table", "thead", "tbody", "tfoot", "tr", "caption"), "div"),
    **dict.fromkeys(("td", "th"), "span"),
}
"""A table would stay HTML in the Markdown, and costs more than what it says."""


@dataclass(slots=True)
class _Found:
    """What a walk over a page comes across."""

    base: str
    title: Any = None
    links: list[Any] = field(default_factory=list)
    parts: dict[str, list[Any]] = field(default_factory=lambda: {"main": [], "article": []})


def read_html(data: bytes, url: str, label: str, max_chars: int) -> dict[str, Any]:
    """`agent.media.html.HtmlText` as an object, or ``{"error": why}``."""
    from justhtml import JustHTML  # noqa: PLC0415 - only in this process

    try:
        # Not made safe for a browser: it becomes text, and nobody runs it.
        page = JustHTML(web_text(data, label, markup=True), sanitize=False)
        found = _walked(page.root, url)
        for link in found.links:
            _whole_address(link, found.base)
        title = " ".join(found.title.to_text().split()) if found.title is not None else ""
        text = _main_part(page.root, found).to_markdown()
    except (MemoryError, RecursionError):
        return {"error": "it is too much to unpack"}
    except Exception as exc:  # noqa: BLE001 - hostile documents raise whatever they like
        return {"error": f"it is damaged ({type(exc).__name__})"}
    text = _encodable(text).strip()
    return {
        "title": _encodable(title[:MAX_TITLE_CHARS]),
        "text": text[:max_chars],
        "cut": len(text) > max_chars,
    }


def _walked(root: Any, url: str) -> _Found:
    """The page without what nobody sees, with words for pictures, and lines for rows of tables.

    In one walk, each list of children made anew once: pages may have any number of anything.
    """
    from justhtml import Text  # noqa: PLC0415

    found = _Found(url)
    ahead = [root]
    while ahead:
        part = ahead.pop()
        name = part.name
        if not part.children:
            continue
        shown: list[Any] = []
        for child in part.children:
            if isinstance(child, Text):
                shown.append(child)
                continue
            if child.name == "img":
                words = " ".join((child.attrs.get("alt") or "").split())
                shown += [Text(f"(picture: {words})")] if words else []
                continue
            if _is_unseen(child):
                continue
            if name == "tr" and child.name in ("td", "th") and shown:
                shown.append(Text(" | "))
            _note(child, found, url)
            shown.append(child)
            ahead.append(child)
        part.children[:] = shown
        part.name = _CALLED.get(name, name)
    return found


def _is_unseen(part: Any) -> bool:
    if part.name in _UNSEEN:
        return True
    attrs = part.attrs or {}
    style = "".join((attrs.get("style") or "").lower().split())
    return "hidden" in attrs or "display:none" in style


def _note(part: Any, found: _Found, url: str) -> None:
    match part.name:
        case "title" if found.title is None:
            found.title = part
        case "base" if found.base == url:
            found.base = _joined(url, part.attrs.get("href") or "")
        case "a":
            found.links.append(part)
        case "main" | "article":
            found.parts[part.name].append(part)
        case _:
            pass


def _main_part(root: Any, found: _Found) -> Any:
    """What the page calls its main part, if it is the only one; else all of it."""
    for parts in found.parts.values():
        if len(parts) == 1 and len(parts[0].to_text()) >= MIN_MAIN_CHARS:
            return parts[0]
    return root


def _joined(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        return ""


def _whole_address(link: Any, base: str) -> None:
    """A link that leads somewhere, by its whole address; else only its words."""
    said = link.attrs.get("href") or ""
    address = _joined(base, said) if said and not said.startswith("#") else ""
    if address.startswith(("http:", "https:")) and len(address) <= MAX_LINK_CHARS:
        link.attrs["href"] = address
    else:
        link.name = "span"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def main() -> None:
    """Read, answer, end."""
    logging.disable(logging.CRITICAL)
    question = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    process_bounds.bound_this_process(memory_bytes=MAX_MEMORY_BYTES, cpu_seconds=MAX_CPU_SECONDS)
    answer = read_html(data, question["url"], question["label"], question["max_chars"])
    # Escaped, letters could be three times as long, and too much for who asked.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8"))


if __name__ == "__main__":
    main()
