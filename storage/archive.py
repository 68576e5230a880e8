"""Owns the archive's face: each method is one callable on a reader; for looking only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

from agent.attachments import StoredFile
from agent.census import Census
from agent.ledger import LedgerLine, LedgerScope
from agent.lineages import UsageTotals
from agent.messages import Row
from agent.sessions import Conversation, Hit, SearchScope, Session, SessionInfo
from storage import attachment_rows, ledger, lineages, search, sessions
from storage.census import census

if TYPE_CHECKING:
    from agent.exchange.records import Portable
    from agent.simulation.recording import RowSize

A = TypeVarTuple("A")
T = TypeVar("T")


class Reading(Protocol):
    """A way to read what is committed."""

    async def read(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> T:
        """Run this on a read-only connection's thread, in one read transaction."""
        ...

    async def close(self) -> None:
        """Let go. May be called twice."""
        ...


class SqlArchive:
    """`agent.archive_ports.Archive` over read-only connections."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.index_damage: str | None = None
        """Why the full-text index was no help to a search, if so."""

    async def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        asked = (query, scope, limit, before_id)
        hits, damage = await self._reading.read(search.search_and_tell, *asked)
        self.index_damage = None if damage is None else damage.reason
        return hits

    async def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        return await self._reading.read(search.window, message_id, before, after)

    async def file_row(self, name: str, owner: str | None = None) -> StoredFile | None:
        """`storage.attachments.FileRows.file_row`."""
        return await self._reading.read(attachment_rows.file_row, name, owner)

    async def conversation_of_message(self, message_id: int) -> Conversation | None:
        return await self._reading.read(search.conversation_of_message, message_id)

    async def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        return await self._reading.read(search.in_scope, scope, message_id)

    async def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        return await self._reading.read(search.result_of_call, scope, call_id)

    async def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        return await self._reading.read(sessions.list_sessions, conversation_id, limit)

    async def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        return await self._reading.read(sessions.session_infos, tuple(session_ids))

    async def census(self, now: float, day_began_at: float) -> Census:
        """What waits, and what the day brought."""
        return await self._reading.read(census, now, day_began_at)

    async def openings(self, conversation_ids: Sequence[str]) -> dict[str, str]:
        return await self._reading.read(lineages.openings, tuple(conversation_ids))

    async def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        return await self._reading.read(sessions.session_ids, beginning, limit)

    async def all_rows(self, session_id: str) -> list[Row]:
        return await self._reading.read(search.all_rows, session_id)

    async def active_rows(self, session_id: str) -> list[Row]:
        return await self._reading.read(search.active_rows, session_id)

    async def lineage(self, session_id: str) -> list[Session]:
        return await self._reading.read(sessions.lineage, session_id)

    async def usage_totals(self, conversation_id: str) -> UsageTotals:
        return await self._reading.read(lineages.usage_totals, conversation_id)

    async def ledger_lines(self, scope: LedgerScope) -> list[LedgerLine]:
        return await self._reading.read(ledger.ledger_lines, scope)

    async def compressions(self, scope: LedgerScope) -> int:
        return await self._reading.read(ledger.compressions, scope)

    async def portable(self, session_id: str) -> Portable:
        from storage import exchange_out  # noqa: PLC0415 - only for who exports

        return await self._reading.read(exchange_out.portable, session_id)

    async def row_sizes(self, session_id: str) -> list[RowSize]:
        from storage import sizes  # noqa: PLC0415 - only for who simulates

        return await self._reading.read(sizes.row_sizes, session_id)

    async def close(self) -> None:
        await self._reading.close()
