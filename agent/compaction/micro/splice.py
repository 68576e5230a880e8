"""Owns the list that a pass leaves: the marker in the place of what it absorbed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.compaction.micro.marker import Digest, is_marker, marker_draft, parse_marker
from agent.messages import Draft, Entry, Keep, Row, wire_message, without_thinking
from agent.model_metadata import estimate_message_tokens


@dataclass(frozen=True, slots=True)
class Splice:
    """A new list, with what is worth knowing about it."""

    entries: tuple[Entry, ...]
    tokens_before: int
    """Estimate of the messages as they are."""
    tokens_after: int

    @property
    def cursor(self) -> int:
        """Where the next exchange is looked for: behind the marker of the new list."""
        return max(i for i, e in enumerate(self.entries) if isinstance(e, Draft)) + 1


def rolling_digest(rows: Sequence[Row]) -> Digest:
    """The digest so far, read from the list itself: what is not in it was not absorbed."""
    return Digest.joined([parse_marker(row.message) for row in rows if is_marker(row)])


def absorb(rows: Sequence[Row], exchange: range, digest: Digest) -> Splice:
    """Put the grown digest in the place of an exchange; the markers that it grew from go."""
    return _spliced(rows, exchange, digest)


def defragment(rows: Sequence[Row], digest: Digest) -> Splice:
    """Put a shorter digest in the place of the newest marker."""
    newest = max(i for i, row in enumerate(rows) if is_marker(row))
    return _spliced(rows, range(newest, newest + 1), digest)


def _spliced(rows: Sequence[Row], place: range, digest: Digest) -> Splice:
    marker = marker_draft(digest)
    entries: list[Entry] = []
    tokens, changed = 0, False
    for at, row in enumerate(rows):
        if at == place.start:
            entries.append(marker)
            tokens += estimate_message_tokens(marker.message)
        if at in place or is_marker(row):
            changed = True
            continue
        entries.append(Keep(row.id))
        tokens += _copied_tokens(row) if changed else row.tokens
    return Splice(tuple(entries), sum(row.tokens for row in rows), tokens)


def _copied_tokens(row: Row) -> int:
    """Of a row behind a change, which goes on without its thinking."""
    if "anthropic_content_blocks" not in row.message:
        return row.tokens
    sent = wire_message(row)
    bare = without_thinking(sent)
    return row.tokens if bare is sent else estimate_message_tokens(bare)
