"""Owns the ledger of requests: who asked which model what for, and what it took. Nouns and port.

Everything that a model answered is entered once, whatever became of the answer: kept, thrown away,
or late. An answer that becomes a message is entered in the transaction of that message; any other
in a write of its own, so a crash between an answer and its entry loses at most that entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Purpose = Literal["turn", "summary", "micro", "background", "other"]
"""``turn``: the conversation itself; ``summary``: a compression that somebody waited for or asked
for; ``micro``: micro-compaction; ``background``: a summary made ahead of time; ``other``: side
tasks of plugins."""

BESIDE_TURNS: frozenset[Purpose] = frozenset({"micro", "background"})
"""What nobody waits for: whose conversation it is pays, and was asked whether they may."""


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """One answer of a model that no message of the conversation came from."""

    purpose: Purpose
    model: str
    """Who answered: a fallback under its own name."""
    conversation_id: str | None = None
    """None, or one that nobody knows: it belongs to none."""
    owner: str | None = None
    """Who is charged; None: whose turn runs in the conversation, else whose it is, else nobody.

    What is made beside the turns is never charged to whoever happens to be at work just then."""
    input_tokens: int = 0
    """Without the cached part."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """That part of ``cache_write_tokens`` that is kept for an hour."""
    cache_miss: str = ""


@dataclass(frozen=True, slots=True)
class LedgerScope:
    """Which entries are meant."""

    since: float = -math.inf
    """Unix seconds; included."""
    until: float = math.inf
    """Not included."""
    owner: str | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """Entries of one kind added up."""

    owner: str
    """Who was charged; "": nobody."""
    purpose: str
    model: str
    cache_miss: str
    """Why the prompts were not found in the cache; "": they were, or nothing is known."""
    requests: int
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


class LedgerReader(Protocol):
    """Looking at the ledger."""

    async def ledger_lines(self, scope: LedgerScope) -> Sequence[LedgerLine]:
        """The entries added up by owner, purpose, model and cause of a miss, in that order."""
        ...

    async def compressions(self, scope: LedgerScope) -> int:
        """How often these conversations were compressed in that time; the owner is theirs."""
        ...


class Ledger(LedgerReader, Protocol):
    """The ledger, as those see it who make entries."""

    async def enter_request(self, entry: RequestEntry) -> None:
        """Enter an answer that is not stored as a message. Durable when it returns."""
        ...

    async def first_time(self, owner: str, mark: str) -> bool:
        """Remember the newest thing that an owner was told about money; False: it is that already.

        So that a warning is given once, over restarts as well.
        """
        ...
