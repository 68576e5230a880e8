"""Owns what the unit files say: the templates in `systemd/`, with an installation's paths (pure).

The templates are valid unit files by themselves, for a checkout in /opt/posthouse.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from gateway.config.environment import SECRET_NAMES

SERVICE = "posthouse.service"
TOOLS = ("posthouse-tools.socket", "posthouse-tools@.service")
"""Commands of the shell tool, in units of their own."""
UNITS = (SERVICE, *TOOLS)
CREDENTIALS = Path("/etc/posthouse")
STATE = Path("/var/lib")
_PLAIN = re.compile(r"/[\w./+@~-]*\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z][\w-]{0,30}\Z", re.ASCII)
_SECRET = re.compile(r"[A-Z][A-Z0-9_]{1,99}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where this installation lies."""

    program: Path
    """The command `posthouse`."""
    python: Path
    door: Path
    """`agent/tools/command_door.py`."""
    templates: Path
    """The folder of the unit files as they are shipped."""
    home_name: str = "posthouse"
    """Of its folder in /var/lib."""

    @property
    def home(self) -> Path:
        """As the service and everybody else sees it."""
        return STATE / self.home_name

    @property
    def real_home(self) -> Path:
        """Where it really is: in a folder that only root and the service enter."""
        return STATE / "private" / self.home_name


def home_name(folder: Path) -> str | None:
    """The name of a folder that can be a service's home; None: this one can not."""
    if folder.parent not in (STATE, STATE / "private") or not _NAME.match(folder.name):
        return None
    return None if folder.name == "private" else folder.name


def odd_paths(layout: Layout) -> list[str]:
    """Paths that can not stand in a unit file as they are."""
    named = (layout.program, layout.python, layout.door, layout.templates)
    return [str(path) for path in named if not _PLAIN.match(str(path))]


def rendered(template: str, layout: Layout) -> str:
    """A template with the paths of this installation."""
    real, home = str(layout.real_home), str(layout.home)
    put = {
        "file:///opt/posthouse/systemd": f"file://{quote(str(layout.templates))}",
        "/opt/posthouse/.venv/bin/posthouse": str(layout.program),
        "/opt/posthouse/.venv/bin/python": str(layout.python),
        "/opt/posthouse/agent/tools/command_door.py": str(layout.door),
        "/var/lib/private/posthouse": real,
        "/var/lib/posthouse": home,
        "StateDirectory=posthouse": f"StateDirectory={layout.home_name}",
    }
    found = re.compile("|".join(re.escape(old) + r"(?![\w-])" for old in put))
    return found.sub(lambda match: put[match[0]], template)


def further_credentials(names: Collection[str]) -> str:
    """A drop-in for secrets that the unit file does not know, of servers of tools, say."""
    more = sorted(n for n in names if _SECRET.match(n) and n not in SECRET_NAMES)
    if not more:
        return ""
    lines = ["# `posthouse service install` writes this: one secret for each file in the folder."]
    lines.append("[Service]")
    for name in more:
        lines += [f"LoadCredential={name}:{CREDENTIALS / name}", f"SetCredential={name}:\\x20"]
    return "\n".join(lines) + "\n"


def home_name_of(unit: str) -> str | None:
    """The name of the home that an installed unit file says; None: none that is like ours."""
    found = re.search(r"(?m)^StateDirectory=(\S+)$", unit)
    return home_name(STATE / found[1]) if found else None


def program_of(unit: str) -> Path | None:
    """The program that an installed unit file starts."""
    found = re.search(r"(?m)^ExecStart=(\S+)", unit)
    return Path(found[1]) if found else None
