"""What of a server's list of tools reaches a model: names, caps, schemas that hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.arguments import problem_with
from agent.tools.mcp.nouns import Listing
from agent.tools.mcp.offers import (
    MAX_ALL_CHARS,
    MAX_DESCRIPTION_CHARS,
    MAX_SCHEMA_CHARS,
    MAX_TOOLS,
    as_record,
    from_record,
    listing,
    tool_name,
)

EMPTY = {"type": "object", "properties": {}}


def tool(name: str = "t", schema: Any = EMPTY, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema, **more}


def parameters(schema: Any) -> dict[str, Any]:
    found = listing("s", [tool(schema=schema)])
    assert found.left_out == ()
    return found.offers[0].schema.parameters


def left_out(schema: Any) -> str:
    found = listing("s", [tool(schema=schema)])
    assert found.offers == ()
    return found.left_out[0]


@given(st.text(min_size=1, max_size=200))
def test_every_name_is_one_that_providers_take(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name("some-server", name))


def test_names() -> None:
    assert tool_name("docs", "read_file") == "mcp__docs__read_file"
    # What had to be changed bears a mark of its own: another tool has another name.
    dotted, spaced = tool_name("docs", "read.file"), tool_name("docs", "read file")
    assert dotted.startswith("mcp__docs__read_file_")
    assert dotted != spaced
    long = tool_name("docs", "x" * 100)
    assert len(long) == 64
    assert long != tool_name("docs", "x" * 101)


def test_of_two_with_one_name_the_first_stays_and_it_is_said() -> None:
    found = listing("s", [tool("a", description="one"), tool("a", description="two")])
    assert [o.schema.description for o in found.offers] == ["one"]
    assert found.left_out == ("'a': another one has its name",)


def test_hints_are_the_cautious_ones_unless_the_server_says_otherwise() -> None:
    plain, hinted, odd = listing(
        "s",
        [
            tool("a"),
            tool("b", annotations={"readOnlyHint": True, "openWorldHint": False}),
            tool("c", annotations={"readOnlyHint": "true"}),
        ],
    ).offers
    assert (plain.read_only, plain.destructive, plain.open_world) == (False, True, True)
    assert (hinted.read_only, hinted.open_world) == (True, False)
    assert odd.read_only is False


def test_descriptions_are_capped_and_never_empty() -> None:
    long, none, titled = listing(
        "s", [tool("a", description="x" * 9_000), tool("b"), tool("c", title="Title")]
    ).offers
    assert len(long.schema.description) == MAX_DESCRIPTION_CHARS
    assert none.schema.description == "(the server says nothing about it)"
    assert titled.schema.description == "Title"


def test_a_schema_is_brought_into_the_form_that_providers_take() -> None:
    assert parameters({}) == EMPTY
    assert parameters(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "anyOf": [{"required": ["a"]}],
            "properties": {"a": True, "b": False, "c": {"type": "string"}},
            "required": ["a", "b", "gone", "a"],
        }
    ) == {
        "type": "object",
        "properties": {"a": {}, "c": {"type": "string"}},
        "required": ["a"],
    }
    assert "required" not in parameters({"type": "object", "required": None})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no schema"),
        ({"type": "array"}, "its type is not object"),
        ({"properties": []}, "its properties are no object"),
        ({"properties": {"a b": {}}}, "no name that providers take"),
        ({"properties": {"a": 3}}, "is no schema"),
        ({"required": 5}, "no list of names"),
        ({"properties": {"a": {"enum": ["x" * MAX_SCHEMA_CHARS]}}}, "characters, at most"),
    ],
)
def test_a_schema_that_does_not_hold_leaves_its_tool_out(schema: Any, why: str) -> None:
    assert why in left_out(schema)


def test_a_deep_schema_leaves_its_tool_out() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"properties": {"a": deep}}
    assert "levels deep" in left_out(deep)


def test_what_is_kept_can_be_checked_against_arguments() -> None:
    schema = parameters({"properties": {"a": True, "b": {"type": ["string", "null"]}}})
    assert problem_with({"a": 1, "b": None}, schema) == ""


def test_a_server_has_so_many_tools_and_no_more() -> None:
    found = listing("s", [tool(f"t{n}") for n in range(MAX_TOOLS + 3)])
    assert len(found.offers) == MAX_TOOLS
    assert len(found.left_out) == 3
    big = {"properties": {"a": {"enum": ["x" * (MAX_SCHEMA_CHARS - 200)]}}}
    wide = listing("s", [tool(f"t{n}", big) for n in range(20)])
    assert sum(len(str(o.schema.parameters)) for o in wide.offers) <= MAX_ALL_CHARS
    assert "too long for a model" in wide.left_out[0]


def test_what_is_remembered_comes_back_the_same_whoever_edited_the_rest() -> None:
    found = listing(
        "s",
        [
            tool("b.c", {"properties": {"a": {"type": "string"}}}, description="B"),
            tool("a", annotations={"readOnlyHint": True}),
        ],
    )
    assert from_record("s", as_record(found)) == found
    assert from_record("s", "nonsense") == Listing()
    assert from_record("s", [3, {"tool": 4}, {"tool": "x", "parameters": 1}]) == Listing()
