"""Owns the model of the provider's prompt cache: prefixes with a life, and marks. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.prompt_caching import LOOK_BACK_BLOCKS

MARKS = 3
"""Of the messages; a fourth one stands on the system prompt."""
_MOST_ENTRIES = 60
"""Older entries than these lie further back than any mark looks."""


@dataclass(slots=True)
class _Entry:
    """A prefix that the provider holds: the list's first ``rows`` and what stands before them."""

    rows: int
    tokens: int
    used_at: float


@dataclass(frozen=True, slots=True)
class Billed:
    """How a prompt is billed, in tokens."""

    plain: int
    read: int
    written: int


class PrefixCache:
    """What of a conversation's prompts the provider holds.

    Simplified against the real one in this: all entries of a request are there as soon as it is
    sent, and a provider never drops one early.
    """

    def __init__(self, fixed_tokens: int, ttl_seconds: float | None, min_tokens: int) -> None:
        """Begin with nothing.

        Args:
            fixed_tokens: System prompt and tools.
            ttl_seconds: How long an entry lives after its last use; None: nothing is cached.
            min_tokens: A shorter prefix is not cached.
        """
        self._fixed_tokens = fixed_tokens
        self._ttl_seconds = ttl_seconds
        self._min_tokens = min_tokens
        self._entries: list[_Entry] = []
        self._fixed_at: float | None = None
        self._last_rows: int | None = None
        """Where the last request ended; None: the list was changed before that since."""

    def changed_from(self, row: int) -> None:
        """The list is another one from this row on."""
        while self._entries and self._entries[-1].rows > row:
            self._entries.pop()
        if self._last_rows is not None and self._last_rows > row:
            self._last_rows = None

    def ask(
        self,
        rows: int,
        tokens: int,
        now: float,
        blocks_of: Callable[[int], int],
        tokens_of: Callable[[int], int],
    ) -> Billed:
        """Bill a request, and remember what it leaves.

        Args:
            rows: How many messages it has.
            tokens: All of it.
            now: Seconds.
            blocks_of: Content blocks of the message at an index.
            tokens_of: Its tokens.
        """
        ttl = self._ttl_seconds
        if ttl is None or tokens < self._min_tokens:
            return Billed(tokens, 0, 0)
        read = 0
        fixed_alive = self._fixed_at is not None and now - self._fixed_at <= ttl
        if fixed_alive:
            read = self._fixed_tokens
        found = self._within_reach(rows, now - ttl, blocks_of)
        if found is not None:
            found.used_at = now
            read = found.tokens
        if self._fixed_tokens >= self._min_tokens:
            self._fixed_at = now
        self._last_rows = rows
        end = tokens
        for at in range(rows, max(0, rows - MARKS), -1):
            self._leave(at, end, now)
            end -= tokens_of(at - 1)
        return Billed(0, read, tokens - read)

    def _within_reach(
        self, rows: int, oldest: float, blocks_of: Callable[[int], int]
    ) -> _Entry | None:
        """The longest prefix that is alive and that a mark finds.

        Behind the last request's end there is one answer and what came upon it; a mark always
        stands where it is found. Further back it has to be within the blocks that a mark looks
        over.
        """
        at, blocks = max(0, rows - MARKS), 0
        for entry in reversed(self._entries):
            while at > entry.rows:
                at -= 1
                blocks += blocks_of(at)
            if blocks > LOOK_BACK_BLOCKS and entry.rows != self._last_rows:
                return None
            if entry.used_at >= oldest:
                return entry
        return None

    def _leave(self, rows: int, tokens: int, now: float) -> None:
        if tokens < self._min_tokens:
            return
        entries = self._entries
        place = len(entries)
        while place and entries[place - 1].rows >= rows:
            place -= 1
        if place < len(entries) and entries[place].rows == rows:
            entries[place].used_at = now
            return
        entries.insert(place, _Entry(rows, tokens, now))
        if len(entries) > _MOST_ENTRIES:
            del entries[: _MOST_ENTRIES // 2]
