"""Owns what was compressed ahead of time and is not in force yet: noun and port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.messages import Entry


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of a compression that nobody has waited for.

    Good for exactly one state of a session: this revision, with the covered row still in its list.
    What stands behind that row by then is simply the end of the new list.
    """

    session_id: str
    revision: int
    covered_row_id: int
    """The newest row that it has seen."""
    entries: tuple[Entry, ...]
    """The new list up to there."""
    tokens: int
    """Estimate of the entries, without system prompt and tools."""
    manifest: dict[str, Any] = field(default_factory=dict)
    """As it is to be stored with the new list."""
    cost: dict[str, Any] = field(default_factory=dict)
    """What the summary calls took; empty: there were none."""
    created_at: float = 0.0
    """Unix seconds; the store sets it."""


class Shelf(Protocol):
    """Where it is kept until it is wanted: at most one for each session.

    Whatever makes another list of the session's rows, or ends it, takes it away in the same
    transaction; so does the split that puts it in force.
    """

    async def save_prepared(self, prepared: Prepared) -> bool:
        """Keep it in the place of any other; False: the conversation has moved on, nothing is kept.

        Kept only if the session is the live tip of its conversation, in that revision, and the
        covered row is an active row of it.

        Raises:
            SessionNotFound: never existed.
            ValueError: as for `agent.store_ports.SessionStore.split`.
        """
        ...

    async def prepared(self, session_id: str) -> Prepared | None:
        """What is kept for a session."""
        ...

    async def discard_prepared(self, session_id: str) -> bool:
        """Throw it away. False: there was nothing."""
        ...

    async def crowded(self, prompt_tokens: int, *, since: float, limit: int = 20) -> Sequence[str]:
        """Conversations whose last answer came since then and was given to so long a prompt.

        The newest first; without those for which something is kept.
        """
        ...
