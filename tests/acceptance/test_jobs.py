"""Jobs of config.yaml in the real daemon: at their time, over kills, missed while it was down."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from gateway.jobs.deciding import NOT_RUNNING
from tests.acceptance.harness import (
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    TelegramChat,
    World,
    answered,
    eventually,
    settled,
)
from tests.acceptance.job_daemon import POINTS
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

RUNS = (
    "SELECT j.name, r.state, r.reason, r.count FROM job_runs r JOIN jobs j ON j.id = r.job_id"
    " WHERE j.origin = 'config' ORDER BY j.name, r.id"
)


def job(name: str, user: int = TELEGRAM_USER, **more: Any) -> dict[str, Any]:
    return {"name": name, "to": {"platform": "telegram", "user": user}, "timezone": "UTC", **more}


def configure(world: World, *jobs: dict[str, Any]) -> None:
    path = world.configure()
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "jobs": list(jobs)}))


def stored(world: World) -> int:
    return int(world.database().one("SELECT count(*) FROM jobs WHERE origin = 'config'"))


def runs(world: World) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in world.database().rows(RUNS)]


async def acquainted(world: World, *jobs: dict[str, Any]) -> tuple[TelegramChat, TelegramChat]:
    """Two people who have written to the bot (it may write to nobody else), and stored jobs."""
    configure(world, *jobs)
    chats = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    daemon = await world.run("telegram")
    for chat in chats:
        chat.say("hello")
        await answered(chat, "reply to: hello", daemon)
    await eventually(lambda: stored(world) == len(jobs), 30, "the jobs are stored", alive=daemon)
    await settled(world)
    await daemon.kill()
    return chats


@pytest.mark.parametrize("point", POINTS)
async def test_killed_around_its_time_a_job_runs_once(world: World, point: str) -> None:
    """Two jobs are due in the same second; the kill hits the first of them, wherever it is."""
    first, second = await acquainted(
        world,
        job("ask", every="1d", prompt="what is new?"),
        job("send", OTHER_TELEGRAM_USER, every="1d", text="time for tea"),
    )
    # A day is too long for a test: they are due by now.
    with closing(sqlite3.connect(world.home / "state.db")) as connection, connection:
        connection.execute("UPDATE jobs SET next_run_at = next_run_at - 86400")
    hits = world.home.parent / "hits"
    daemon = world.daemon(
        secrets=world.secrets_for("telegram"),
        config=world.home / "config.yaml",
        launcher=("-m", "tests.acceptance.job_daemon", "--point", point, "--hits", str(hits)),
    ).start()
    assert await daemon.exited(40) == -signal.SIGKILL
    assert hits.read_text() == point
    for _ in range(2):
        daemon = await world.run("telegram")
        await eventually(
            lambda: runs(world) == [("ask", "done", "", 1), ("send", "done", "", 1)],
            30,
            "both have run",
            alive=daemon,
            seen=lambda: runs(world),
        )
        await settled(world)
        await daemon.kill()
    hello, answer = first.shown()
    assert hello == "reply to: hello"
    assert answer.startswith('reply to: [scheduled job 1 "ask", set up in the configuration; due ')
    assert answer.endswith("what is new?")
    assert second.shown() == ["reply to: hello", "time for tea"]
    check_invariants(world.home / "state.db")


async def test_missed_while_it_was_down(world: World) -> None:
    """An hour late is made up, once; half a day late is an entry in the ledger and in the log."""
    first, second = await acquainted(
        world,
        job("hourly", every="2h", text="two hours"),
        job("daily", OTHER_TELEGRAM_USER, every="1d", text="a day"),
    )
    wrong_by = world.home.parent / "wrong_by"
    wrong_by.write_text(str(30 * 3600 + 900))
    options: dict[str, Any] = {
        "secrets": world.secrets_for("telegram"),
        "config": world.home / "config.yaml",
        "launcher": ("-m", "tests.acceptance.clock_daemon", "--wrong-by", str(wrong_by)),
    }
    daemon = await world.run("telegram", **options)
    await eventually(lambda: first.shown()[1:], 30, "the late one", alive=daemon)
    await eventually(lambda: len(runs(world)) == 3, 30, "the ledger", alive=daemon)
    _, late = first.shown()
    assert late.startswith("(Due ")
    assert late.endswith("two hours")
    assert runs(world) == [
        ("daily", "missed", NOT_RUNNING, 1),
        ("hourly", "missed", NOT_RUNNING, 14),
        ("hourly", "done", "", 1),
    ]
    assert second.shown() == ["reply to: hello"]
    missed = [line for line in daemon.log_lines() if line.get("message") == "job missed"]
    assert {(line["level"], line["times"]) for line in missed} == {("WARNING", 1), ("WARNING", 14)}
    check_invariants(world.home / "state.db")
