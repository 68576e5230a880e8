"""Owns the Protocol of the archive: looking at what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.ledger import LedgerReader
from agent.lineages import UsageTotals
from agent.messages import Row
from agent.sessions import Conversation, Hit, SearchScope, Session, SessionInfo


class Archive(LedgerReader, Protocol):
    """Looking at what is stored. Reads only."""

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        """Best first. Any text is a valid query; copies are folded into their originals.

        ``before_id``: who asks is not what is looked for. From this message on only results of
        tools count (a long turn is compressed while it runs); the rest is neither found, nor named
        as newer, nor has it a part in what another one scores. An original's id bounds its copies
        too.
        """
        ...

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        """The originals around a message in its session, in order, itself included.

        Empty if there is no such message.
        """
        ...

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        """Whose a message is."""
        ...

    async def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        """May whoever searches in this scope see this message? False for one that nobody knows."""
        ...

    async def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        """The result of a tool call as it was stored first, whole; the newest, if ids repeat."""
        ...

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        """Newest first."""
        ...

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        """In the order asked; unknown ids are left out."""
        ...

    async def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        """How conversations began: a person's first words there, cut; left out where none are."""
        ...

    async def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        """Ids that begin so, in order; exactly that letter case, nothing in it is a pattern."""
        ...

    async def all_rows(self, session_id: str) -> list[Row]:
        """Every row of a session, replaced ones included, by id."""
        ...

    async def active_rows(self, session_id: str) -> list[Row]:
        """The list as it stands, in order; nothing is repaired.

        Raises:
            SessionNotFound: never existed.
        """
        ...

    async def lineage(self, session_id: str) -> list[Session]:
        """As `agent.store_ports.SessionStore.lineage`: the command line has only this half."""
        ...

    async def usage_totals(self, conversation_id: str) -> UsageTotals:
        """As `agent.lineages.Lineages.usage_totals`, for the same reason."""
        ...
