"""A home of every version: the service takes it over, and everything said is still there."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from agent.exchange.jsonl import read_lines
from tests import golden
from tests.systemd.service import HOME, Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

FOLDER = Path(golden.__file__).parent


async def test_every_database_is_taken_over(service: Service) -> None:
    """Migrated at the start, ready, listed; the next one in the same installation."""
    files = sorted(FOLDER.glob("*.db.gz"))
    assert files
    await service.start()
    chat = service.chat()
    for file in files:
        await service.systemctl("stop", "posthouse.service")
        await service.run("sh", "-c", f"rm -f {HOME}/state.db*")
        database = service.home / "state.db"
        database.write_bytes(gzip.decompress(file.read_bytes()))
        # As root leaves it, who puts a backup in its place.
        await service.run("chown", f"--reference={HOME}", f"{HOME}/state.db")
        await service.systemctl("start", "posthouse.service")
        listed = json.loads(await service.posthouse("sessions", "list", "--json"))
        export = (FOLDER / file.name.replace(".db.gz", ".jsonl")).read_text(encoding="utf-8")
        held = read_lines(io.StringIO(export, newline="\n"))
        tips = {portable.sessions[-1].id for portable in held}
        assert tips <= {row["id"] for row in listed}, file.name
        chat.say(f"after {file.name}")
        await service.answered(chat, f"reply to: after {file.name}")
