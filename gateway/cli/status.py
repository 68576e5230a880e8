"""Owns `posthouse status`: asks the running daemon."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gateway import __version__
from gateway.cli import exits
from gateway.cli.output import out, table
from gateway.config.environment import environment, find_config_file, find_home
from gateway.config.loading import load_config
from gateway.control import ask, socket_path


def run(arguments: argparse.Namespace) -> int:
    """Print what the daemon says of itself."""
    env = environment()
    home = find_home(env)
    config, _ = load_config(find_config_file(arguments.config, home))
    answer = ask(socket_path(config.gateway.control_socket, home.path, env), {"op": "status"})
    if answer is None:
        answer = {
            "home": str(home.path),
            "version": __version__,
            "ready": False,
            "platforms": {},
            "reason": "not running",
        }
    if arguments.json:
        out(json.dumps(answer, ensure_ascii=False))
    else:
        out(_text(answer, home.reason))
    return exits.OK if answer["ready"] else exits.FAILED


def _text(answer: dict[str, Any], reason: str) -> str:
    state = "ready" if answer["ready"] else answer.get("reason") or "starting"
    lines = [f"posthouse {answer['version']}: {state}", f"home: {answer['home']} ({reason})"]
    lines += [f"{k}: {v}" for k, v in answer.get("details", {}).items()]
    platforms = [
        (name, status["state"], status["reason"]) for name, status in answer["platforms"].items()
    ]
    if platforms:
        lines += ["", table(("PLATFORM", "STATE", "REASON"), platforms)]
    if answer.get("reason") == "not running":
        lines.append("start it with `posthouse run`")
    return "\n".join(lines)
