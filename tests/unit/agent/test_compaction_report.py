"""What is told of a compression: which one counts, what was kept to the character."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from agent.compaction.plan.report import last_compression, read_manifest, verbatim_rows
from agent.messages import Message, Row
from agent.sessions import CompressionState, Session, SessionPrefix

PREFIX = SessionPrefix("console", "model-1", "be kind")


def session(number: int, **fields: Any) -> Session:
    made = Session(
        id=f"s_{number}",
        conversation_id="c_1",
        parent_session_id=f"s_{number - 1}" if number > 1 else None,
        link="continuation" if number > 1 else None,
        revision=0,
        prefix=PREFIX,
        title=None,
        started_at=1000.0 * number,
        ended_at=None,
        end_reason=None,
        message_count=1,
        anchor=None,
        compression=CompressionState(),
    )
    return replace(made, **fields)


FIRST, SECOND = {"mode": "summary", "pruned": 1}, {"mode": "summary", "pruned": 2}


def found(*chain: Session, of: str | None = None) -> tuple[int, float | None] | None:
    last = last_compression(chain, of or chain[-1].id)
    return None if last is None else (last.pruned, last.at)


def test_the_newest_counts() -> None:
    chain = (
        session(1, end_reason="compression"),
        session(2, end_reason="compression", manifest=FIRST),
        session(3, manifest=SECOND),
    )
    assert found(*chain) == (2, 3000.0)
    assert found(*chain, of="s_2") == (1, 2000.0)
    assert found(*chain, of="s_1") is None
    assert found(*chain, of="s_9") is None
    assert found(session(1)) is None


def test_a_switch_of_settings_hides_it_not_and_an_undoing_does() -> None:
    root = session(1, end_reason="compression")
    switched = (root, session(2, end_reason="switch", manifest=FIRST), session(3))
    assert found(*switched) == (1, 2000.0)
    undone = (root, session(2, end_reason="uncompress", manifest=FIRST), session(3))
    assert found(*undone) is None


def test_the_time_is_the_manifests_or_that_of_the_split() -> None:
    """In place there was no split, and the session's start says nothing."""
    assert found(session(1, manifest={**FIRST, "at": 77})) == (1, 77.0)
    assert found(session(1, manifest=FIRST)) == (1, None)
    assert found(session(1, end_reason="compression"), session(2, manifest=FIRST)) == (1, 2000.0)
    assert found(session(1, end_reason="switch"), session(2, manifest=FIRST)) == (1, None)


def test_a_session_that_is_its_own_ancestor_ends_the_search() -> None:
    """No store holds that; a search that never ends would hold the loop."""
    assert found(session(1, parent_session_id="s_1", end_reason="switch")) is None
    ring = (session(1, parent_session_id="s_2", end_reason="switch"), session(2))
    assert found(*ring) is None


@pytest.mark.parametrize("calls", [0, None, "3", -1])
def test_a_cost_without_calls_is_none(calls: object) -> None:
    assert read_manifest({"cost": {"calls": calls, "input_tokens": 5}}).cost is None


def row(number: int, text: str, **fields: Any) -> Row:
    message = cast(Message, {"role": "user", "content": text})
    return Row(number, "s_1", number, message, 0.0, **fields)


@pytest.mark.parametrize(
    "number", [float("inf"), float("-inf"), float("nan"), 10**400, -(10**400), "1", None]
)
def test_what_is_no_number_is_none(number: object) -> None:
    """Whoever wrote the manifest: it can be told, and its cost reckoned."""
    cost = {"calls": 1, "seconds": number, "input_tokens": number}
    report = read_manifest({"at": number, "cost": cost}, at=7.0)
    assert report.at == 7.0
    assert report.cost is not None
    assert report.cost.seconds == 0.0
    assert float(report.cost.input_tokens) >= 0


def test_only_what_says_the_same_is_verbatim() -> None:
    before = [row(1, "a"), row(2, "b"), row(3, "c", origin_id=99), row(4, "old", kind="summary")]
    after = [
        row(11, "new summary", kind="summary"),
        row(12, "b", origin_id=2),
        row(13, "c", origin_id=99),
        row(14, "a, shortened", origin_id=1),
        row(15, "a", origin_id=1, kind="stub"),
        row(16, "came since"),
    ]
    assert verbatim_rows(before, after) == 2
    assert verbatim_rows(before, before) == 3
    assert verbatim_rows([], after) == 0
