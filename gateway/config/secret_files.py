"""Owns files with one secret each: where one is looked for, what it may be, who may read it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigError

MAX_BYTES = 64 * 1024
"""No token and no key comes near it."""


@dataclass(frozen=True, slots=True)
class SecretFile:
    """Where a secret stands."""

    path: Path
    what: str
    """As it is called in sentences."""
    ours: bool = False
    """Made by us, for its owner only."""
    managed: bool = False
    """By the service manager, which sees to who may read it."""


def secret_file(env: Mapping[str, str], name: str, home_folder: Path | None) -> SecretFile | None:
    """What ``<name>_FILE`` names, else a credential, else the home's; None: there is none.

    Raises:
        ConfigError: nobody can say, for the folder is closed to us.
    """
    if named := env.get(f"{name}_FILE"):
        return SecretFile(Path(named), f"{name}_FILE")
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        credential = SecretFile(Path(folder) / name, f"the credential {name}", managed=True)
        if _is_there(credential):
            return credential
    own = home_folder / name if home_folder else None
    if own is not None and os.path.isfile(own):  # False as well where we may not look
        return SecretFile(own, name, ours=True)
    return None


def read_secret_file(file: SecretFile) -> str | None:
    """What stands in it, without the space around; None: nothing.

    Raises:
        ConfigError: it can not be one, or it can not be read; nothing of it is shown.
    """
    try:
        # Without waiting: somebody may have to write into a pipe first, and nobody does.
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "no file but a pipe or a device"
                raise _unusable(file, f"it is {kind}")
            if file.ours and mode & 0o077:
                # Made with 0600, so anything wider is an accident: said before it is used.
                raise ConfigError(
                    [f"{file.what}: others can read {file.path}; {_closing(file.path)}"]
                )
            data = _all_of(descriptor)
        finally:
            os.close(descriptor)
    except OSError as exc:
        text = "no such file" if exc.errno == errno.ENOENT else exc.strerror or str(exc)
        raise _unusable(file, text) from exc
    if len(data) > MAX_BYTES:
        raise _unusable(file, f"it has more than {MAX_BYTES // 1024} KiB: that is no secret")
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as exc:
        raise _unusable(file, "it is no UTF-8 text") from exc
    if any(not ch.isprintable() and ch not in "\r\n\t" for ch in text):
        raise _unusable(file, "there are characters in it that no secret has")
    return text.replace("\r\n", "\n") or None


def open_to_others(env: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """A line for each secret whose file others can read or write: no reason not to start.

    The service manager's are left out, and what lies on something that is mounted read-only, as
    secrets of a container do: nobody could change them.
    """
    lines: list[str] = []
    for name in names:
        path = env.get(f"{name}_FILE")
        if not path or env.get(name, "").strip():
            continue
        try:
            mode = os.stat(path).st_mode
            if not mode & 0o066 or os.statvfs(path).f_flag & os.ST_RDONLY:
                continue
        except OSError:
            continue  # whoever reads it says so
        can = "read" if mode & 0o044 else "write"
        lines.append(
            f"{name}_FILE: others can {can} {path} (mode {mode & 0o7777:04o}); "
            f"{_closing(Path(path))}"
        )
    return lines


def about_config_file(path: Path, reader: int) -> list[str]:
    """The same for config.yaml: whoever writes it says who may talk, and what may be run.

    ``reader``: the user as whom the gateway reads it.
    """
    try:
        found = path.stat()
    except OSError:
        return []
    lines: list[str] = []
    if found.st_mode & 0o002:
        mode = f"{found.st_mode & 0o7777:04o}"
        lines.append(f"{path}: everybody can write it (mode {mode}); close it: chmod o-w {path}")
    if found.st_uid not in (0, reader):
        lines.append(
            f"{path}: belongs to another user (id {found.st_uid}), who can write anything into it"
        )
    return lines


def _all_of(descriptor: int) -> bytes:
    """Up to a byte more than there may be."""
    data = b""
    while len(data) <= MAX_BYTES and (more := os.read(descriptor, MAX_BYTES + 1 - len(data))):
        data += more
    return data


def _closing(path: Path) -> str:
    return f"close it with: chmod 600 {path}"


def _is_there(file: SecretFile) -> bool:
    try:
        os.stat(file.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise _unusable(file, exc.strerror or str(exc)) from exc
    return True


def _unusable(file: SecretFile, why: str) -> ConfigError:
    return ConfigError([f"{file.what}: {file.path} can not be read: {why}"])
