"""Rows are counted once, and never wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.host.row_sums import RowSums
from agent.messages import Row
from agent.model_metadata import IMAGE_TOKENS, count_rows
from agent.sessions import CompressionState, LoadedSession, Session, SessionPrefix


def row(row_id: int, tokens: int, **fields: Any) -> Row:
    message: Any = {"role": "user", "content": "x"}
    return Row(row_id, "s", row_id, message, 0.0, tokens=tokens, **fields)


def session(rows: Sequence[Row], revision: int = 0, session_id: str = "s") -> LoadedSession:
    stored = Session(
        id=session_id,
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=revision,
        prefix=SessionPrefix("test", "m", ""),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=len(rows),
        anchor=None,
        compression=CompressionState(),
    )
    return LoadedSession(stored, rows)  # type: ignore[arg-type]


class Watched(Sequence[Row]):
    """Rows that count how often one is looked at."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.looked_at = 0

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        found = self._rows[at]
        self.looked_at += 1 if isinstance(found, Row) else len(found)
        return found

    def __iter__(self) -> Iterator[Row]:
        for each in self._rows:
            self.looked_at += 1
            yield each

    def __len__(self) -> int:
        return len(self._rows)


def test_a_longer_list_costs_what_came_behind_it() -> None:
    rows = [row(i, 10) for i in range(1, 1001)]
    sums = RowSums()
    assert sums(session(rows), IMAGE_TOKENS) == (10_000, 10_000)
    more = Watched([*rows, row(1001, 7), row(1002, 5, kind="note")])
    assert sums(session(more), IMAGE_TOKENS) == (10_012, 10_007)
    assert more.looked_at <= 4
    more.looked_at = 0
    assert sums(session(more), IMAGE_TOKENS) == (10_012, 10_007)
    assert more.looked_at <= 2


@pytest.mark.parametrize(
    "changed",
    [
        lambda rows: session(rows[:2]),
        lambda rows: session([replace(rows[0], tokens=1), *rows[1:]], revision=1),
        lambda rows: session([replace(rows[0], tokens=1), *rows[1:]], session_id="other"),
        lambda rows: session([*rows[:2], row(77, 5)]),
        lambda rows: session([row(-1, 5), *rows]),
        lambda rows: session([]),
    ],
)
def test_another_list_is_counted_afresh(changed: Any) -> None:
    rows = [row(1, 10), row(2, 20, origin_id=1), row(3, 30)]
    sums = RowSums()
    sums(session(rows), IMAGE_TOKENS)
    after = changed(rows)
    assert sums(after, IMAGE_TOKENS) == count_rows(after.rows)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.sampled_from([1500, 700]))))
def test_whatever_is_asked_for_in_whatever_order(asked: list[tuple[int, int, int]]) -> None:
    """Lists of one revision are beginnings of one another; another revision has other rows."""
    sums = RowSums()
    for length, revision, image_tokens in asked:
        rows = [
            row(i, i + 100 * revision, origin_id=1 if i % 3 == 0 else None)
            for i in range(1, length + 1)
        ]
        assert sums(session(rows, revision), image_tokens) == count_rows(rows, image_tokens)
