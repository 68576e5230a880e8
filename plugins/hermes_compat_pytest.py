"""Owns what suites of plugins need that import modules of their host.

``pytest -p plugins.hermes_compat_pytest`` with our folder on ``PYTHONPATH``; nothing else of ours.

The host's names are importable, and each test has a home and a ``HERMES_HOME`` of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins import hermes_compat

_VARIABLES = ("HOME", "HERMES_HOME")
_root = pytest.StashKey[Path]()
_before = pytest.StashKey[dict[str, str | None]]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any module of the suite is imported."""
    root = Path(tempfile.mkdtemp(prefix="plugin-suite-"))
    early_config.stash[_root] = root
    early_config.stash[_before] = {name: os.environ.get(name) for name in _VARIABLES}
    _move_into(root / "while loading")
    hermes_compat.install()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Afterwards everything is as it was."""
    root = config.stash.get(_root, None)
    if root is None:
        return
    hermes_compat.uninstall()
    for name, value in config.stash[_before].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh home for each test."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    yield _move_into(tmp_path_factory.mktemp("home"))
    os.environ.update({name: value for name, value in before.items() if value is not None})


def _move_into(home: Path) -> Path:
    hermes = home / ".hermes"
    hermes.mkdir(parents=True)
    os.environ["HOME"], os.environ["HERMES_HOME"] = str(home), str(hermes)
    return home
