"""Owns the sizes of the rows of the session at hand, so that each row is counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.messages import Row
from agent.model_metadata import count_rows
from agent.sessions import LoadedSession


@dataclass(frozen=True, slots=True)
class _Counted:
    basis: tuple[str, int, int] = ("", 0, 0)
    """Session, its revision, what a picture takes."""
    rows: int = 0
    last_row_id: int = 0
    total_tokens: int = 0
    fresh_tokens: int = 0

    def holds_for(self, rows: Sequence[Row]) -> bool:
        """Does the list begin with what was counted?"""
        if not self.rows:
            return True
        return len(rows) >= self.rows and rows[self.rows - 1].id == self.last_row_id


class RowSums:
    """`agent.model_metadata.count_rows`, in the time that the newest rows take.

    A session only grows at its end as long as its revision stays the same. So what was counted
    still holds if the row that was the last one then is still at its place.
    """

    def __init__(self) -> None:
        self._known = _Counted()

    def __call__(self, loaded: LoadedSession, image_tokens: int) -> tuple[int, int]:
        session, rows = loaded.session, loaded.rows
        basis = (session.id, session.revision, image_tokens)
        known = self._known
        if known.basis != basis or not known.holds_for(rows):
            known = _Counted(basis)
        if known.rows < len(rows):
            total, fresh = count_rows(rows[known.rows :], image_tokens)
            known = _Counted(
                basis,
                len(rows),
                rows[-1].id,
                known.total_tokens + total,
                known.fresh_tokens + fresh,
            )
        self._known = known
        return known.total_tokens, known.fresh_tokens
