"""Owns the way out to Telegram: Markdown → text with entities, cut within the limits (pure)."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyromark
from telegramify_markdown import MessageEntity
from telegramify_markdown import convert as convert_markdown
from telegramify_markdown.config import RenderConfig
from telegramify_markdown.converter import STANDARD_OPTIONS

from agent.mail import PartDraft
from agent.messages import clean_text, is_blank
from gateway import texts
from gateway.delivery.splitting import TELEGRAM_LIMIT, split_text, utf16_len
from gateway.markdown.adapting import adapted
from gateway.markdown.as_file import beginning, document
from gateway.markdown.dialects import (
    RULE,
    TELEGRAM,
    info_string,
    is_beyond_parsing,
    is_safe_link,
)

log = logging.getLogger(__name__)

MAX_ENTITIES: Final = 100
"""Telegram silently drops the formatting of what comes behind them."""
MAX_MESSAGES: Final = 8
"""A longer answer goes as its beginning and a file."""
MAX_GROWTH: Final = 2
"""Converted text that has grown more than this is no longer what the model wrote."""
REPEAT_MARK: Final = f"{texts.POSSIBLE_REPEAT}\n"


_WHOLE_UP_TO_UNITS: Final = 512
"""Entities longer than this may be cut: Telegram shows the two halves alike."""
_CUT_ANYWHERE: Final = frozenset({"pre", "blockquote", "expandable_blockquote"})
_TYPES: Final = _CUT_ANYWHERE | {
    "bold",
    "italic",
    "underline",
    "strikethrough",
    "spoiler",
    "code",
    "text_link",
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DEFINITION: Final = re.compile(r"^( {0,3})\[([^\]\n]+)\]:(?=[ \t]*\S)", re.MULTILINE)
_LABEL: Final = re.compile(r"\[([^\]\n]+)\]")
_LINE_START_TAG: Final = re.compile(rb"(?m)^([ \t>]*)<")
_QUOTES: Final = frozenset({"blockquote", "expandable_blockquote"})
_OWN_TAGS: Final = frozenset({"<tg-spoiler>", "</tg-spoiler>"})


@dataclass(frozen=True, slots=True)
class _Span:
    """An entity; offsets in UTF-16 units."""

    type: str
    start: int
    end: int
    url: str | None = None
    language: str | None = None

    def payload(self, offset: int, length: int) -> dict[str, Any]:
        entity: dict[str, Any] = {"type": self.type, "offset": offset, "length": length}
        if self.url is not None:
            entity["url"] = self.url
        if self.language is not None:
            entity["language"] = self.language
        return entity


def render(text: str) -> list[PartDraft]:
    """The messages of an answer: ``{"text": …, "entities": […]}``.

    Of one that would take more than `MAX_MESSAGES`, the beginning and then the whole as a file:
    ``"document": {"name": …, "text": …}``, with the caption as ``text``.
    """
    clean = _CONTROL.sub("", clean_text(text).replace("\r\n", "\n").replace("\r", "\n"))
    if is_blank(clean):
        return [_part(texts.NOTHING_SAID, [])]
    if utf16_len(clean) > MAX_MESSAGES * TELEGRAM_LIMIT:
        return _as_file(clean)
    parts = list(islice(_messages(clean), MAX_MESSAGES + 1))
    return parts if len(parts) <= MAX_MESSAGES else _as_file(clean)


def _messages(clean: str) -> Iterator[PartDraft]:
    shown, spans = _convert(clean)
    if is_blank(shown):
        shown, spans = clean, []
    for piece, entities in _pieces(shown, spans):
        if not is_blank(piece):
            yield _part(piece, entities)


def _as_file(clean: str) -> list[PartDraft]:
    first = islice(_messages(beginning(clean, TELEGRAM_LIMIT)), 1)
    whole = {**_part(texts.WHOLE_ANSWER, []).payload, "document": document(clean)}
    return [*first, PartDraft(whole)]


def _part(text: str, entities: list[dict[str, Any]]) -> PartDraft:
    return PartDraft({"text": text, "entities": entities})


def mark_repeat(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The payload with a visible mark in front; None if there is no room for it."""
    text = REPEAT_MARK + payload["text"]
    if utf16_len(text) > TELEGRAM_LIMIT:
        return None
    moved = utf16_len(REPEAT_MARK)
    entities = [{**e, "offset": e["offset"] + moved} for e in payload.get("entities") or ()]
    return {**payload, "text": text, "entities": entities}


# --- Markdown to entities -----------------------------------------------------------------------


def _symbols() -> RenderConfig:
    config = RenderConfig.isolated()
    for level in range(1, 7):  # a heading is bold and underlined; a pictogram says nothing more
        setattr(config.markdown_symbol, f"heading_level_{level}", "")
    config.markdown_symbol.task_completed = "☑"
    config.markdown_symbol.task_uncompleted = "☐"
    config.markdown_symbol.unordered_list_item = "•"
    config.markdown_symbol.horizontal_rule = RULE
    return config


_CONFIG: Final = _symbols()


def _convert(text: str) -> tuple[str, list[_Span]]:
    if is_beyond_parsing(text):
        return text, []
    escaped = _escape_html(_escape_definitions(adapted(text, TELEGRAM)))
    if escaped is None:
        return text, []
    try:
        shown, entities = convert_markdown(escaped, config=_CONFIG)
    except Exception:  # the answer must go out, whatever a parser thinks of it
        log.exception("markdown could not be converted; sent as plain text")
        return text, []
    if len(shown) > MAX_GROWTH * len(text) + TELEGRAM_LIMIT:
        return text, []
    return shown, list(_spans(entities, utf16_len(shown)))


