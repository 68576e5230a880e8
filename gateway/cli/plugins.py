"""Owns `posthouse plugins`: which plugins there are, and what becomes of one that is loaded."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from agent.clock import SystemClock
from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.cli.output import out, plain, table
from gateway.cli.settings import Settings
from gateway.config.environment import environment, find_home, read_secrets
from gateway.ownership import refuse_as_root
from gateway.plugins.calling import PluginCalls
from gateway.plugins.discovery import Found
from gateway.plugins.loading import how_to_get
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.report import Row, in_words, nobody_is_called_so, row
from gateway.plugins.tools import ready_tools
from gateway.plugins.whereabouts import Places
from gateway.wiring.plugins import PluginHouse
from gateway.wiring.surroundings import Surroundings

NOT_RUNNING = "wanted"
"""The state of a plugin that the next start of the gateway will load."""
REASON_COLUMNS = 70


def run(arguments: argparse.Namespace) -> int:
    """One of the two."""
    env = environment()
    home = find_home(env)
    settings = Settings(arguments.config, home, env)
    running = settings.ask({"op": "plugins"})
    known = {str(r["name"]): r for r in (running or {}).get("plugins", [])}
    if settings.are_broken and running is not None and arguments.action == "list":
        settings.tell()
        _show_list(list(known.values()), [], arguments.json)
        return exits.OK
    if arguments.action == "check":
        refuse_as_root(home, f"plugins check {arguments.name}")
    loaded = settings.needed()
    secrets = read_secrets(env, home.secrets)
    around = Surroundings(home, secrets, env, plugin_sections=loaded.sections)
    house = PluginHouse(loaded.config, around, SystemClock())
    # What plugins print while they are loaded is not our answer.
    with redirect_stdout(sys.stderr), _without_our_log():
        if arguments.action == "list":
            found = asyncio.run(_listed(house, known))
        else:
            checked = asyncio.run(_checked(house, arguments.name))
    if arguments.action == "list":
        _show_list(found, [house.off] if house.off else house.remarks, arguments.json)
        return exits.OK
    _show_one(checked, known.get(checked["name"]), arguments.json)
    return exits.OK if checked["state"] == PluginState.LOADED else exits.FAILED


@contextmanager
def _without_our_log() -> Iterator[None]:
    """What it would say is said in the answer."""
    ours = logging.getLogger("gateway.plugins")
    level = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ours.setLevel(level)


async def _listed(house: PluginHouse, running: dict[str, Row]) -> list[Row]:
    """As the running gateway knows them; without one, what a start would do."""
    records = house.loader().only_noted_all(await house.find())
    house.remarks = nobody_is_called_so(records, house.settings)
    if running:
        return list(running.values())
    rows: list[Row] = []
    for record in records:
        about = row(record)
        if record.state is PluginState.NOT_ENABLED and house.settings.is_selected(record.found):
            about |= {"state": NOT_RUNNING, "reason": house.off or "with the next start"}
        rows.append(about)
    return rows


async def _checked(house: PluginHouse, name: str) -> Row:
    """Load it here, whether it is enabled or not."""
    found = await house.find()
    if house.off:
        raise PosthouseError(house.off)
    noted = PluginManager(house.loader().only_noted_all(found))
    record = noted.record(name)
    if record is None:
        raise PosthouseError(
            f"there is no plugin {plain(name, 60)!r}; `posthouse plugins list` shows what there is"
        )
    wanted = [record.found]
    remarks = await house.set_up(wanted, None, noted)
    loaded = await house.loader().load(record.found)
    about = row(loaded)
    if loaded.collected is not None:
        calls = PluginCalls(SystemClock())
        ready = await ready_tools(loaded.collected.tools, calls, Places(), environment())
        about["remarks"] += ready.left_out
    about["remarks"] += [*remarks, *_not_in_force(house, record, record.found)]
    return about


def _not_in_force(house: PluginHouse, record: PluginRecord, found: Found) -> list[str]:
    if record.state in (PluginState.FAILED, PluginState.UNUSABLE):
        return []
    if record.state in (PluginState.DISABLED, PluginState.OVERRIDDEN):
        return [f"{record.state}: {record.reason}"]
    if not house.settings.is_selected(found):
        return [f"the gateway does not load it; in config.yaml: {how_to_get(found)}"]
    return []


def _show_list(found: list[Row], remarks: list[str], as_json: bool) -> None:
    if as_json:
        out(json.dumps(found, ensure_ascii=False))
        return
    for line in remarks:
        out(plain(line, 500))
    if not found:
        out(
            "no plugins: put one into the folder plugins of the home, or install a package with one"
        )
        return
    cells = [
        (
            plain(r["name"], 40),
            plain(r["version"], 20),
            plain(r["source"]),
            plain(r["state"]),
            plain(", ".join(r["gives"]) if r["gives"] else r["reason"], REASON_COLUMNS),
        )
        for r in found
    ]
    out(table(("NAME", "VERSION", "SOURCE", "STATE", "GIVES, OR WHY NOT"), cells))


def _show_one(about: Row, running: dict[str, Any] | None, as_json: bool) -> None:
    if as_json:
        out(json.dumps({**about, "running": running}, ensure_ascii=False))
        return
    lines = in_words(about).split("\n")
    if running is not None:
        reason = f" ({running['reason']})" if running["reason"] else ""
        lines.append(f"  in the running gateway: {running['state']}{reason}")
    out("\n".join(_safe(line) for line in lines))


def _safe(line: str) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return " " * indent + plain(line, 2000)
