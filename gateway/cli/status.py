"""Owns `posthouse status`: asks the running daemon."""

from __future__ import annotations

import argparse
import json
from typing import Any

from agent.clock import SystemClock
from gateway import __version__
from gateway.cli import exits
from gateway.cli.output import out, plain, table
from gateway.cli.overview_text import lines, state_of
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home
from gateway.control import NotAnswering, RequestFailed

NOT_RUNNING = "not running"
WAITING = "waits for a restart"
"""The detail that names keys and secrets whose new values are not in force."""
_START_SERVICE = """\
start it with `systemctl start posthouse`; `systemctl status posthouse` and `posthouse service logs`
say why it is not"""


def run(arguments: argparse.Namespace) -> int:
    """Print what the daemon says of itself."""
    env = environment()
    home = find_home(env)
    settings = Settings(arguments.config, home, env)
    settings.tell()
    try:
        answer = settings.ask({"op": "status"})
        if answer is not None:
            answer = {**answer, "running": True}
        elif (silence := settings.silence()) is not None:
            answer = {**_silent(home, silence), "running": True}
        else:
            answer = _silent(home, NOT_RUNNING)
    except (NotAnswering, RequestFailed) as exc:
        answer = {**_silent(home, str(exc)), "running": True}
    if arguments.json:
        out(json.dumps(answer, ensure_ascii=False))
    else:
        out(as_text(answer, home, SystemClock().now()))
    return exits.OK if answer["ready"] else exits.FAILED


def how_to_restart(home: Home) -> str:
    """The command; who started another one than our service, only its operator knows."""
    if home.is_services:
        return "`systemctl restart posthouse`, or /restart in a chat (admins)"
    return (
        "end it and say `posthouse run` again; where a service manager looks after it, also "
        "/restart in a chat (admins)"
    )


def _silent(home: Home, reason: str) -> dict[str, Any]:
    """In the place of what a daemon would say."""
    return {
        "home": str(home.path),
        "version": __version__,
        "running": False,
        "ready": False,
        "platforms": {},
        "reason": reason,
    }


def as_text(answer: dict[str, Any], home: Home, now: float) -> str:
    """For people. ``home``: where it was looked for."""
    state = answer.get("reason") or state_of(answer)
    found = [f"posthouse {plain(answer['version'])}: {state}"]
    found.append(f"home: {plain(answer['home'])} ({home.reason})")
    details = answer.get("details", {})
    for name, words in details.items():
        first, *more = [plain(line) for line in str(words).splitlines()] or [""]
        found += [f"{plain(name)}: {first}", *(f"  {line}" for line in more)]
    if WAITING in details:
        found.append(f"to restart it: {how_to_restart(home)}")
    found += [f"{subject}: {words}" for subject, words in lines(answer, now)]
    platforms = [
        (plain(name, 40), status["state"], plain(status["reason"], 200))
        for name, status in answer["platforms"].items()
    ]
    if platforms:
        found += ["", table(("PLATFORM", "STATE", "REASON"), platforms)]
    if answer.get("reason") == NOT_RUNNING:
        found.append(_START_SERVICE if home.is_services else "start it with `posthouse run`")
    return "\n".join(found)
