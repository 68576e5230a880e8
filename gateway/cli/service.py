"""Owns `posthouse service`: install, uninstall, logs."""

from __future__ import annotations

import argparse
import compileall
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.cli.output import out
from gateway.config.environment import SECRET_NAMES, environment, read_secrets
from gateway.service.install import (
    Places,
    RemoveFile,
    Step,
    Wanted,
    WriteFile,
    do,
    in_words,
    install_steps,
    uninstall_steps,
)
from gateway.service.installed import (
    has_systemd,
    home_of_installed,
    not_only_roots,
    rendered_unit,
    this_layout,
    unreadable,
)
from gateway.service.unit import SERVICE, UNITS, Layout, home_name, odd_paths

NO_SYSTEMD = """\
systemd does not run here, so there is no service of it. `posthouse run` under any other supervisor
does the same work: it ends cleanly at SIGTERM; start it again after exit code 75 and after crashes,
and leave it alone after 73 and 78."""
NOT_ROOT = "this changes the system's services: say it as root (`sudo {program} service {action}`)"
ELSEWHERE = """\
the service has a user of its own, and that one could not run this posthouse:
{problems}
Put it where every user can read it, with a Python that every user can run, and install from there:
  git clone REPOSITORY /opt/posthouse
  cd /opt/posthouse && make install PYTHON=/usr/bin/python3
  .venv/bin/posthouse service install"""
NO_TOOLS = """\
note: the shell tool's commands run as part of the service, not in units of their own, because
{problem}, and a part of those units runs as root. Give it to root, then install again."""
BAD_HOME = """\
{home} can not be the service's home: its user is made at each start, and systemd keeps what such
a user owns in /var/lib. Name a folder right there (--home /var/lib/NAME); --from DIR copies one."""


def run(arguments: argparse.Namespace) -> int:
    """Do one of the three."""
    match arguments.action:
        case "install":
            return _install(arguments)
        case "uninstall":
            return _uninstall(arguments)
        case _:
            return _logs(arguments)


def _install(arguments: argparse.Namespace) -> int:
    layout = this_layout(_wanted_home(arguments.home))
    _check(arguments, "install", layout.program)
    if problems := unreadable(layout):
        raise PosthouseError(ELSEWHERE.format(problems="\n".join(f"  {p}" for p in problems)))
    if odd := odd_paths(layout):
        raise PosthouseError(f"{odd[0]}: such a path can not stand in a unit file; move it")
    problem = not_only_roots(layout)
    wanted = Wanted(
        secrets=_secrets(environment()) if arguments.import_secrets else {},
        source=None if arguments.source is None else Path(arguments.source).expanduser().resolve(),
        tools=not problem,
        start=arguments.now,
    )
    if wanted.source is not None and not wanted.source.is_dir():
        raise PosthouseError(f"--from: there is no folder {wanted.source}")
    units = {name: rendered_unit(name, layout) for name in UNITS}
    places = Places()
    steps = install_steps(units, layout, wanted, places)
    _do(steps, dry_run=arguments.dry_run)
    if arguments.dry_run:
        return exits.OK
    _compile(layout)
    if problem:
        out(NO_TOOLS.format(problem=problem))
    changed = any(isinstance(s, WriteFile | RemoveFile) for s in steps)
    out(_next(layout, places, wanted.source, changed=changed, started=arguments.now))
    return exits.OK


def _uninstall(arguments: argparse.Namespace) -> int:
    layout = this_layout(_wanted_home(arguments.home))
    _check(arguments, "uninstall", layout.program)
    places = Places()
    steps = uninstall_steps(layout, places, purge=arguments.purge)
    if arguments.purge and not arguments.dry_run and not arguments.yes and not _is_sure(layout):
        out("nothing was changed")
        return exits.FAILED
    _do(steps, dry_run=arguments.dry_run)
    if not steps:
        out("nothing of it is installed")
    if not arguments.purge:
        kept = [p for p in (layout.real_home, places.credentials) if p.exists()]
        out("".join(f"kept: {path}\n" for path in kept).rstrip() or "there are no data of it")
    return exits.OK


def _is_sure(layout: Layout) -> bool:
    out(f"This deletes every conversation in {layout.home}, and the secrets in /etc/posthouse.")
    if sys.stdin is None or not sys.stdin.isatty():
        out("Nobody is there to confirm it; say --yes if you mean it.")
        return False
    sys.stdout.write('Type "delete" to go on: ')
    sys.stdout.flush()
    return sys.stdin.readline().strip() == "delete"


def _logs(arguments: argparse.Namespace) -> int:
    _needs_systemd()
    command = ["journalctl", "--unit", SERVICE, "--unit", "posthouse-tools@*"]
    command += ["--lines", str(arguments.lines)]
    if arguments.follow:
        command.append("--follow")
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        raise PosthouseError(f"journalctl can not be run: {exc.strerror}") from exc


def _check(arguments: argparse.Namespace, action: str, program: Path) -> None:
    if arguments.dry_run:
        return
    _needs_systemd()
    if os.geteuid() != 0:
        raise PosthouseError(NOT_ROOT.format(program=program, action=action))


def _needs_systemd() -> None:
    if not has_systemd():
        raise PosthouseError(NO_SYSTEMD)


def _wanted_home(named: str | None) -> str:
    """What is named, else the home of what is installed: an update must not begin a new one."""
    if named is None:
        return home_of_installed() or "posthouse"
    name = home_name(Path(named))
    if name is None:
        raise PosthouseError(BAD_HOME.format(home=named))
    return name


def _secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Those of this environment, by their names; a home's own come along with it (``--from``)."""
    return {name: value for name, value in read_secrets(env).by_name().items() if value}


def _do(steps: list[Step], *, dry_run: bool) -> None:
    for step in steps:
        out(("would " if dry_run else "") + in_words(step))
        if not dry_run:
            do(step)


def _compile(layout: Layout) -> None:
    """What the service may not write itself, and would have to compile again at each start."""
    ours = layout.door.parents[2]
    for package in ("agent", "storage", "gateway", "plugins"):
        compileall.compile_dir(str(ours / package), quiet=2)
        # Its user has to read it; our other commands leave theirs to root (`keep_to_the_owner`).
        for folder in (ours / package).rglob("__pycache__"):
            folder.chmod(0o755)
            for compiled in folder.glob("*.pyc"):
                compiled.chmod(0o644)


def _next(
    layout: Layout, places: Places, source: Path | None, *, changed: bool, started: bool
) -> str:
    lines = ["", "posthouse is installed." if changed else "posthouse was installed already."]
    if source is not None:
        lines.append(f"{source} is as it was: no gateway may run there any more; delete it later.")
    folders = places.credentials, places.at(layout.real_home) / "secrets"  # ADR 66
    missing = [n for n in SECRET_NAMES[:3] if not any((f / n).exists() for f in folders)]
    if missing:
        lines.append(
            f"Secrets: one file each in {places.credentials}; not there: {', '.join(missing)} "
            "(what is not used needs none)"
        )
    config = places.at(layout.home) / "config.yaml"
    if not config.exists():
        lines.append(f"Settings: {config}; without that file the defaults hold.")
    if not started:
        lines.append(f"Start: systemctl restart {SERVICE}")
    lines.append("Look: systemctl status posthouse · posthouse status · posthouse service logs -f")
    return "\n".join(lines)
