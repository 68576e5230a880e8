"""One daemon per home: held locks count, files do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import HomeInUse, StoreUnavailable
from gateway.home_lock import claimed

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
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreUnavailable, match="can not be used"),
        claimed(tmp_path / "file" / "home", tmp_path / "file" / "home" / "l"),
    ):
        pass
