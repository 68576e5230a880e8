"""Owns `posthouse status`: asks the running daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.clock import SystemClock
from agent.errors import ConfigError
from gateway import __version__
from gateway.cli import exits
from gateway.cli.output import out, plain, table
from gateway.cli.overview_text import lines, state_of
from gateway.config.environment import Home, environment, find_config_file, find_home
from gateway.config.loading import load_config
from gateway.control import ANSWER_SECONDS, NotAnswering, RequestFailed, ask, socket_path

NOT_RUNNING = "not running"
_START_SERVICE = """\
start it with `systemctl start posthouse`; `systemctl status posthouse` and `posthouse service logs`
say why it is not"""


def run(arguments: argparse.Namespace) -> int:
    """Print what the daemon says of itself."""
    env = environment()
    home = find_home(env)
    try:
        answer = ask_daemon(home, arguments.config, env, {"op": "status"})
        answer = _silent(home, NOT_RUNNING) if answer is None else {**answer, "running": True}
    except (NotAnswering, RequestFailed) as exc:
        answer = {**_silent(home, str(exc)), "running": True}
    if arguments.json:
        out(json.dumps(answer, ensure_ascii=False))
    else:
        out(as_text(answer, home, SystemClock().now()))
    return exits.OK if answer["ready"] else exits.FAILED


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


def ask_daemon(
    home: Home,
    config_file: str | None,
    env: Mapping[str, str],
    request: Mapping[str, Any],
    *,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, Any] | None:
    """What the daemon of this home answers; None: it does not run.

    A configuration with errors keeps nobody from asking a daemon that runs with the one before.

    Raises:
        ConfigError: it has errors, and no daemon listens where one usually does.
        NotAnswering: it runs, and says nothing.
        RequestFailed: it runs, and could not.
    """
    try:
        config, _ = load_config(find_config_file(config_file, home))
    except ConfigError:
        answer = ask(_socket(None, home, env), request, seconds=seconds)
        if answer is None:
            raise
        return answer
    configured = config.gateway.control_socket
    answer = ask(_socket(configured, home, env), request, seconds=seconds)
    if answer is None and configured is not None:  # the daemon may be older than this key
        answer = ask(_socket(None, home, env), request, seconds=seconds)
    return answer


def as_text(answer: dict[str, Any], home: Home, now: float) -> str:
    """For people. ``home``: where it was looked for."""
    state = answer.get("reason") or state_of(answer)
    found = [f"posthouse {plain(answer['version'])}: {state}"]
    found.append(f"home: {plain(answer['home'])} ({home.reason})")
    found += [f"{plain(k)}: {plain(v)}" for k, v in answer.get("details", {}).items()]
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


def _socket(configured: str | None, home: Home, env: Mapping[str, str]) -> Path:
    return socket_path(configured, home.path, env)
