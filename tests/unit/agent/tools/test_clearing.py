"""A workspace goes whole, whatever its commands have made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.tools.workspace import Workspaces


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "workspace" / "test-1"
    made.mkdir(parents=True)
    yield made
    os.system(f"rm -rf '{made}'")  # pytest could not clear it away


async def _clear(folder: Path) -> None:
    await Workspaces(folder.parent).clear("test:1")
    assert list(folder.parent.iterdir()) == []


async def test_it_goes_and_what_its_links_lead_to_stays(folder: Path) -> None:
    outside = folder.parent.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    (folder / "a" / "link").symlink_to(outside)
    (folder / "a" / "b" / "link").symlink_to(outside / "kept")
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "a" / "pipe")
    await _clear(folder)
    assert (outside / "kept").read_text() == "x"
    await _clear(folder)  # there is none


async def test_of_a_link_in_its_place_goes_the_link(folder: Path) -> None:
    (folder.parent.parent / "kept").mkdir()
    os.rmdir(folder)
    os.symlink(folder.parent.parent / "kept", folder)
    await _clear(folder)
    assert (folder.parent.parent / "kept").is_dir()


async def test_no_depth_is_too_deep(folder: Path) -> None:
    """It would be forgotten at no start, and no start would come to its end."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("a", dir_fd=at)
        inner = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    await _clear(folder)


async def test_what_was_closed_goes_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some package managers make folders that nothing may be taken out of."""

    def unlink(name: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and os.fstat(dir_fd).st_mode & 0o700 != 0o700:
            raise PermissionError("also where the tests run as root")
        os_unlink(name, dir_fd=dir_fd)

    os_unlink = os.unlink
    monkeypatch.setattr(os, "unlink", unlink)
    for closed in (folder / "a" / "b", folder / "a", folder):
        closed.mkdir(parents=True, exist_ok=True)
        (closed / "file").write_text("x")
    for closed in (folder / "a" / "b", folder / "a", folder):
        closed.chmod(0o500)
    await _clear(folder)
