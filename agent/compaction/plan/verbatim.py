"""Owns what is kept word for word beside a summary: user messages and exact identifiers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent.compaction.calls.remembered import Remembered
from agent.compaction.calls.summary import Readables, redacted, shown_text
from agent.compaction.plan.clip import clip_to_tokens
from agent.compaction.plan.frame import Quote, SummaryText
from agent.compaction.plan.manifest import row_of, rows_of
from agent.messages import Message
from agent.model_metadata import estimate_tokens_rough

WORTH_QUOTING_TOKENS = 32
"""With less room than this nothing further is quoted: the rest is listed without being read."""
_QUOTE_TOKENS = 8
"""What a quote costs beside its text."""


def choose_quotes(
    asked: Sequence[Message], previous: SummaryText, budget_tokens: int
) -> tuple[tuple[Quote, ...], tuple[int, ...]]:
    """The user messages to keep word for word, newest first, and the rows of those left out.

    Those of an earlier summary come after the new ones. One that does not fit, or has no text, is
    listed by its reference; only if nothing at all would be quoted, the newest one is cut to fit.
    """
    chosen = _Chosen(budget_tokens)
    for item in reversed(Readables(asked)) if budget_tokens > 0 else ():
        if chosen.full:
            break
        chosen.offer(item.text.strip("\n"), row_of(item.message))
    unread = rows_of(asked[: len(asked) - chosen.offered])
    chosen.left_out += [row for row in reversed(unread) if row is not None]
    for quote in previous.quotes:
        chosen.offer(quote.text, quote.row_id)
    left_out = dict.fromkeys((*chosen.left_out, *previous.not_quoted))
    return tuple(chosen.quotes), tuple(left_out)


class _Chosen:
    """What is quoted so far, and the room that is left."""

    def __init__(self, budget_tokens: int) -> None:
        self._left_tokens = budget_tokens
        self.quotes: list[Quote] = []
        self.left_out: list[int] = []
        self.offered = 0

    @property
    def full(self) -> bool:
        return self._left_tokens < WORTH_QUOTING_TOKENS

    def offer(self, text: str, row_id: int | None) -> None:
        self.offered += 1
        cost = estimate_tokens_rough(text) + _QUOTE_TOKENS
        if not text:
            self.leave_out(row_id)
        elif cost <= self._left_tokens:
            self.quotes.append(Quote(text, row_id))
            self._left_tokens -= cost
        elif not self.quotes and row_id is not None and self._left_tokens > 64:
            reference = f"recall ref m{row_id}"
            shorter = clip_to_tokens(text, self._left_tokens - 40, reference=reference)
            self.quotes.append(Quote(shorter, row_id))
            self._left_tokens = 0
        else:
            self.leave_out(row_id)

    def leave_out(self, row_id: int | None) -> None:
        if row_id is not None:
            self.left_out.append(row_id)


_PATTERN = r"""
    (?P<url>https?://[^\s<>"'`)\]}。，；：、！？）」》”]{4,200})
    |(?P<path>(?<![\w/.~])(?:~|\.{1,2})?/(?:[\w.@%+\-]+/){0,24}[\w.@%+\-]{2,})
    |(?P<file>\b[\w\-]{1,60}\.(?:py|js|ts|go|rs|c|h|cpp|java|md|txt|ya?ml|json|toml|sql|sh|csv|log|cfg|ini|html|css|pdf|png|jpg|xlsx?|docx?)\b)
    |(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)
    |(?P<hex>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b)
    |(?P<code>\b[A-Z][A-Z0-9]{0,9}[\-_#]\d{2,}\b|\b[A-Z]{2,}\d{2,}\b)
    |(?P<number>(?<![\w.])\d[\d.,:]{3,}\d(?![\w]))
    """
_IDENTIFIER = re.compile(_PATTERN, re.VERBOSE)
"""Looked for in one word at a time. A path is as long as it is, but not deeper than 25 names."""
_AMONG_CJK = re.compile(_PATTERN, re.VERBOSE | re.ASCII)
"""The same where letters of other scripts end a word: Chinese and Japanese put no blank there."""
_ERROR = re.compile(
    r"^.{0,80}?(?:(?:Error|Exception)\b|\b(?:error|FAILED)\b|错误|エラー):?.{0,120}"
)
_ERROR_WORDS = ("rror", "xception", "FAILED", "错误", "エラー")
_PUNCTUATION = ".,;:!?()[]{}<>\"'`*…。，、；：！？（）「」"
_SCAN_CHARS = 20_000


def find_identifiers(
    messages: Sequence[Message], previous: Sequence[str], budget_tokens: int
) -> tuple[tuple[str, ...], bool]:
    """Exact strings that a paraphrase would lose, newest first, and whether they are all of them.

    Paths, addresses, ids, numbers, error lines; each once, with the reference of its message. Looks
    no further back than there is room.
    """
    kept: dict[str, str] = {}
    left = budget_tokens
    for item, line in _candidates(messages, previous):
        if item in kept:
            continue
        left -= estimate_tokens_rough(line) + 1
        if left < 0:
            return tuple(kept.values()), False
        kept[item] = line
    return tuple(kept.values()), True


def _candidates(messages: Sequence[Message], previous: Sequence[str]) -> Iterator[tuple[str, str]]:
    for message in reversed(messages):
        texts = [shown_text(message)]
        if calls := message.get("tool_calls"):
            texts += [call["function"]["arguments"] for call in calls]
        row_id = row_of(message)
        for text in texts:
            for item in identifiers_in(text):
                yield item, f"{item} (m{row_id})" if row_id is not None else item
    for line in previous:
        yield re.sub(r" \(m\d+\)$", "", line), line


def search(text: str) -> tuple[str, ...]:
    """The identifiers of a text, secrets left out, each once. `identifiers_in` remembers them."""
    text = redacted(text)
    if len(text) > _SCAN_CHARS:
        half = _SCAN_CHARS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    found: dict[str, None] = {}
    for line in text.split("\n"):
        rest = line
        if any(word in line for word in _ERROR_WORDS) and (error := _ERROR.match(line)):
            found[" ".join(error[0].split())] = None
            rest = line[error.end() :]
        for word in rest.split():
            if not word.strip(_PUNCTUATION).isalpha():  # a plain word is none of them
                found.update(dict.fromkeys(_in_word(word)))
    stripped = (item.rstrip(".,:;") for item in found)
    return tuple(dict.fromkeys(item for item in stripped if 3 < len(item) <= 220))


def _in_word(word: str) -> list[str]:
    found = [match[0] for match in _IDENTIFIER.finditer(word)]
    if not word.isascii():
        found += [
            match[0]
            for match in _AMONG_CJK.finditer(word)
            if not _is_fragment(match) and not any(match[0] in whole for whole in found)
        ]
    return found


def _is_fragment(match: re.Match[str]) -> bool:
    """Is it only the ASCII part of a path whose other names are not?"""
    path = match["path"]
    return path is not None and (path.count("/") < 2 or match.string[match.end() :][:1] == "/")


identifiers_in = Remembered(search)
"""The exact strings in a text; remembered, since most of a history has none."""
