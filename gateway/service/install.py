"""Owns installing the service: what has to be done (decided first), and doing it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import PosthouseError
from gateway.home_lock import claimed
from gateway.service.unit import (
    CREDENTIALS,
    SERVICE,
    TOOLS,
    UNITS,
    Layout,
    further_credentials,
)

OF_A_RUN = ("posthouse.lock", "control.sock", "tools.sock")
"""What a home holds only while something runs on it."""


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """For root alone; the service's own user gets its home at the first start."""

    path: Path


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A whole file, which is there at once or not at all."""

    path: Path
    text: str
    mode: int
    secret: bool = False
    anew: bool = False
    """It is there, and says something else."""


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """One of ours that is not wanted any more."""

    path: Path


@dataclass(frozen=True, slots=True)
class MoveHome:
    """A home from the time of a fixed user, to where services without one keep theirs."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class CopyHome:
    """An existing home, which stays where it is."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Run:
    """A program of the system's."""

    command: tuple[str, ...]


Step = MakeFolder | WriteFile | RemoveFile | MoveHome | CopyHome | Run


@dataclass(frozen=True, slots=True)
class Places:
    """Where things go; tests have their own."""

    root: Path = Path("/")

    def at(self, path: Path) -> Path:
        """The path, below the root."""
        return self.root / path.relative_to("/")

    @property
    def units(self) -> Path:
        """The folder of the operator's units."""
        return self.root / "etc/systemd/system"

    @property
    def credentials(self) -> Path:
        """The folder of the secrets, a file each."""
        return self.at(CREDENTIALS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator asked for."""

    secrets: Mapping[str, str]
    """To be written into the folder of the secrets, by name."""
    source: Path | None = None
    """A home to begin with."""
    tools: bool = True
    start: bool = False


def install_steps(
    units: Mapping[str, str], layout: Layout, wanted: Wanted, places: Places
) -> list[Step]:
    """What is left to do, in order; what is there already is not done again.

    Raises:
        PosthouseError: a home is to be copied over one that has something in it.
    """
    steps = _home_steps(layout, wanted, places)
    if not places.credentials.is_dir():
        steps.append(MakeFolder(places.credentials))
    for name, value in sorted(wanted.secrets.items()):
        steps += _written(places.credentials / name, value + "\n", 0o600, secret=True)
    before = len(steps)
    for name in UNITS:
        path = places.units / name
        if name in TOOLS and not wanted.tools:
            steps += [RemoveFile(path)] if path.exists() else []
        else:
            steps += _written(path, units[name], 0o644)
    there = os.listdir(places.credentials) if places.credentials.is_dir() else []
    extra = further_credentials({*there, *wanted.secrets})
    drop_in = places.units / f"{SERVICE}.d" / "credentials.conf"
    if extra:
        steps += _written(drop_in, extra, 0o644)
    elif drop_in.exists():
        steps.append(RemoveFile(drop_in))
    if len(steps) > before:
        steps.append(Run(("systemctl", "daemon-reload")))
    steps.append(Run(("systemctl", "--quiet", "enable", SERVICE)))
    if wanted.start:
        if wanted.tools:
            steps.append(Run(("systemctl", "restart", TOOLS[0])))
        steps.append(Run(("systemctl", "restart", SERVICE)))
    return steps


def _home_steps(layout: Layout, wanted: Wanted, places: Places) -> list[Step]:
    home, real = places.at(layout.home), places.at(layout.real_home)
    steps: list[Step] = [] if real.parent.is_dir() else [MakeFolder(real.parent)]
    if home.is_dir() and not home.is_symlink():
        if real.exists():
            raise PosthouseError(
                f"there are two homes, {home} and {real}; put one of them out of the way"
            )
        steps.append(MoveHome(home, real))
    elif not real.is_dir():
        steps.append(MakeFolder(real))
    if wanted.source is not None:
        kept = [] if not real.is_dir() else [n for n in os.listdir(real) if n not in OF_A_RUN]
        if kept or isinstance(steps[-1] if steps else None, MoveHome):
            raise PosthouseError(
                f"{real} has something in it ({', '.join(sorted(kept)[:3]) or home}), so nothing "
                f"is copied over it; without --from it is used as it is"
            )
        steps.append(CopyHome(wanted.source, real))
    return steps


def uninstall_steps(layout: Layout, places: Places, *, purge: bool) -> list[Step]:
    """What takes the service away; with ``purge`` all that it has kept, too."""
    files = [places.units / name for name in UNITS]
    files.append(places.units / f"{SERVICE}.d" / "credentials.conf")
    there = [path for path in files if path.exists()]
    steps: list[Step] = []
    if (places.units / SERVICE).exists():
        steps.append(Run(("systemctl", "--quiet", "disable", "--now", SERVICE)))
    if (places.units / TOOLS[0]).exists():
        steps.append(Run(("systemctl", "--quiet", "stop", TOOLS[0])))
    steps += [RemoveFile(path) for path in there]
    if there:
        steps.append(Run(("systemctl", "daemon-reload")))
    if purge:
        kept = (places.at(layout.home), places.at(layout.real_home), places.credentials)
        steps += [RemoveFile(path) for path in kept if os.path.lexists(path)]
    return steps


def _written(path: Path, text: str, mode: int, *, secret: bool = False) -> list[Step]:
    try:
        if path.read_text(encoding="utf-8") == text and stat.S_IMODE(path.stat().st_mode) == mode:
            return []
    except (OSError, UnicodeDecodeError):
        pass
    return [WriteFile(path, text, mode, secret=secret, anew=path.exists())]


def in_words(step: Step) -> str:
    """What a step does, in one line; never what a secret says."""
    match step:
        case MakeFolder():
            return f"make the folder {step.path} (mode 700)"
        case WriteFile():
            return f"write {step.path}{' anew' if step.anew else ''} (mode {step.mode:o})"
        case RemoveFile():
            return f"remove {step.path}"
        case MoveHome():
            return f"move {step.source} to {step.target}"
        case CopyHome():
            return f"copy {step.source} to {step.target}"
        case Run():
            return " ".join(step.command)


def do(step: Step) -> None:
    """Do it.

    Raises:
        PosthouseError: it can not be done; the text says why.
    """
    try:
        match step:
            case MakeFolder():
                step.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                step.path.chmod(0o700)
            case WriteFile():
                _write(step)
            case RemoveFile():
                _remove(step.path)
            case MoveHome():
                step.source.rename(step.target)
            case CopyHome():
                _copy(step.source, step.target)
            case Run():
                _run(step.command)
    except OSError as exc:
        raise PosthouseError(f"could not {in_words(step)}: {exc.strerror or exc}") from exc


def _write(step: WriteFile) -> None:
    if not step.path.parent.is_dir():
        step.path.parent.mkdir(parents=True)
        step.path.parent.chmod(0o755)  # whatever the umask says: units are for all to read
    unfinished = step.path.with_name(f".{step.path.name}.new")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(step.text)
        file.flush()
        os.fchmod(handle, step.mode)
        os.fsync(handle)
    unfinished.rename(step.path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    path.unlink(missing_ok=True)
    if path.parent.name.endswith(".d") and not os.listdir(path.parent):
        path.parent.rmdir()


def _copy(source: Path, target: Path) -> None:
    # Nobody may write into it meanwhile: half a conversation would be copied.
    with claimed(source, source / "posthouse.lock"):
        shutil.copytree(
            source,
            target,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(*OF_A_RUN, "*.sock"),
        )
    _to_root(target)


def _to_root(folder: Path) -> None:
    """All of one owner: systemd gives a home away when it is not the service's yet."""
    me = os.getuid()
    for parent, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(os.path.join(parent, name), me, -1, follow_symlinks=False)
    folder.chmod(0o700)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise PosthouseError(f"`{' '.join(command)}` failed: {said}")
