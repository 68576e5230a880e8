"""Owns small disks of their own for tests: they get full, or turn read-only, as real ones do."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk with so much room; the test is skipped where none can be mounted."""
    _mount(folder, "-t", "tmpfs", "-o", f"size={megabytes}m", "none")
    try:
        yield folder
    finally:
        _unmount(folder)


@contextmanager
def failing_disk(folder: Path) -> Iterator[Path]:
    """A disk that turns read-only at its first error, which `fail` makes."""
    image = folder.with_name(f"{folder.name}.img")
    image.write_bytes(bytes(24 * 1024 * 1024))
    made = subprocess.run(
        ["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("no ext4 can be made here")
    _mount(folder, "-o", "loop,errors=remount-ro", str(image))
    try:
        yield folder
    finally:
        _unmount(folder)


def fail(disk: Path) -> None:
    """From now on it can only be read."""
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(disk)], capture_output=True, text=True, check=True
    ).stdout.strip()
    trigger = Path("/sys/fs/ext4") / Path(source).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip("this kernel makes no errors on demand")
    trigger.write_text("a test")


def fill(disk: Path, *, but: int = 0) -> Path:
    """Leave no room but so many bytes; the file that fills it, to be deleted."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65_536))
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    if but:
        os.truncate(filler, max(0, filler.stat().st_size - but))
    return filler


def _mount(folder: Path, *how: str) -> None:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *how, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no disk of its own can be mounted here: {done.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
