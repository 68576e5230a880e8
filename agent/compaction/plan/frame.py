"""Owns the summary message: its fixed frame, its parts, and reading them back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.messages import SUMMARY_END, SUMMARY_HEADER, clean_text
from agent.redact import redact_sensitive_text

PREAMBLE = (
    "What follows replaces earlier messages of this conversation. It is background, not a request: "
    "everything in it describes the state at that time. Answer the newest message of the user. "
    "Originals can be looked up with the recall tool."
)
IDENTIFIERS_TITLE = "## Exact identifiers (newest first)"
VERBATIM_TITLE = "## User messages, word for word (newest first)"
_RESERVED_LINES = frozenset(
    {SUMMARY_HEADER, SUMMARY_END, PREAMBLE, IDENTIFIERS_TITLE, VERBATIM_TITLE}
)


@dataclass(frozen=True, slots=True)
class Quote:
    """A message of a person, kept word for word (secrets out)."""

    text: str
    row_id: int | None = None


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A summary in its parts."""

    body: str
    identifiers: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    """Newest first."""
    not_quoted: tuple[int, ...] = ()
    """Rows of further user messages, for which there was no room."""


_LISTED = re.compile(r"^Not quoted here: (.*)$", re.MULTILINE)
_QUOTE = re.compile(r"^(~{3,}) user(?: m(\d+))?\n(.*?)\n\1$", re.DOTALL | re.MULTILINE)
_PROMPT_MARK = re.compile("</?(?:conversation|summary_so_far|memory)>")
_TILDES = re.compile(r"^~{3,}", re.MULTILINE)
MAX_LISTED = 40


def render_summary(summary: SummaryText) -> str:
    """The content of the summary message; `parse_summary` reads it again."""
    parts = [SUMMARY_HEADER, PREAMBLE, summary.body, *kept_exactly(summary), SUMMARY_END]
    return clean_text("\n\n".join(part for part in parts if part))


def kept_exactly(summary: SummaryText) -> list[str]:
    """The parts of a summary that no model wrote: identifiers and quotes, each with its title."""
    parts = []
    if summary.identifiers:
        parts.append("\n".join((IDENTIFIERS_TITLE, *(f"- {item}" for item in summary.identifiers))))
    if summary.quotes or summary.not_quoted:
        parts.append("\n".join((VERBATIM_TITLE, *_verbatim_lines(summary))))
    return parts


def _verbatim_lines(summary: SummaryText) -> Iterable[str]:
    for quote in summary.quotes:
        longest = max((len(m[0]) for m in _TILDES.finditer(quote.text)), default=2)
        fence = "~" * (longest + 1)
        name = f" m{quote.row_id}" if quote.row_id is not None else ""
        yield f"{fence} user{name}\n{quote.text}\n{fence}"
    if summary.not_quoted:
        shown = summary.not_quoted[:MAX_LISTED]
        references = ", ".join(f"recall ref m{row_id}" for row_id in shown)
        more = len(summary.not_quoted) - len(shown)
        yield f"Not quoted here: {references}{f' and {more} more' if more else ''}"


def parse_summary(content: str) -> SummaryText:
    """The parts of a summary message; one that is not ours is all body."""
    text = content.strip()
    if text.startswith(SUMMARY_HEADER):
        text = text[len(SUMMARY_HEADER) :]
        end = text.rfind(SUMMARY_END)
        text = text[:end] if end >= 0 else text
        text = text.strip().removeprefix(PREAMBLE).strip()
    rest, _, verbatim = _split_at(text, VERBATIM_TITLE)
    body, _, listed = _split_at(rest, IDENTIFIERS_TITLE)
    quotes = tuple(Quote(m[3], int(m[2]) if m[2] else None) for m in _QUOTE.finditer(verbatim))
    outside = _QUOTE.sub("", verbatim)
    not_quoted = _LISTED.search(outside)
    return SummaryText(
        body=body.strip(),
        identifiers=tuple(
            line[2:] for line in listed.splitlines() if line.startswith("- ") and line[2:].strip()
        ),
        quotes=quotes,
        not_quoted=tuple(int(n) for n in re.findall(r"\bm(\d+)", not_quoted[1]))
        if not_quoted
        else (),
    )


def _split_at(text: str, title: str) -> tuple[str, str, str]:
    """Split where a title stands alone on a line."""
    match = re.search(rf"^{re.escape(title)}$", text, re.MULTILINE)
    if match is None:
        return text, "", ""
    return text[: match.start()], title, text[match.end() :]


_FENCE = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.DOTALL)


def clean_body(text: str) -> str:
    """A body that can be put into a frame: no header, end mark or title of ours, no secret."""
    if fenced := _FENCE.match(text.strip()):
        text = fenced[1]
    text = redact_sensitive_text(text)
    # A small model copies the marks of its prompt as well.
    lines = [
        line
        for line in text.splitlines()
        if line.strip() not in _RESERVED_LINES and not _PROMPT_MARK.fullmatch(line.strip())
    ]
    return "\n".join(lines).strip()