def _spans(entities: Sequence[MessageEntity], units: int) -> Iterator[_Span]:
    quoted = 0
    for entity in sorted(entities, key=lambda e: (e.offset, -e.length)):
        start, end = entity.offset, min(entity.offset + entity.length, units)
        if entity.type not in _TYPES or start < 0 or end <= start:
            continue
        if entity.type == "text_link" and not is_safe_link(entity.url or ""):
            continue
        if entity.type in _QUOTES:
            if end <= quoted:  # Telegram knows no quotes in quotes
                continue
            quoted = end
        language = info_string(entity.language or "")[0] or None
        yield _Span(entity.type, start, end, entity.url, language)


def _escape_definitions(text: str) -> str:
    """Keep ``[1]: https://…`` visible where nothing refers to it: Markdown would swallow it."""
    if "]:" not in text:
        return text
    uses = Counter(label.casefold() for label in _LABEL.findall(text))

    def kept(match: re.Match[str]) -> str:
        alone = uses[match[2].casefold()] <= 1
        return f"{match[1]}&#91;{match[2]}]:" if alone else match[0]

    return _DEFINITION.sub(kept, text)


def _escape_html(text: str) -> str | None:
    """Make raw HTML show as it is written; the converter would drop it. None: it can not be done.

    The parser itself says what is HTML, so that code keeps its ``<``. What is inside an HTML block
    is only seen once the block is none any more, hence the rounds.
    """
    data = text.encode("utf-8")
    for _ in range(8):
        ranges = list(_html_ranges(data))
        if not ranges:
            return data.decode("utf-8")
        for start, end in reversed(ranges):
            inside = data[start:end]
            escaped = _LINE_START_TAG.sub(rb"\1\\<", inside)
            if escaped == inside:
                escaped = inside.replace(b"<", rb"\<", 1)
            if escaped == inside:
                return None
            data = data[:start] + escaped + data[end:]
    return None


def _html_ranges(data: bytes) -> Iterator[tuple[int, int]]:
    if b"<" not in data:
        return
    events: Any = pyromark.events_with_range(data.decode("utf-8"), options=STANDARD_OPTIONS)
    last_end = -1
    for event, place in events:
        if not isinstance(event, dict) or not ("Html" in event or "InlineHtml" in event):
            continue
        if event.get("InlineHtml") in _OWN_TAGS:
            continue
        if place["start"] == last_end and "Html" in event:
            last_end = place["end"]  # the further lines of one block: seen again in the next round
            continue
        last_end = place["end"]
        yield place["start"], place["end"]


# --- cutting ------------------------------------------------------------------------------------


def _pieces(text: str, spans: list[_Span]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    starts = [span.start for span in spans]
    at, units, first = 0, 0, 0
    while at < len(text):
        piece = split_text(text[at : at + TELEGRAM_LIMIT + 1], TELEGRAM_LIMIT)[0]
        end = units + utf16_len(piece)
        while first < len(spans) and spans[first].end <= units:
            first += 1
        near = spans[first : bisect_left(starts, end)]
        inside = [span for span in near if span.end > units]
        piece = piece[: _length(piece, units, end, inside, last=at + len(piece) >= len(text))]
        end = units + utf16_len(piece)
        inside = [span for span in inside if span.start < end]
        yield _trimmed(piece, units, inside[:MAX_ENTITIES])
        at += len(piece)
        units = end


def _length(piece: str, units: int, end: int, inside: list[_Span], *, last: bool) -> int:
    """How much of a piece to take: it cuts no small entity and holds no more than are allowed."""
    limit = end
    if len(inside) > MAX_ENTITIES and inside[MAX_ENTITIES].start > units:
        limit = inside[MAX_ENTITIES].start
    if limit == end and last:
        return len(piece)
    small = [span for span in inside if _stays_whole(span, units)]
    for span in reversed(small):  # by falling start: what is behind the limit can not be cut by it
        if units < span.start < limit < span.end:
            limit = span.start
    if limit == end:
        return len(piece)
    length = _prefix(piece, limit - units)
    line = piece.rfind("\n", length // 2, length) + 1
    cut = units + utf16_len(piece[:line])
    return line if line and not any(span.start < cut < span.end for span in small) else length


def _stays_whole(span: _Span, units: int) -> bool:
    """Small ones always; code and quotes move on whole, unless most of a message were wasted."""
    size = span.end - span.start
    if span.type in _CUT_ANYWHERE:
        return size <= TELEGRAM_LIMIT and span.start - units >= TELEGRAM_LIMIT // 4
    return size <= _WHOLE_UP_TO_UNITS


def _prefix(text: str, units: int) -> int:
    """How many characters the first ``units`` of ``text`` are; they end between two characters."""
    return len(text.encode("utf-16-le")[: units * 2].decode("utf-16-le"))


def _trimmed(piece: str, units: int, spans: list[_Span]) -> tuple[str, list[dict[str, Any]]]:
    """The piece without blank lines around it, and its entities from its own start on."""
    body = piece.rstrip()
    lead = re.match(r"(?:[^\S\n]*\n)*", body)
    skipped = lead.end() if lead else 0
    body = body[skipped:]
    start = units + utf16_len(piece[:skipped])
    size = utf16_len(body)
    entities = []
    for span in spans:
        first, last = max(span.start - start, 0), min(span.end - start, size)
        if last > first:
            entities.append(span.payload(first, last - first))
    return body, entities
