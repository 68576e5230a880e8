"""Owns what is kept word for word beside a summary: user messages and exact identifiers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent.compaction.clip import clip_to_tokens, recall_reference
from agent.compaction.frame import Quote, SummaryText
from agent.compaction.summary import Readable
from agent.model_metadata import estimate_tokens_rough


def choose_quotes(
    asked: Sequence[Readable], previous: SummaryText, budget_tokens: int
) -> tuple[tuple[Quote, ...], tuple[int, ...]]:
    """The user messages to keep word for word, newest first, and the rows of those left out.

    Those of an earlier summary come after the new ones. One that does not fit is listed by its
    reference; only if nothing at all would be quoted, the newest one is cut to fit.
    """
    candidates = [
        Quote(text, item.message.get("_origin", item.message.get("_row")))
        for item in reversed(asked)
        if (text := item.text.strip("\n"))
    ]
    candidates.extend(previous.quotes)
    quotes: list[Quote] = []
    left_out: list[int] = []
    left = budget_tokens
    for candidate in candidates:
        cost = estimate_tokens_rough(candidate.text) + 8
        if cost <= left:
            quotes.append(candidate)
            left -= cost
        elif not quotes and candidate.row_id is not None and left > 64:
            shorter = clip_to_tokens(
                candidate.text, left - 40, reference=f"recall ref m{candidate.row_id}"
            )
            quotes.append(Quote(shorter, candidate.row_id))
            left = 0
        elif candidate.row_id is not None:
            left_out.append(candidate.row_id)
    left_out.extend(previous.not_quoted)
    return tuple(quotes), tuple(dict.fromkeys(left_out))


_IDENTIFIER = re.compile(
    r"""(?P<url>https?://[^\s<>"'`)\]}]{4,200})
    |(?P<path>(?<![\w/.~])(?:~|\.{1,2})?/(?:[\w.@%+\-]+/)*[\w.@%+\-]{2,})
    |(?P<file>\b[\w\-]{1,60}\.(?:py|js|ts|go|rs|c|h|cpp|java|md|txt|ya?ml|json|toml|sql|sh|csv|log|cfg|ini|html|css|pdf|png|jpg|xlsx?|docx?)\b)
    |(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)
    |(?P<hex>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b)
    |(?P<code>\b[A-Z][A-Z0-9]{0,9}[\-_#]\d{2,}\b|\b[A-Z]{2,}\d{2,}\b)
    |(?P<number>(?<![\w.])\d[\d.,:]{3,}\d(?![\w]))
    |(?P<error>^[^\n]{0,80}?\b(?:Error|Exception|error|FAILED|错误|エラー)\b:?[^\n]{0,120})
    """,
    re.VERBOSE | re.MULTILINE,
)
_SCAN_CHARS = 20_000


def find_identifiers(
    items: Sequence[Readable], previous: Sequence[str], budget_tokens: int
) -> tuple[tuple[str, ...], bool]:
    """Exact strings that a paraphrase would lose, newest first, and whether they are all of them.

    Paths, addresses, ids, numbers, error lines; each once, with the reference of its message. Looks
    no further back than there is room.
    """
    kept: dict[str, str] = {}
    left = budget_tokens
    for item, line in _candidates(items, previous):
        if item in kept:
            continue
        left -= estimate_tokens_rough(line) + 1
        if left < 0:
            return tuple(kept.values()), False
        kept[item] = line
    return tuple(kept.values()), True


def _candidates(items: Sequence[Readable], previous: Sequence[str]) -> Iterator[tuple[str, str]]:
    for readable in reversed(items):
        reference = recall_reference(readable.message).removeprefix("recall ref ")
        for match in _IDENTIFIER.finditer(_scanned(readable)):
            item = " ".join(match[0].split()).rstrip(".,:;")
            if 3 < len(item) <= 220:
                yield item, f"{item} ({reference})" if reference else item
    for line in previous:
        yield re.sub(r" \(m\d+\)$", "", line), line


def _scanned(readable: Readable) -> str:
    text = "\n".join(part for part in (readable.text, *readable.arguments) if part)
    half = _SCAN_CHARS // 2
    return text if len(text) <= _SCAN_CHARS else f"{text[:half]}\n{text[-half:]}"
