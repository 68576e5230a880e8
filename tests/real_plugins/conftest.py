"""Owns the environment of plugins of others: fetched, a home with them, a clean process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real_plugins.fetching import NotFetched, RealPlugins, fetched

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real_plugins() -> RealPlugins:
    """Those from the package index; where it can not be reached, CI fails and others are told."""
    try:
        return fetched()
    except NotFetched as exc:
        why = f"plugins of others could not be fetched: {exc}"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(why)
        pytest.skip(why)


@dataclass(frozen=True, slots=True)
class OtherPeoples:
    """A home in which plugins of others lie."""

    home: Path
    environment: dict[str, str]

    def loaded(self, *names: str) -> dict[str, dict[str, Any]]:
        """What became of each, by its name."""
        done = self.run([sys.executable, "-m", "tests.real_plugins.driver", str(self.home), *names])
        assert done.returncode == 0, done.stderr[-4000:]
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return dict(zip(names, rows, strict=True))

    def talked(self) -> dict[str, Any]:
        """What came of a whole conversation with a memory provider."""
        done = self.run([sys.executable, "-m", "tests.real_plugins.talking", str(self.home)])
        assert done.returncode == 0, done.stderr[-4000:]
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def posthouse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command, as a person gives it."""
        return self.run([sys.executable, "-m", "gateway.cli.main", *arguments])

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A process with this home, and the plugins on its path."""
        return subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def other_peoples(real_plugins: RealPlugins, tmp_path: Path) -> OtherPeoples:
    """Providers are copied into the home, packages are on the path; no key of anybody is set."""
    home = tmp_path / "home"
    shutil.copytree(real_plugins.memory, home / "plugins")
    return OtherPeoples(
        home,
        {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "POSTHOUSE_HOME": str(home),
            "PYTHONPATH": str(real_plugins.site),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
