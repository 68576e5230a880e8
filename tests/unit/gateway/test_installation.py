"""A mixture of packages is refused before it can do harm."""

from __future__ import annotations

import shutil
import subprocess
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


ROOT = Path(__file__).parents[3]
PIP_SAYS = """\
Obtaining file:///here
Collecting aiosqlite==0.22.1 (from posthouse==0.1.0)
  Downloading aiosqlite-0.22.1-py3-none-any.whl (17 kB)
Requirement already satisfied: pip in ./.venv
Collecting idna
Installing collected packages: idna, aiosqlite
Successfully installed aiosqlite-0.22.1 idna-3.15
"""
VENV_OF_NOTHING = """\
#!/bin/sh
echo "$@" >> made.log
case "$*" in *venv*) mkdir -p .venv/bin; printf '#!/bin/sh\\n' > .venv/bin/python;
    chmod +x .venv/bin/python;; *) exit OLD;; esac
"""


def made(folder: Path, *, old: bool) -> subprocess.CompletedProcess[str]:
    """``make install`` with a Python that only says how old it is, and makes empty environments."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    python = folder / "python-of-theirs"
    python.write_text(VENV_OF_NOTHING.replace("OLD", str(int(old))))
    python.chmod(0o755)
    return subprocess.run(
        ["make", "install", f"PYTHON={python}"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip


def test_an_old_python_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = made(tmp_path, old=True)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_environment_that_does_not_work_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    broken = tmp_path / ".venv" / "bin" / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")  # without pip, or of an older Python
    broken.chmod(0o755)
    assert made(tmp_path, old=False).returncode == 0
    assert "-m venv --clear .venv" in (tmp_path / "made.log").read_text()
    (tmp_path / "made.log").unlink()
    (tmp_path / "pyproject.toml").touch()
    assert made(tmp_path, old=False).returncode == 0
    assert not (tmp_path / "made.log").exists(), "one that works is kept"


@pytest.mark.parametrize("fails", [False, True])
def test_an_install_says_where_it_is_and_fails_as_pip_does(tmp_path: Path, fails: bool) -> None:
    """The first takes minutes: it said one line, and then nothing."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "pip.txt").write_text(PIP_SAYS)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *install*) cat pip.txt; exit {int(fails)};; esac\n')
    python.chmod(0o755)
    result = made(tmp_path, old=False)
    assert [line for line in result.stdout.splitlines() if line.startswith("  ")] == [
        "  fetching aiosqlite==0.22.1",
        "  fetching idna",
        "  putting all of them in place ...",
    ]
    assert ("Installed: " in result.stdout) is not fails
    assert (result.returncode != 0) is fails
    assert (tmp_path / ".venv" / ".runtime").exists() is not fails
