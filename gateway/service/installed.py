"""Owns what is there: this program's own place, units that are installed, the service manager."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

import agent
import gateway
from agent.errors import PosthouseError
from gateway.service.unit import SERVICE, TOOLS, Layout, home_name_of, program_of, rendered

UNIT_FOLDER = Path("/etc/systemd/system")
MANAGER = Path("/run/systemd/system")
"""Is there where systemd is the first process."""
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
"""What `ProtectHome` keeps from the service."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Which of our units are installed, and whether they are the ones of this version."""

    service: Path | None
    program: Path | None
    """What it starts."""
    outdated: tuple[str, ...] = ()
    """Units that `posthouse service install` would write anew."""


def has_systemd(manager: Path = MANAGER) -> bool:
    """Is systemd in charge of this machine?"""
    return manager.is_dir()


def this_layout(home_name: str = "posthouse") -> Layout:
    """Where the program that runs now lies."""
    ours = Path(str(gateway.__file__)).resolve().parents[1]
    checkout = ours / "systemd"
    shipped = Path(sys.prefix) / "share" / "posthouse" / "systemd"
    return Layout(
        program=Path(sys.executable).with_name("posthouse"),
        python=Path(sys.executable),
        door=Path(str(agent.__file__)).resolve().with_name("tools") / "command_door.py",
        templates=checkout if (checkout / SERVICE).is_file() else shipped,
        home_name=home_name,
    )


def home_of_installed(folder: Path = UNIT_FOLDER) -> str | None:
    """The name of the home of what is installed; None: nothing is.

    Raises:
        PosthouseError: a unit of our name is there that is not like ours.
    """
    text = _text(folder / SERVICE)
    if text is None:
        return None
    name = home_name_of(text)
    if name is None:
        raise PosthouseError(
            f"{folder / SERVICE} names no StateDirectory, so it is not of our making; move it out "
            "of the way, or say which home is meant with --home"
        )
    return name


def look(layout: Layout, folder: Path = UNIT_FOLDER) -> Installed:
    """What stands in the folder of the units. Its home is its own affair."""
    texts = {name: _text(folder / name) for name in (SERVICE, *TOOLS)}
    service = texts[SERVICE]
    if service is None:
        return Installed(None, None)
    layout = replace(layout, home_name=home_name_of(service) or layout.home_name)
    return Installed(
        folder / SERVICE,
        program_of(service),
        outdated=tuple(
            name
            for name, text in texts.items()
            if text is not None and text != rendered_unit(name, layout)
        ),
    )


def rendered_unit(name: str, layout: Layout) -> str:
    """One of the units, for this installation."""
    return rendered((layout.templates / name).read_text(encoding="utf-8"), layout)


def unreadable(layout: Layout) -> list[str]:
    """Why the service's user could not run this program; one line each."""
    needed = [layout.program, layout.python, layout.python.resolve(), layout.door]
    needed += [Path(str(gateway.__file__)), Path(os.__file__), _packages()]
    found = dict.fromkeys(filter(None, map(_hindrance, needed)))
    return list(found)


def not_only_roots(layout: Layout) -> str:
    """Which part of what the tools' unit runs as root others can change; "": none."""
    for path in (layout.python, layout.python.resolve(), layout.door, Path(os.__file__)):
        for part in (path, *path.parents):
            try:
                about = part.stat()
            except OSError as exc:
                return f"{part} can not be looked at ({exc.strerror})"
            if about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return f"{part} can be changed by others than root"
    return ""


def _packages() -> Path:
    return Path(sysconfig.get_paths()["purelib"])


def _hindrance(path: Path) -> str:
    for hidden in _HIDDEN:
        if path.is_relative_to(hidden):
            return f"{path} is in {hidden}, which is closed to services"
    for part in (path, *path.parents):
        try:
            mode = part.stat().st_mode
        except OSError as exc:
            return f"{part}: {exc.strerror}"
        needed = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if not mode & needed:
            return f"{part} is closed to other users (mode {stat.S_IMODE(mode):o})"
    return ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
