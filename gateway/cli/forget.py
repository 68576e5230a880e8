"""Owns `posthouse forget`: erasing all that is held of one person, here on the server."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from agent.counting import counted
from agent.errors import PosthouseError
from gateway.backups.shelf import Backup, kept
from gateway.cli import exits
from gateway.cli.output import out, plain, table, when
from gateway.cli.settings import Settings
from gateway.config.environment import environment, find_home, read_secrets
from gateway.forgetting.office import PERSON
from gateway.home_lock import claimed
from gateway.ownership import refuse_as_root

_NAMES = {
    "messages": "messages, theirs and what was said and done for them",
    "conversations": "conversations of their own",
    "shared": "conversations with others, in which only their part goes",
    "notes": "notes",
    "files": "files",
    "jobs": "reminders and jobs",
    "mail": "of their messages and commands as they came in",
}

_COUNTED = {
    "messages": ("message",),
    "conversations": ("conversation",),
    "shared": ("conversation with others", "conversations with others"),
    "notes": ("note",),
    "files": ("file",),
    "jobs": ("job",),
    "mail": ("message or command as it came in", "messages or commands as they came in"),
}


def run(arguments: argparse.Namespace) -> int:
    """By the running daemon; without one, on its store. Asks first, unless told not to."""
    env = environment()
    home = find_home(env)
    settings = Settings(arguments.config, home, env)
    asked = partial(_asked, settings, env)
    person = arguments.person
    if not PERSON.fullmatch(person):
        raise PosthouseError(
            f"{plain(person, 60)!r} is nobody: people are PLATFORM:ID, such as telegram:123456; "
            "`posthouse pair list` and the log name them"
        )
    held = asked({"action": "survey", "owner": person})["held"]
    settings.tell()
    backups = kept(home)
    if not arguments.yes:
        out(_held(person, held, backups))
        if not any(held.values()):
            return exits.OK
        if not _typed(person):
            raise PosthouseError("nothing was erased")
    answer = asked({"action": "erase", "owner": person})
    if arguments.json:
        where = [str(backup.path) for backup in backups]
        out(json.dumps({"person": person, **answer, "backups": where}, ensure_ascii=False))
    elif "erased" in answer:
        kept_in = _backups(backups, sure=any(answer["erased"].values()))
        plugins = [_by_plugin(*each) for each in answer.get("plugins", {}).items()]
        out("\n".join([f"erased: {_counted(answer['erased'])}", *plugins, *kept_in]))
    else:
        out(
            "\n".join(
                ["the daemon is erasing it; its log says when it is done", *_backups(backups)]
            )
        )
    return exits.OK


def _asked(
    settings: Settings, env: Mapping[str, str], request: Mapping[str, Any]
) -> dict[str, Any]:
    home = settings.home
    answer = settings.ask({"op": "forget", **request})
    if answer is None:
        loaded = settings.needed()  # which plugins keep something of them stands there
        if not home.database.exists():
            raise PosthouseError(f"nothing is stored yet in {home.path}")
        if loaded.config.wants_plugins:
            refuse_as_root(home, f"forget {request['owner']}")
        # Inside, so that the parser stays instant; the store brings the database driver.
        from gateway.wiring.forgetting import answer_forgetting  # noqa: PLC0415
        from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

        secrets = read_secrets(env, home.secrets)
        around = Surroundings(home, secrets, env, plugin_sections=loaded.sections)
        # What plugins print while they are loaded is not our answer.
        with claimed(home.path, home.lock), redirect_stdout(sys.stderr):
            answer = asyncio.run(answer_forgetting(loaded.config, around, request))
    if "error" in answer:
        raise PosthouseError(str(answer["error"]))
    return answer


def _typed(person: str) -> bool:
    """Does whoever sits there mean it?"""
    if sys.stdin is None:
        raise PosthouseError("nobody is there to confirm it; say --yes if you mean it")
    sys.stdout.write(f"\nThis can not be undone. Type {person} to erase it: ")
    sys.stdout.flush()
    return sys.stdin.readline().strip() == person


def _held(person: str, held: Mapping[str, int], backups: list[Backup]) -> str:
    if not any(held.values()):
        return f"nothing is held of {person}"
    rows = [(f"{number:,}", _NAMES[what]) for what, number in held.items() if number]
    lines = [f"held of {person}:", table(("", ""), rows).strip(), *_backups(backups)]
    lines.append("plugins that keep something (in the home's folder hermes) are asked as well")
    return "\n".join(lines)


def _by_plugin(name: str, answer: str) -> str:
    match answer:
        case "erased":
            return f"{name} has erased what it kept"
        case "failed":
            return f"{name} could not erase what it keeps: see the log, then forget them once more"
        case _:
            return f"{name} can not erase one person: look there, and in the home's folder hermes"


def _counted(numbers: Mapping[str, int]) -> str:
    told = (counted(number, *_COUNTED[what]) for what, number in numbers.items() if number)
    return ", ".join(told) or "nothing"


def _backups(backups: list[Backup], *, sure: bool = True) -> list[str]:
    """``sure``: something of them was held here until now."""
    if not backups:
        return []
    named = [f"  {plain(str(b.path), 200)} ({when(b.made_at)})" for b in backups]
    if not sure:
        return [
            "what was held before may be in these backups, until you delete them:",
            *named,
        ]
    return ["these backups still hold it, until you delete them:", *named]
