"""Arguments of a call against schemas that others have written."""

from __future__ import annotations

from typing import Any

import pytest

from agent.tools.arguments import problem_with


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": True}, "required": True},
        {"properties": {"a": False}, "required": 3},
        {"properties": {"a": {"enum": 3, "type": ["string"]}}, "required": [["a"], {"b": 1}]},
        {"properties": ["a"]},
        {"properties": None, "required": None},
        {"required": "abc"},
    ],
)
def test_a_schema_that_says_nothing_sensible_demands_nothing(schema: dict[str, Any]) -> None:
    assert problem_with({"a": 1}, schema) == ""


def test_what_it_says_sensibly_counts() -> None:
    schema = {"properties": {"a": {"type": "integer", "enum": [1]}}, "required": [3, "a"]}
    assert problem_with({}, schema) == "'a' is missing"
    assert problem_with({"a": "1"}, schema) == "'a' must be of type integer"
    assert problem_with({"a": 2}, schema) == "'a' must be one of 1"
