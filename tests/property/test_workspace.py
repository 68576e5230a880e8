"""Paths in a workspace: whatever is asked for, nothing outside is read, written or named."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.errors import ToolError
from agent.tools.paths import folder_name, parts_of, shown_name
from agent.tools.workspace import Workspaces

PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "..",
            ".",
            "",
            "link",
            "up",
            "out",
            "sub",
            "~",
            "%2e%2e",
            "\u2025",
            "a b",
            "-rf",
        ),
        *("\n", "\x00", "\ud800", "é", "e\u0301", "你", "x" * 256, "...", "hard", "pipe"),
    ]
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=6).map("/".join),
    st.text(max_size=40),
    st.binary(max_size=20).map(lambda b: b.decode("utf-8", "surrogateescape")),
)
SECRET = b"the secret outside"


def trap(root: Path) -> Path:
    """A workspace full of ways out; gives back what lies outside."""
    inside, outside = root / "workspace" / "test-1", root / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (inside / "a").write_bytes(b"inside")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "out").symlink_to(outside)
    (inside / "up").symlink_to("..")
    (inside / "sub" / "up").symlink_to("../..")
    os.link(outside / "secret", inside / "hard")
    os.mkfifo(inside / "pipe")
    return outside


def state(folder: Path) -> dict[str, object]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


@given(PATHS, PATHS)
@example("link", "out/x")
@example("out/secret", "up/x")
@example("sub/up/outside/secret", "a/../../x")
@example("/etc/passwd", "/tmp/x")
@example("hard", "b")
@example("pipe", "b")
@settings(max_examples=150, deadline=None)
def test_nothing_outside_is_touched(path: str, to: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        outside = trap(root)
        before = state(outside)
        siblings = {p.name for p in root.iterdir()}

        async def attack() -> None:
            workspace = Workspaces(root / "workspace").of("test:1")
            for work in (
                lambda: workspace.read(path, 1000),
                lambda: workspace.entries(path),
            ):
                try:
                    found = await work()
                except ToolError as exc:
                    found = [str(exc)]
                    assert str(root) not in found[0]
                assert SECRET not in found
            for change in ("write", "delete", "move"):
                try:
                    seen = await workspace.look(path)
                    if change == "write":
                        await workspace.write(path, b"new", seen)
                        assert await workspace.read(path, 10) == b"new"
                    elif seen is not None and change == "delete":
                        await workspace.delete(path, seen)
                        assert await workspace.look(path) is None
                    elif seen is not None:
                        await workspace.move(path, to, seen)
                        assert await workspace.look(to) is not None
                except ToolError:
                    pass

        asyncio.run(attack())
        assert state(outside) == before
        assert {p.name for p in root.iterdir()} == siblings
        assert [p.name for p in (root / "workspace").iterdir()] == ["test-1"]
        unfinished = [p for p in root.rglob("*") if p.name.endswith(".part")]
        assert unfinished == []


@given(PATHS)
def test_the_parts_of_a_path_lead_down(path: str) -> None:
    try:
        parts = parts_of(path)
    except ToolError:
        return
    assert all(part and part not in (".", "..") and "/" not in part for part in parts)
    assert all(len(part.encode()) <= 255 for part in parts)
    assert "\x00" not in "".join(parts)
    assert parts_of("/".join(parts)) == parts


@given(st.lists(st.text(max_size=30), min_size=2, max_size=2, unique=True))
@example(["telegram:1", "telegram-1"])
@example(["telegram:1", "Telegram:1"])
@example(["a:b", "a:b "])
@example(["group:1", "group.1"])
@example(["a:١", "a:1"])
def test_two_places_have_two_folders(places: list[str]) -> None:
    first, second = map(folder_name, places)
    assert first.lower() != second.lower()
    for name in (first, second):
        assert name.isascii()
        assert len(name) < 100
        assert parts_of(name) == (name,)
        assert not name.startswith(".")


def test_who_has_which_folder() -> None:
    assert folder_name("telegram:111") == "telegram-111"
    assert folder_name("console:local") == "console-local"
    assert folder_name('["telegram","9","-5",null,"111"]').startswith("group.")


@given(st.text(max_size=300))
def test_a_shown_name_is_one_line(name: str) -> None:
    shown = shown_name(name)
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("path", ["a/" * 33, "a\nb", "/a", "..", "a/../b", "\x00", "x" * 256])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ToolError):
        parts_of(path)
