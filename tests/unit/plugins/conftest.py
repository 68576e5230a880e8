"""Owns the façade of a daemon for the tests of the host's names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.plugins.manager import PluginManager
from plugins import hermes_compat


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The façade of a daemon."""
    facade = tmp_path / "posthouse" / "hermes"
    facade.mkdir(parents=True)
    monkeypatch.setenv("HERMES_HOME", str(facade))
    hermes_compat.install(facade, PluginManager())
    yield facade
    hermes_compat.uninstall()
