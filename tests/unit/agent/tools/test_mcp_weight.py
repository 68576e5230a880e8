"""Large messages of servers: what nobody reads is taken out before they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.mcp.weight import (
    LARGE_BYTES,
    MAX_PART_CHARS,
    MAX_PARTS,
    MAX_TOOLS_A_PAGE,
    lightened,
)

WORDS = {"type": "text", "text": "xy"}


def message(result: Any) -> bytes:
    padding = {"a": "x" * LARGE_BYTES}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result, "more": padding}).encode()


def light(result: Any) -> Any:
    data = lightened(message(result))
    assert data is not None
    return json.loads(data)["result"]


@given(st.binary(max_size=300))
def test_small_ones_are_as_they_are(data: bytes) -> None:
    assert lightened(data) is data


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=10))
def test_whatever_a_result_is_it_stays_one(value: Any) -> None:
    assert light(value) == value
    assert light({"content": value, "tools": value})["tools"] == (
        value if not isinstance(value, list) else value[:MAX_TOOLS_A_PAGE]
    )


def test_parts_and_tools_are_counted() -> None:
    parts = light({"content": [WORDS] * 5_000})["content"]
    assert parts[:MAX_PARTS] == [WORDS] * MAX_PARTS
    assert parts[MAX_PARTS:] == [{"type": "text", "text": "[4,800 more parts are left out]"}]
    assert len(light({"tools": [{}] * 5_000})["tools"]) == MAX_TOOLS_A_PAGE


def test_long_words_are_cut_and_it_is_said() -> None:
    (part,) = light({"content": [{"type": "text", "text": "x" * (MAX_PART_CHARS + 5)}]})["content"]
    assert part["text"] == "x" * MAX_PART_CHARS + "\n[5 more characters are left out]"


def test_what_is_said_twice_is_kept_once() -> None:
    rows = {"rows": [1, 2]}
    assert light({"content": [WORDS], "structuredContent": rows}) == {"content": [WORDS]}
    only = light({"content": [], "structuredContent": rows, "isError": True})
    assert only == {"content": [{"type": "text", "text": '{"rows": [1, 2]}'}], "isError": True}


@pytest.mark.parametrize(
    "data",
    [
        b"x" * (LARGE_BYTES + 1),
        b"[" * (LARGE_BYTES + 1),
        b"\xff" * (LARGE_BYTES + 1),
        json.dumps(["x"] * LARGE_BYTES).encode(),
        json.dumps({"id": 1, "method": "sampling/createMessage", "a": "x" * LARGE_BYTES}).encode(),
        json.dumps({"method": "notifications/message", "a": "x" * LARGE_BYTES}).encode(),
    ],
)
def test_what_is_no_answer_is_nothing(data: bytes) -> None:
    assert lightened(data) is None
