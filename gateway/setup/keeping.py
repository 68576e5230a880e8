"""Owns writing what was answered: all of it or nothing, for its owner only, the old file kept."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import PosthouseError
from gateway.config.environment import Home

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Written:
    """What lies where now."""

    config: Path | None
    """None: it stayed as it was."""
    kept_as: Path | None
    """The file that was there before."""
    secrets: tuple[Path, ...]


def check_home(home: Home) -> None:
    """Can it be written at all?

    Raises:
        PosthouseError: no.
    """
    place = home.path
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise PosthouseError(f"{place} is no folder; move it away, or set POSTHOUSE_HOME")
    foreign = place == home.path and os.geteuid() not in (0, place.stat().st_uid)
    if foreign or not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        raise PosthouseError(
            f"{place} can not be written by you ({home.reason}); ask as its owner or as root, or "
            "set POSTHOUSE_HOME to a folder of your own"
        )


def write_all(home: Home, secrets: Mapping[str, str], config: str | None) -> Written:
    """Secrets first, so that no configuration stands without its token. ``config``: None, as is.

    Raises:
        PosthouseError: the folder can not be written; what was there before is there still.
    """
    file = (home.path / "config.yaml").resolve()  # a link leads to where somebody keeps it
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if secrets:
            home.secrets.mkdir(mode=0o700, exist_ok=True)
            home.secrets.chmod(0o700)
        targets = {home.secrets / name: f"{value}\n" for name, value in secrets.items()}
        if config is not None:
            targets[file] = config
        for target in filter(Path.is_dir, targets):  # all else that can fail does so beside them
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(target))
        with _beside(targets) as parts, _undisturbed():
            kept = _put_aside(file) if config is not None else None
            for part, target in parts.items():
                os.replace(part, target)
        _give_to_owner(home, [home.secrets, *targets, *([kept] if kept else [])])
    except OSError as exc:
        where = exc.filename or home.path
        raise PosthouseError(f"{where} can not be written: {exc.strerror}") from exc
    return Written(
        file if config is not None else None, kept, tuple(home.secrets / name for name in secrets)
    )


@contextlib.contextmanager
def _beside(targets: Mapping[Path, str]) -> Iterator[dict[Path, Path]]:
    """Each text on the disk under another name, to be put in place by one step."""
    parts: dict[Path, Path] = {}
    try:
        for target, text in targets.items():
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            parts[part] = target
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        yield parts
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits for a few renamings, so that not one of two files is new."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _put_aside(file: Path) -> Path | None:
    """The old file under a name that is free: an earlier one that was kept stays."""
    if not file.exists():
        return None
    for number in range(1, 1000):
        kept = file.with_name(f"{file.name}.bak{'' if number == 1 else number}")
        try:
            descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with open(descriptor, "wb") as stream:
            stream.write(file.read_bytes())
        return kept
    raise OSError(
        errno.EEXIST, "there are too many kept ones", str(file.with_name(f"{file.name}.bak"))
    )


def _give_to_owner(home: Home, paths: list[Path]) -> None:
    """Root sets up for a daemon that is somebody else."""
    owner = home.path.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        for path in paths:
            if path.exists():
                os.chown(path, owner.st_uid, owner.st_gid)
