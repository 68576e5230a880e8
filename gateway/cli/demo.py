"""Owns `posthouse demo`: a long conversation on a tiny window, in a throw-away home."""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from agent.archive_ports import Archive
from agent.sessions import SessionInfo
from gateway.cli import exits, session_table
from gateway.cli.demo_script import CODE, OPENING, PARTS, RESTART, Part
from gateway.cli.demo_stage import WIDTH, Stage
from gateway.cli.output import out, plain, terminal_width
from gateway.config.environment import Home, Secrets, environment
from gateway.logs import set_up

_HIT = re.compile(
    r"^m(?P<number>\d+) · [^:\n]*:\d\d · (?P<role>\w+): (?P<words>.*?)(?: \(newer .*\))?$",
    re.MULTILINE,
)


def run(arguments: argparse.Namespace) -> int:
    """Play it."""
    set_up(level="ERROR", style="plain", secrets=[], env=environment())
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as folder:
        return asyncio.run(_play(Home(Path(folder), "the demo's own")))


async def _play(home: Home) -> int:
    """All parts, each a run of the daemon on the same home."""
    # Inside: the composition brings the database driver.
    from gateway.wiring.beside import archive  # noqa: PLC0415

    stage = Stage()
    out(OPENING)
    for number, part in enumerate(PARTS):
        if number:
            out(RESTART)
        code = await _run(home, part, stage)
        if stage.left:
            return exits.OK
        if code != exits.OK:
            return exits.FAILED
    async with archive(home) as store:
        found = await epilogue(store, stage.last_answers)
    shown = stage.caught and stage.compressions > stage.caught
    return exits.OK if shown and found else exits.FAILED


async def _run(home: Home, part: Part, stage: Stage) -> int:
    from gateway.wiring.assembling import build_daemon  # noqa: PLC0415 - as above
    from gateway.wiring.beside import archive  # noqa: PLC0415
    from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

    around = Surroundings(home, Secrets(), {}, console=stage, only_console=True)
    daemon = await build_daemon(part.config, around)
    async with archive(home) as store:
        with stage.playing(part, store):
            return await daemon.serve()


async def epilogue(store: Archive, answers: Sequence[str]) -> bool:
    """What became of it all. Was the code found again, by the last answers?"""
    infos = sorted(await store.list_sessions(), key=lambda info: info.started_at)
    found = await _found(store, answers, infos)
    out("")
    out(textwrap.fill(found or f"NOT found: {CODE} is not in the last answer.", WIDTH))
    if found:
        out("It was said long before the last summary; recall looks in what was really said.")
    out("\nThis is the lineage, root first (tokens of the messages alone):\n")
    openings = await store.openings([info.conversation_id for info in infos])
    out(session_table.as_table(infos, openings, width=terminal_width()))
    out("\nNothing was deleted: every message is still in the session in which it was said.")
    out("(this demo's store is deleted now; for your own: posthouse sessions list, then")
    out("posthouse lineage ID)")
    return found is not None


async def _found(
    store: Archive, answers: Sequence[str], infos: Sequence[SessionInfo]
) -> str | None:
    """The hit with the code, as the last answer has it, and where it was said."""
    hits = [hit for answer in answers for hit in _HIT.finditer(answer) if CODE in hit["words"]]
    if not hits:
        return None
    said = min(hits, key=lambda hit: hit["role"] != "user")
    number = int(said["number"])
    row = next(row for row in await store.window(number, before=0, after=0) if row.id == number)
    session = [info.id for info in infos].index(row.session_id) + 1
    return f"Found again: “{plain(said['words'])}” (message m{number}, session {session})"
