"""Listings as scripts read them: arrays, the store's names of columns, and nothing is an answer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.jobs.nouns import Action, JobDraft, Schedule
from agent.jobs.ports import JobStore
from agent.pairings import PairingRequest, digest_of
from gateway.cli.main import main
from storage.sqlite import open_store
from tests.contract.jobs_suite import PLACE

EMPTY = {
    "sessions list": [],
    "sessions search word": [],
    "jobs": [],
    "jobs list --all": [],
    "usage": [],
    "pair list": {"requests": [], "paired": [], "locked_until": None},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", EMPTY)
def test_before_the_first_start_there_is_nothing(
    home: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == EMPTY[command]
    assert main(command.split()) == 0
    assert "nothing is stored yet" in capsys.readouterr().out
    assert list(home.iterdir()) == [], "looking makes nothing"


async def _with_a_job(home: Path) -> str:
    opened = await open_store(home / "state.db", clock=SystemClock(), ids=RandomIds())
    store: JobStore = opened
    try:
        every = Schedule("every", "3600", "UTC")
        due = SystemClock().now() + 3600
        draft = JobDraft(PLACE, every, Action("prompt", "news?"), "news", "person", due, due)
        return (await store.add_job(draft)).id
    finally:
        await opened.close()


async def test_jobs_are_told_in_the_names_of_their_table(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = await _with_a_job(home)
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["jobs", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    with sqlite3.connect(home / "state.db") as db:
        db.row_factory = sqlite3.Row
        (row,) = db.execute("SELECT * FROM jobs")
    same = {name for name in row.keys() if name in told}  # noqa: SIM118 - a Row has no `in`
    assert set(row.keys()) - same == {"sender", "text", "anchor_at"}
    assert {name: told[name] for name in same} == {name: row[name] for name in same}
    assert (told["id"], told["kind"], told["action"]) == (job_id, "every", "prompt")
    assert await asyncio.to_thread(main, ["jobs", "runs", job_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert await asyncio.to_thread(main, ["jobs", "pause", job_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "paused"


async def test_people_are_told_in_the_names_of_their_tables(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SystemClock()
    opened = await open_store(home / "state.db", clock=clock, ids=RandomIds())
    digest, now = digest_of(b"salt", "ABCDEFGH"), clock.now()
    await opened.ask_pairing(
        PairingRequest("telegram", "42", "Ann", b"salt", digest, now, now + 60)
    )
    await opened.close()
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["pair", "list", "--json"]) == 0
    (asks,) = json.loads(capsys.readouterr().out)["requests"]
    assert {"platform", "user_id", "shown_name", "asked_at", "expires_at"} <= set(asks)
    assert asks["shown_name"] == "Ann"
