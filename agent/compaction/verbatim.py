"""Owns what is kept word for word beside a summary: user messages and exact identifiers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.compaction.boundary import is_note, is_summary
from agent.compaction.clip import clip_to_tokens, recall_reference
from agent.compaction.frame import Quote, SummaryText
from agent.compaction.summary import readable
from agent.messages import Message, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.redact import redact_sensitive_text


def choose_quotes(
    messages: Sequence[Message], previous: SummaryText, budget_tokens: int
) -> tuple[tuple[Quote, ...], tuple[int, ...]]:
    """The user messages to keep word for word, newest first, and the rows of those left out.

    Those of an earlier summary come after the new ones. One that does not fit is listed by its
    reference; only if nothing at all would be quoted, the newest one is cut to fit.
    """
    candidates = [
        Quote(text, message.get("_origin", message.get("_row")))
        for message in reversed(messages)
        if (text := redact_sensitive_text(readable(message)).strip("\n"))
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
    messages: Sequence[Message], previous: Sequence[str], budget_tokens: int
) -> tuple[tuple[str, ...], int]:
    """Exact strings that a paraphrase would lose, newest first, and how many did not fit.

    Paths, addresses, ids, numbers, error lines; each once, with the reference of its message.
    """
    found: dict[str, str] = {}
    for message in reversed(messages):
        text = _identifier_text(message)
        reference = recall_reference(message).removeprefix("recall ref ")
        for match in _IDENTIFIER.finditer(text):
            item = " ".join(match[0].split()).rstrip(".,:;")
            if 3 < len(item) <= 220 and item not in found:
                found[item] = f"{item} ({reference})" if reference else item
    for line in previous:
        item = re.sub(r" \(m\d+\)$", "", line)
        found.setdefault(item, line)
    kept: list[str] = []
    left = budget_tokens
    for line in found.values():
        cost = estimate_tokens_rough(line) + 1
        if cost > left:
            continue
        kept.append(line)
        left -= cost
    return tuple(kept), len(found) - len(kept)


def _identifier_text(message: Message) -> str:
    if is_summary(message) or is_note(message):
        return ""
    pieces = [text_of(message["content"])]
    pieces.extend(call["function"]["arguments"] or "" for call in message.get("tool_calls") or ())
    text = redact_sensitive_text("\n".join(piece for piece in pieces if piece))
    half = _SCAN_CHARS // 2
    return text if len(text) <= _SCAN_CHARS else f"{text[:half]}\n{text[-half:]}"
