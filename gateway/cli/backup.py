"""Owns `posthouse backup`: copies what is stored, beside a running daemon or without one."""

from __future__ import annotations

import argparse
import json

from agent.clock import SystemClock
from agent.counting import counted
from agent.errors import PosthouseError
from gateway.backups.destination import destination
from gateway.backups.making import Made, dated, make
from gateway.backups.moving_in import is_pending
from gateway.backups.shelf import folder_of, not_allowed, note_elsewhere
from gateway.backups.trees import give_to_owner_of
from gateway.cli import exits
from gateway.cli.output import NOTHING_YET, out, plain
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home

ALONE = """\
Only the database: the files that people sent are not in it. A backup of everything:
posthouse backup FOLDER"""
INDEX_DAMAGE = """\
The search index of the home is damaged ({}); no message is, and the copy's was made anew.
The gateway {}."""


def run(arguments: argparse.Namespace) -> int:
    """Make one, and say what is in it."""
    env = environment()
    home = find_home(env)
    settings = Settings(None, home, env)
    settings.tell()
    try:
        return _run(settings, arguments)
    except PermissionError as exc:
        raise PosthouseError(not_allowed(home, exc)) from exc


def _run(settings: Settings, arguments: argparse.Namespace) -> int:
    home = settings.home
    if is_pending(home.path):
        raise PosthouseError(
            "a restore of this home was cut off; run it again first, or start the gateway, which "
            "finishes it"
        )
    made = _make(home, arguments.destination, SystemClock().now())
    if not made.backup.path.is_relative_to(folder_of(home).resolve()):
        note_elsewhere(home, made.backup)
    looked = made.index_damage is not None and settings.tell_of_index()
    out(json.dumps(made.facts(), ensure_ascii=False) if arguments.json else _told(made, looked))
    return exits.OK


def _make(home: Home, named: str | None, now: float) -> Made:
    # Inside, so that the parser stays instant; the store brings the database.
    from gateway.wiring.backups import store_tools  # noqa: PLC0415

    shelf = folder_of(home)
    if not home.database.exists():
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    where = destination(home, named or str(shelf), dated(now))
    made = make(home, where, store_tools(), now)
    if where.path.is_relative_to(shelf.resolve()):
        give_to_owner_of(home.path, shelf)
    return made


def _told(made: Made, looked: bool) -> str:
    counts = made.counts
    lines = [
        f"written and checked: {plain(str(made.backup.path))}",
        f"{counted(counts['conversations'], 'conversation')}, "
        f"{counted(counts['messages'], 'message')}, "
        f"{made.backup.bytes / 1e6:.1f} MB",
    ]
    if made.alone:
        lines.append(ALONE)
    else:
        lines.append(
            counted(made.attachments, "attachment") + "".join(f", {b}" for b in made.beside)
        )
    if made.index_damage is not None:
        when = (
            "knows, and makes that of the home anew (`posthouse status`)"
            if looked
            else "makes it anew when it starts"
        )
        lines.append(INDEX_DAMAGE.format(plain(made.index_damage), when))
    if made.missing_attachments:
        gone = counted(made.missing_attachments, "attachment was", "attachments were")
        lines.append(f"{gone} gone from the home before")
    if made.left_out:
        some = ", ".join(plain(name, 60) for name in made.left_out[:5])
        lines.append(f"not readable, and so not in it: {some}")
    if not made.alone:
        lines.append("Tokens and keys are not in it. `posthouse restore` puts it back.")
    return "\n".join(lines)
