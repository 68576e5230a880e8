"""One daemon per home: held locks count, files do not."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.errors import ConfigError, HomeInUse, StoreUnavailable
from gateway.home_lock import LOOK_SECONDS, Note, claimed, holder, noted

HOLDER = """
import sys
from pathlib import Path
from gateway.home_lock import claimed
with claimed(Path(sys.argv[1]), Path(sys.argv[1]) / "l"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(HomeInUse, match=f"process {holder.pid}"),
            claimed(home, home / "l"),
        ):
            pass
        holder.kill()
        holder.wait()
        with claimed(home, home / "l"):  # the file is still there; nobody holds it
            assert (home / "l").exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_file_with_any_content_is_no_claim(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"\xff999999\n")
    with claimed(tmp_path, tmp_path / "l"):
        pass


def test_home_that_can_not_be_made(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 300)
    with pytest.raises(StoreUnavailable, match="can not be used"), claimed(home, home / "l"):
        pass


def test_a_home_that_is_no_folder_is_a_matter_of_configuration(tmp_path: Path) -> None:
    """78 ends a unit's restarts; what can be passing does not."""
    (tmp_path / "file").write_text("")
    for home, said in (
        (tmp_path / "file", f"the home {tmp_path / 'file'} is no folder"),
        (tmp_path / "file" / "a" / "b", f"{tmp_path / 'file'} is no folder"),
    ):
        with pytest.raises(ConfigError, match=said), claimed(home, home / "l"):
            pass


def test_the_holder_and_its_socket_are_told(tmp_path: Path) -> None:
    lock = tmp_path / "l"
    assert noted(lock) is None
    assert holder(lock) is None
    with claimed(tmp_path, lock, socket=tmp_path / "elsewhere.sock"):
        found = holder(lock)
        assert found == Note(os.getpid(), os.geteuid(), tmp_path / "elsewhere.sock")
    assert holder(lock) is None
    assert noted(lock) == found, "what is written stays, and is no claim"
    with claimed(tmp_path, lock):
        assert holder(lock) == Note(os.getpid(), os.geteuid(), None)


@pytest.mark.parametrize("content", [b"", b"12", b"x\n/a\n", b"-1\n", b"\xff\n", b"1" * 9000])
def test_what_else_stands_in_it_is_no_socket(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "l").write_bytes(content)
    found = noted(tmp_path / "l")
    assert found is None or found.socket is None


def test_a_lock_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "l")
    assert noted(tmp_path / "l") is None
    (tmp_path / "m").symlink_to(tmp_path / "n")
    (tmp_path / "n").write_text("1\n/a\n")
    assert noted(tmp_path / "m") is None


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path) -> None:
    """It was a traceback."""
    most, ever = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, ever))
    try:
        with (
            pytest.raises(StoreUnavailable, match="can not be used"),
            claimed(tmp_path, tmp_path / "l"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, ever))
    with claimed(tmp_path, tmp_path / "l"):
        pass


@pytest.mark.parametrize("kind", ["link", "second name", "pipe"])
def test_a_lock_that_is_another_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    """Root wrote its number over the file that a link led to, and gave it to the home's owner."""
    other, lock = tmp_path / "other", tmp_path / "l"
    other.write_text("somebody else's")
    if kind == "link":
        lock.symlink_to(other)
    elif kind == "second name":
        if os.geteuid() != 0:
            pytest.skip("only root minds it, in a home of somebody else's")
        lock.hardlink_to(other)
        os.chown(tmp_path, 65_534, 65_534)
    else:
        os.mkfifo(lock)
    with pytest.raises(StoreUnavailable, match="can not be used"), claimed(tmp_path, lock):
        pass
    assert other.read_text() == "somebody else's"


def test_who_only_looks_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "l").touch()
    with (tmp_path / "l").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(LOOK_SECONDS / 4, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with claimed(tmp_path, tmp_path / "l"):
            pass
