"""Owns kill -9 between any two statements of the store: wholly old or wholly new, never between."""

# ruff: noqa: ASYNC221 - the child is what is tested; nothing else runs meanwhile

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.llm.background import in_daemon_thread
from storage import faultpoint, migrate
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.fakes.store_invariants import check_invariants
from tests.unit.storage.kill_scenarios import SCENARIOS, content_of

ROOT = Path(__file__).parents[3]
_KILLED_AT: set[str] = set()


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
async def test_killed_at_every_point(scenario: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.storage.kill_scenarios", scenario, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)
    assert points
    _KILLED_AT.update(points)
    old, new = content_of(tmp_path / "old.db"), content_of(tmp_path / "new.db")
    assert old != new or scenario == "rebuild_search_index"
    for n, point in enumerate(points):
        path = tmp_path / f"{n}.db"
        store = await open_store(path, clock=SystemClock(), ids=RandomIds())
        await check_files(path.with_suffix(".files"), store)
        await store.close()
        check_invariants(path)
        assert content_of(path) == old, f"half done after {point}"
    check_invariants(tmp_path / "new.db")


async def check_files(folder: Path, store: SqlStore) -> None:
    """Nothing half is left, whatever the kill left: after a day the folder is what the rows say."""
    files = FolderAttachments(folder, store, SystemClock(), in_daemon_thread)
    for path in _names_in(folder):
        os.utime(folder / path, (0, 0))
    await files.sweep()
    left = _names_in(folder)
    assert left == await store.known_files(left)
    for name in left:
        assert await files.read(name)


def _names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_every_point_in_the_code_was_killed_at() -> None:
    """A new point needs a scenario that reaches it. Sums up the tests above, in one process."""
    named = set()
    for module in (ROOT / "storage").rglob("*.py"):
        named.update(re.findall(r'faultpoint\("([a-z_.]+)"\)', module.read_text()))
    if not _KILLED_AT:
        pytest.skip("run together with the kill tests")
    assert {point for point in named if not point.startswith("migrate.")} == _KILLED_AT


def test_a_migration_that_stops_anywhere_has_not_begun(tmp_path: Path) -> None:
    class Stop(BaseException):
        pass

    whole = {0: 0}
    points = 0

    def count(point: str) -> None:
        if point == "migrate.versioned":
            (version,) = reference.execute("PRAGMA user_version").fetchone()
            whole[version] = _objects(reference)

    def hook(_: str) -> None:
        nonlocal points
        points += 1
        if points == stop_at:
            raise Stop

    with closing(sqlite3.connect(tmp_path / "reference.db", isolation_level=None)) as reference:
        faultpoint.install(count)
        migrate.migrate(reference, 0.0)
    for stop_at in range(1, 200):
        points = 0
        db = sqlite3.connect(tmp_path / f"{stop_at}.db", isolation_level=None)
        faultpoint.install(hook)
        try:
            migrate.migrate(db, 0.0)
            break
        except Stop:
            assert _objects(db) == whole[db.execute("PRAGMA user_version").fetchone()[0]]
        finally:
            faultpoint.install(None)
            db.close()
    assert points > 20
    assert len(whole) == len(migrate.shipped()) + 1


def _objects(db: sqlite3.Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(count)
