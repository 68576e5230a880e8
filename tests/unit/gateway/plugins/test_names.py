"""What may be called how (B105), and that ours are never given away."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import agent.tools
from agent.errors import ConfigError
from gateway.config.loading import parse_config
from gateway.plugins.names import (
    OUR_TOOLS,
    command_name,
    is_engine_name,
    is_folder_name,
    is_plugin_name,
    is_tool_name,
    may_be_chosen,
    module_slug,
)

EVIL = [
    *("../../tmp/evil", "compressor/../x", "", "A B", "/tmp/x", "a/b", "a.b", "ä", "A", "a\n"),
    *("..", ".", "a\x00b", "lcm\u200b", "x" * 65, "~", "%2e%2e", "a\\b"),
]


@pytest.mark.parametrize("name", EVIL)
def test_no_engine_or_provider_is_selected_by_a_path(name: str) -> None:
    assert not may_be_chosen(name)
    assert not is_engine_name(name)


@pytest.mark.parametrize("name", [n for n in EVIL if len(n) < 65])
@pytest.mark.parametrize("key", ["context: {engine: %s}", "memory: {provider: %s}"])
def test_the_configuration_refuses_such_names(key: str, name: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(key % json.dumps(name), "c.yaml")


def test_the_built_in_engine_keeps_its_name() -> None:
    assert may_be_chosen("compressor")
    assert not is_engine_name("compressor")
    assert is_engine_name("hermes-lcm")
    assert not is_engine_name(None)


def test_names_of_plugins_are_plain_words() -> None:
    assert all(map(is_plugin_name, ("hermes-lcm", "My Plugin 2", "a.b", "llm_slim")))
    assert not any(map(is_plugin_name, ("", "a/b", "..", "a..b", ".hidden", "a\x1b[31m", "-x")))
    assert not is_folder_name("__pycache__")


def test_names_of_tools_and_commands() -> None:
    assert is_tool_name("lcm_grep")
    assert not any(map(is_tool_name, ("", "a b", "a.b", "x" * 65, None, 3, "a\n")))
    assert command_name(" /LCM ") == "lcm"
    assert [command_name(n) for n in ("", "/", "a b", "a/b", None, "ä", "//x")] == [None] * 7


def test_module_names_are_identifiers() -> None:
    assert module_slug("cat/my-plug in.2") == "cat__my_plug_in_2"


def test_every_tool_that_we_have_is_known_as_ours() -> None:
    """By the source, so that one that is switched off counts as well."""
    found: set[str] = set()
    for file in Path(agent.tools.__file__ or "").parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ToolSchema":
                found |= {
                    k.value.value
                    for k in node.keywords
                    if k.arg == "name"
                    and isinstance(k.value, ast.Constant)
                    and isinstance(k.value.value, str)
                }
    assert {"recall", "shell"} <= found
    assert found <= OUR_TOOLS
