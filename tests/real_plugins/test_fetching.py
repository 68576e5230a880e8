"""Owns the tests of what happens where the package index can not be reached."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_plugins.conftest import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


def _without_an_index(cache: Path, *command: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(cache),
            "POSTHOUSE_TEST_CACHE": str(cache),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_RETRIES": "0",
            "CI": ci,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_nothing_half_done_is_left(tmp_path: Path) -> None:
    done = _without_an_index(tmp_path, "tests.real_plugins.fetching")
    assert done.returncode == 1
    assert "NotFetched: pip install" in done.stderr
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(("ci", "said"), [("true", "1 error"), ("", "1 skipped")])
def test_tests_fail_where_they_must_run_and_say_so_elsewhere(
    tmp_path: Path, ci: str, said: str
) -> None:
    one = ("tests/real_plugins/test_host_names.py", "-k", "every_name")
    done = _without_an_index(tmp_path, "pytest", "-p", "no:cacheprovider", "-q", *one, ci=ci)
    assert said in done.stdout, done.stdout
    assert "plugins of others could not be fetched: pip install" in done.stdout
