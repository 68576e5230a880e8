"""A mixture of packages is refused before it can do harm."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from agent.errors import ConfigError
from gateway.installation import check_installation


def package(name: str, folder: Path) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(folder / name / "__init__.py")
    return module


def test_this_installation_is_whole() -> None:
    check_installation()


def test_packages_from_two_places(tmp_path: Path) -> None:
    mixed = (package("agent", tmp_path / "theirs"), package("gateway", tmp_path / "ours"))
    with pytest.raises(ConfigError, match="different places"):
        check_installation(mixed)


def test_the_neighbour_with_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "hermes_agent-0.19.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.19.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="venv of its own"):
        check_installation()
