"""Owns the proof that every name of the host that plugins of others import is there."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins import hermes_compat
from tests.real_plugins.fetching import RealPlugins

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

HOST = {"agent", "gateway", "hermes_cli", "hermes_constants", "hermes_state", "plugins", "tools"}
HOST |= {"utils"}
SET_UP = {
    "hermes_cli.memory_setup",
    "hermes_cli.secret_prompt",
    "hermes_cli.curses_ui",
    "hermes_cli.tools_config",
}
"""For somebody in front of a terminal; imported inside such commands only."""


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of what it imports from its host."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = node.module
            its_own = module.split(".")[:2] == ["plugins", "memory"] and _is_provider(module, file)
            if module.split(".")[0] in HOST and module not in SET_UP and not its_own:
                yield from ((module, alias.name) for alias in node.names)


def _is_provider(module: str, file: Path) -> bool:
    return module.split(".")[2:3] == [file.parent.name]


def test_every_name_is_there(real_plugins: RealPlugins) -> None:
    files = [
        *real_plugins.memory.rglob("*.py"),
        *(real_plugins.site / "llmslim" / "integrations").glob("hermes*.py"),
    ]
    wanted = {found for file in files for found in _imports(file)}
    assert len(wanted) > 20
    hermes_compat.install()
    try:
        missing = [
            f"{module}.{name}"
            for module, name in sorted(wanted)
            if not hasattr(importlib.import_module(module), name)
        ]
    finally:
        hermes_compat.uninstall()
    assert missing == []
