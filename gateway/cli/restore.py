"""Owns `posthouse restore`: puts a backup back while no daemon runs."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.clock import SystemClock
from agent.counting import counted
from agent.errors import HomeInUse, PosthouseError
from gateway.backups.choosing import Chosen, choose
from gateway.backups.moving_in import planned_source
from gateway.backups.restoring import Restored, restore
from gateway.backups.shelf import REPLACED, folder_of, not_allowed
from gateway.cli import exits
from gateway.cli.output import out, plain, when
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home
from gateway.home_lock import claimed

BEING_OVER = """\
What was under way when it was made is not taken up: messages that waited then are not answered,
answers that were owed are not sent, for both have most likely happened since."""


@dataclass(frozen=True, slots=True)
class _Forgotten:
    """Who was forgotten since the backup was made, and is in it."""

    people: tuple[str, ...] | None
    """None: the database of today can not be read."""
    stay: bool
    """They are not forgotten again."""

    def lines(self) -> list[str]:
        """For people."""
        if self.people is None:
            return [
                "Who was forgotten since it was made can not be told, for what it replaces can not"
                " be read; `posthouse forget PLATFORM:ID` forgets them again."
            ]
        if not self.people:
            return []
        named = ", ".join(plain(one, 80) for one in self.people)
        what = f"Forgotten since it was made, and in it: {named}."
        if not self.stay:
            return [
                f"{what} The next start forgets them again, before it takes any message"
                " (--with-forgotten: they come back)."
            ]
        return [
            f"{what} They come back. To forget them again:",
            *(f"  posthouse forget {plain(one, 80)}" for one in self.people),
        ]


def run(arguments: argparse.Namespace) -> int:
    """Check it, ask, put it back."""
    env = environment()
    home = find_home(env)
    Settings(None, home, env).tell()
    try:
        return _run(home, arguments)
    except PermissionError as exc:
        raise PosthouseError(not_allowed(home, exc)) from exc


def _run(home: Home, arguments: argparse.Namespace) -> int:
    from gateway.wiring.backups import store_tools  # noqa: PLC0415 - brings the database

    tools = store_tools()
    source = Path(arguments.source or folder_of(home)).expanduser().absolute()
    _refuse_in_home(home, source)
    pending = planned_source(home.path)
    if pending is None or not _is_at(pending, source):
        chosen = choose(source, tools)
        back = _Forgotten(
            tools.would_come_back(chosen.database, home.database) if home.database.exists() else (),
            stay=arguments.with_forgotten,
        )
        if not arguments.yes:
            _ask(home, chosen, back)
    try:
        with claimed(home.path, home.lock):
            if pending is not None and _is_at(pending, source):
                out(f"the restore of {plain(str(pending))} that was cut off is finished")
                return exits.OK
            now, again = SystemClock().now(), not arguments.with_forgotten
            done = restore(home, chosen, tools, now, forget_again=again)
            out(_told(chosen, done, back))
    except HomeInUse as exc:
        raise HomeInUse(
            f"{exc}. A restore needs it stopped: `systemctl stop posthouse` (or end `posthouse "
            "run`), then run this again. Nothing was changed"
        ) from exc
    return exits.OK


def _is_at(backup: Path, source: Path) -> bool:
    return backup == source or backup.is_relative_to(source)


def _refuse_in_home(home: Home, source: Path) -> None:
    """The state of today is no backup of it."""
    there, ours = source.resolve(), home.path.resolve()
    if not there.is_relative_to(ours):
        return
    first = there.relative_to(ours).parts[:1]
    if first == ("backups",) or (first and first[0].startswith(REPLACED)):
        return
    raise PosthouseError(f"{plain(str(source))} is part of the home itself, and no backup")


def _ask(home: Home, chosen: Chosen, back: _Forgotten) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise PosthouseError(
            f"this would put {plain(str(chosen.path))} in the place of what {home.path} holds; "
            "say --yes to do it without being asked"
        )
    described = "\n".join([_described(chosen), *back.lines()])
    sys.stderr.write(f"{described}\nThe gateway must be stopped. Put it back? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise PosthouseError("nothing was changed")


def _described(chosen: Chosen) -> str:
    made = f", made {when(chosen.made_at)}" if chosen.made_at is not None else ""
    counts = chosen.facts.counts
    lines = [
        *(f"passed over: {plain(line)}" for line in chosen.passed_over),
        f"{plain(str(chosen.path))}{made}: {counted(counts['conversations'], 'conversation')}, "
        f"{counted(counts['messages'], 'message')}; it is whole",
    ]
    return "\n".join(lines)


def _told(chosen: Chosen, done: Restored, back: _Forgotten) -> str:
    lines = [_described(chosen), f"put back: {', '.join(done.items)}", BEING_OVER, *back.lines()]
    if any(done.aside.iterdir()):
        lines.append(
            f"What was there is in {done.aside}; `posthouse restore {done.aside}` takes this back. "
            "Delete it when all is well: it holds everything that people have said."
        )
    else:
        done.aside.rmdir()
    lines += [f"{n} stays as it is; that of the backup is beside its database" for n in done.kept]
    if not done.old_was_readable:
        lines.append("Discord messages that came while it was down are not looked for.")
    if chosen.folder is None:
        lines.append("The attachments stay as they were: the source is a database only.")
    lines.append("Start the gateway again.")
    return "\n".join(lines)
