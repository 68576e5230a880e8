"""Owns `posthouse jobs`: what runs at set times, its ledger, and pausing it, here on the server."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agent.counting import counted
from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.cli.output import NOTHING_YET, nothing_yet, out, plain, table
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home
from gateway.config.models import Config
from gateway.home_lock import claimed

_NAME_CHARS = 48
_REASON_CHARS = 60


def run(arguments: argparse.Namespace) -> int:
    """One of them, by the running daemon; without one, on its store."""
    env = environment()
    home = find_home(env)
    request = _request(arguments)
    # A file that somebody is half through with keeps nobody from pausing a job that runs wild.
    settings = Settings(arguments.config, home, env)
    settings.tell()
    answer = settings.ask({"op": "jobs", **request})
    if answer is None and request["action"] == "list" and not home.database.exists():
        return nothing_yet(home.path, [] if arguments.json else None)
    if answer is None:
        answer = _alone(home, settings.or_defaults(), request)
    if "error" in answer:
        raise PosthouseError(str(answer["error"]))
    if arguments.json:
        shown = answer[{"list": "jobs", "runs": "runs"}.get(request["action"], "job")]
        out(json.dumps(shown, ensure_ascii=False))
        return exits.OK
    match request["action"]:
        case "list":
            out(_listing(answer, all_of_them=request["all"]))
        case "runs":
            out(_runs(answer))
        case _:
            out(_changed(answer["job"]))
    return exits.OK


def _request(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.action in (None, "list"):
        return {"action": "list", "all": arguments.all}
    return {"action": arguments.action, "id": arguments.id}


def _alone(home: Home, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    if not home.database.exists():
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import answer_jobs  # noqa: PLC0415

    with claimed(home.path, home.lock):
        return asyncio.run(answer_jobs(home, config, request))


# --- what is printed ----------------------------------------------------------------------------


def _listing(answer: Mapping[str, Any], *, all_of_them: bool) -> str:
    jobs = answer["jobs"]
    remarks = [f"in config.yaml, {plain(line, 300)}" for line in answer.get("remarks", ())]
    if not jobs:
        none = "there are no jobs" + ("" if all_of_them else "; --all shows those that are over")
        return "\n".join([none, *remarks])
    rows = [
        (
            plain(job["id"]),
            str(job["number"]),  # by which /jobs in its chat knows it
            plain(job["name"], _NAME_CHARS),
            plain(job["schedule"], _NAME_CHARS),
            plain(job["next_run"] or job["state"]),
            _how(job["last_run"]),
            plain(job["owner"], 40),
        )
        for job in jobs
    ]
    listed = table(("ID", "NO.", "WHAT", "WHEN", "NEXT RUN", "LAST RUN", "OWNER"), rows)
    return "\n".join([listed, *([""] if remarks else []), *remarks])


def _how(last: Mapping[str, Any] | None) -> str:
    return "" if last is None else f"{last['due'].rpartition(' ')[0]} {last['state']}"


def _runs(answer: Mapping[str, Any]) -> str:
    if not answer["runs"]:
        return "it has not run yet"
    rows = [
        (
            plain(run["due"]),
            run["state"]
            if run["count"] == 1
            else f"{run['state']} ({counted(run['count'], 'time')})",
            plain(run["reason"], _REASON_CHARS),
        )
        for run in answer["runs"]
    ]
    return table(("DUE", "WHAT CAME OF IT", "WHY"), rows)


def _changed(job: Mapping[str, Any]) -> str:
    name = plain(job["name"], _NAME_CHARS)
    match job["state"]:
        case "paused":
            return f"paused: {name}; `posthouse jobs resume {job['id']}` lets it go on"
        case "cancelled":
            return f"cancelled: {name}"
        case _:
            return f"goes on: {name}, next {plain(job['next_run'] or 'never')}"
