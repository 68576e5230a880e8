"""Owns `posthouse pair`: who asks to be let in, and letting them in, here on the server."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.cli.output import NOTHING_YET, nothing_yet, out, plain, table, when
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home
from gateway.config.models import Config, plain_id
from gateway.home_lock import claimed

_BOTH_ON = Config.model_validate({"telegram": {"pairing": True}, "discord": {"pairing": True}})

_NOBODY: Mapping[str, Any] = {"requests": [], "paired": [], "locked_until": None}


def run(arguments: argparse.Namespace) -> int:
    """One of the three, by the running daemon; without one, on its store."""
    env = environment()
    home = find_home(env)
    settings = Settings(arguments.config, home, env)
    settings.tell()
    # Whether it is on can not be known then, so nothing is said of it.
    config = _BOTH_ON if settings.are_broken else settings.or_defaults()
    request = _request(arguments)
    answer = settings.ask({"op": "pair", **request})
    if answer is None and request["action"] == "list" and not home.database.exists():
        return nothing_yet(home.path, _NOBODY if arguments.json else None)
    if answer is None:
        answer = _alone(home, config, request)
    if "error" in answer:
        raise PosthouseError(str(answer["error"]))
    match arguments.action:
        case "list" if arguments.json:
            out(json.dumps(answer, ensure_ascii=False))
        case "list":
            out(_listing(answer, is_on=config.telegram.pairing or config.discord.pairing))
        case "approve":
            out(_approved(answer))
        case _:
            out(_revoked(answer, arguments.platform, request["user_id"]))
    return exits.OK


def _request(arguments: argparse.Namespace) -> dict[str, Any]:
    match arguments.action:
        case "approve":
            return {"action": "approve", "code": arguments.code}
        case "revoke":
            user_id = plain_id(arguments.user)
            if user_id is None:
                raise PosthouseError(
                    f"{plain(arguments.user, 60)!r} is no numeric id; `posthouse pair list` shows "
                    "those of everybody who was let in"
                )
            return {"action": "revoke", "platform": arguments.platform, "user_id": user_id}
        case _:
            return {"action": "list"}


def _alone(home: Home, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    if not home.database.exists():
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import answer_pairing  # noqa: PLC0415

    with claimed(home.path, home.lock):
        return asyncio.run(answer_pairing(home, config, request))


# --- what is printed ----------------------------------------------------------------------------


def _listing(answer: Mapping[str, Any], *, is_on: bool) -> str:
    blocks = [
        _table("ASKS SINCE", answer["requests"], "asked_at")
        if answer["requests"]
        else "nobody asks to be let in",
        _table("LET IN", answer["paired"], "approved_at")
        if answer["paired"]
        else "nobody was let in by a code",
    ]
    idle = sorted({p["platform"] for p in answer["paired"] if not p["in_force"]})
    blocks += [f"{name}.pairing is off, so its codes let nobody in" for name in idle]
    if not is_on and not idle:
        blocks.append(
            "pairing is off: set telegram.pairing or discord.pairing to true in config.yaml, then "
            "strangers can ask"
        )
    if answer["locked_until"] is not None:
        blocks.append(_locked(answer["locked_until"]))
    return "\n\n".join(blocks)


def _table(title: str, people: Sequence[Mapping[str, Any]], moment: str) -> str:
    rows = [
        (when(p[moment]), plain(p["platform"]), plain(p["user_id"]), plain(p["name"], 40))
        for p in people
    ]
    return table((title, "PLATFORM", "USER", "NAME (not to be trusted)"), rows)


def _approved(answer: Mapping[str, Any]) -> str:
    person = answer["person"]
    if person is None:
        wrong = "no request has this code, or it has expired; `posthouse pair list` shows who asks"
        until = answer["locked_until"]
        raise PosthouseError(
            wrong
            if until is None
            else _locked(until)
            if answer["outcome"] == "locked"
            else f"{wrong}. {_locked(until)}"
        )
    text = f"let in: {plain(person['platform'])} user {plain(person['user_id'])}"
    text += f" ({plain(person['name'], 40)}); they can write again now"
    if not person["in_force"]:
        text += f"\nbut {person['platform']}.pairing is off: it takes effect when that is on"
    return text


def _revoked(answer: Mapping[str, Any], platform: str, user_id: str) -> str:
    if not answer["revoked"]:
        raise PosthouseError(
            f"{platform} user {user_id} was not let in by a code and does not ask to be; who else "
            "may talk stands in config.yaml"
        )
    return f"taken back: {platform} user {user_id}"


def _locked(until: float) -> str:
    return f"too many wrong codes: none is taken until {when(until)}"
