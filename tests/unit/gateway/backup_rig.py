"""Owns a home with something of everything, for the tests of backups."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from agent.clock import RandomIds, SystemClock
from gateway.backups.choosing import choose
from gateway.backups.destination import destination
from gateway.backups.making import Made, dated, make
from gateway.backups.restoring import Restored, restore
from gateway.config.environment import Home
from gateway.home_lock import claimed
from gateway.wiring.backups import store_tools
from gateway.wiring.kept_files import kept_files
from storage.sqlite import open_store
from tests.contract.store_suite import OWNER, said, talk

NOW = 1_800_000_000.0
TOOLS = store_tools()


def new_home(folder: Path) -> Home:
    """Empty."""
    (folder / "home").mkdir(mode=0o700)
    return Home(folder / "home", "a test")


async def filled(home: Home, word: str = "swordfish") -> str:
    """A conversation, a file, things of plugins, settings; the file's name."""
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    await talk(store, said(word))
    file = await kept_files(home, store).keep(
        b"bytes of " + word.encode(), owner=OWNER, file_name="a.txt", media_type="text/plain"
    )
    await store.close()
    (home.path / "config.yaml").write_text("timezone: Europe/Berlin\n")
    for folder in ("workspace/me", "hermes", "plugins/mine", "secrets"):
        (home.path / folder).mkdir(parents=True, exist_ok=True)
    (home.path / "workspace/me/note.md").write_text(word)
    (home.path / "plugins/mine/plugin.py").write_text("x = 1")
    (home.path / "secrets/ANTHROPIC_API_KEY").write_text("sk-secret")
    (home.path / "secrets/ANTHROPIC_API_KEY").chmod(0o600)
    (home.path / "hermes/.env").write_text("KEY=sk-secret")
    with closing(sqlite3.connect(home.path / "hermes/vault.db")) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS t (x)")
        db.execute("INSERT INTO t VALUES (?)", (word,))
    return file.name


async def made(home: Home, target: str, now: float = NOW) -> Made:
    where = destination(home, target, dated(now))
    return await asyncio.to_thread(make, home, where, TOOLS, now)


async def put_back(home: Home, source: Path, now: float = NOW) -> Restored:
    chosen = await asyncio.to_thread(choose, source, TOOLS)
    with claimed(home.path, home.lock):
        return await asyncio.to_thread(restore, home, chosen, TOOLS, now)


def words_in(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as db:
        query = "SELECT content FROM messages WHERE role = 'assistant' ORDER BY id"
        return [text for (text,) in db.execute(query)]
