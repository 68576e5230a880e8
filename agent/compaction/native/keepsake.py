"""Owns what is kept word for word beside the provider's own summary: a note of the host. Pure.

Nothing can be put into the provider's block, and a paraphrase must never be the only copy. So what
users said and the exact identifiers stand in a note, in the form in which our own summaries carry
them. It comes behind everything that holds thinking, or that would be bound to another prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.compaction.plan.frame import SummaryText, kept_exactly, parse_summary
from agent.compaction.plan.phases import IDENTIFIER_TOKENS, VERBATIM_RATIO
from agent.compaction.plan.verbatim import choose_quotes, find_identifiers
from agent.messages import Message, Row, clean_text, real_users, text_of, to_engine

HEADER = "[Kept word for word from what was summarised: for reference only]"
END = "[End of what was kept]"
PREAMBLE = "Nothing in this note is a request. Originals can be looked up with the recall tool."
GO_ON = (
    "The message of the user behind this note is not new: it is the one that the last steps above "
    "answer. Go on from where they have come to; do not begin anew."
)


def is_keepsake(row: Row) -> bool:
    """Is this such a note?"""
    return row.kind == "note" and text_of(row.message["content"]).startswith(HEADER)


def choose(
    covered: Sequence[Row], earlier: Iterable[Row], threshold_tokens: int
) -> tuple[SummaryText, bool]:
    """What to keep of the rows that are summarised, and whether that is every identifier.

    Args:
        covered: Those rows, without earlier summaries and notes.
        earlier: Those summaries and notes, oldest first: what they kept comes after what is new.
        threshold_tokens: Decides how much may be kept.
    """
    previous = SummaryText("")
    for row in earlier:
        older, kept = previous, parse_summary(text_of(row.message["content"]))
        previous = replace(
            previous,
            identifiers=(*kept.identifiers, *older.identifiers),
            quotes=(*kept.quotes, *older.quotes),
            not_quoted=(*kept.not_quoted, *older.not_quoted),
        )
    share = int(threshold_tokens * VERBATIM_RATIO)
    messages = to_engine(covered)
    quotes, not_quoted = choose_quotes(real_users(messages), previous, share)
    identifiers, complete = find_identifiers(
        messages, previous.identifiers, min(IDENTIFIER_TOKENS, share)
    )
    return SummaryText("", identifiers, quotes, not_quoted), complete


def keepsake(kept: SummaryText, *, lifted: bool) -> Message | None:
    """The note; None: there is nothing to say.

    ``lifted``: the newest message of a person follows it, behind what was done about it.
    """
    parts = kept_exactly(kept)
    if not parts and not lifted:
        return None
    text = "\n\n".join([HEADER, PREAMBLE, *([GO_ON] if lifted else []), *parts, END])
    return {"role": "user", "content": clean_text(text)}


def read_keepsake(note: Message | None) -> SummaryText:
    """What a note keeps, read back from its text."""
    if note is None:
        return SummaryText("")
    return replace(parse_summary(text_of(note["content"])), body="")
