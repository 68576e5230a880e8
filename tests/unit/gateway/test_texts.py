"""What people read: one tone, no command that does not exist, each thing said in one place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands import registry

ROOT = Path(__file__).parents[3]
FILES = sorted(
    {
        ROOT / "agent/verdicts.py",
        ROOT / "gateway/texts.py",
        *(ROOT / "gateway").rglob("*_text.py"),
        *(ROOT / "gateway/commands").glob("*.py"),
    }
)
SPEC = (
    "stop", "restart", "new", "status", "context", "micro", "compress", "lineage", "uncompress",
    "branch", "retry", "undo", "title", "sessions", "resume", "usage", "help", "whoami", "approve",
    "deny", "memory", "forget", "remind", "jobs",
)  # fmt: skip
NOT_BUILT: tuple[str, ...] = ()
COMMAND = re.compile(r"(?<![\w/.:)}])/([a-z]{2,})\b(?![/.]\w)")
NO_COMMAND = ("etc",)


def said(file: Path) -> Iterator[str]:
    """Every text in a module but its docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if node not in documents and " " in node.value.strip():
            yield node.value


each = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)


@each
def test_every_command_that_is_named_exists(file: Path) -> None:
    named = {name for text in said(file) for name in COMMAND.findall(text)}
    assert named - set(NO_COMMAND) <= set(registry.COMMANDS)


@each
def test_one_tone(file: Path) -> None:
    for text in said(file):
        assert not re.search(r"\w  \w", text), text
        assert not re.search(r"n't\b|\bcannot\b|!|\bplease\s+please\b|\bPlease note\b", text), text
        assert not re.search(r"\b(error|exception|traceback|null|None)\b", text), text
        assert not re.search(r" (,|\.|;|:)(\s|$)", text), text
        assert not re.search(r"\d(MB|kB|%|s)\b", text), text


def test_nothing_is_said_twice() -> None:
    whole = Counter(
        text
        for file in FILES
        for text in said(file)
        if text[0].isupper() and text.endswith((".", ")"))
    )
    assert [text for text, count in whole.items() if count > 1] == []


def test_the_commands_are_those_of_the_specification() -> None:
    assert set(registry.COMMANDS) == set(SPEC)
    assert not set(NOT_BUILT) & {*registry.COMMANDS, *registry.ALIASES}
