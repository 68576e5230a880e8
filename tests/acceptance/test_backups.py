"""A backup beside a daemon that is talked to, killed in the middle; put back, and compared."""

# ruff: noqa: ASYNC220, ASYNC240 - the processes are what is tested; a few looks at folders

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage.upkeep import examine
from tests.acceptance.harness import (
    REPO,
    TelegramChat,
    World,
    answered,
    environment,
    eventually,
    open_world,
    run_command,
)
from tests.fakes.disks import fill, small_disk
from tests.fakes.index_damage import damage
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


OVER = {"answered", "quarantined", "sent", "failed", "done", "stopped"}


async def nothing_under_way(world: World) -> None:
    """And nothing waits."""
    database = world.database()
    await eventually(
        lambda: all(set(states) <= OVER for states in database.unsettled().values()),
        40.0,
        "nothing under way",
        seen=database.unsettled,
    )


async def test_made_while_people_talk_and_put_back(world: World, tmp_path: Path) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("before the backup")
    await answered(chat, "before the backup", daemon)
    stop = asyncio.Event()

    async def keep_talking() -> int:
        n = 0
        while not stop.is_set():
            chat.say(f"message {n}")
            n += 1
            await asyncio.sleep(0.2)
        return n

    talking = asyncio.ensure_future(keep_talking())
    done = [
        await run_command(world.home, "backup", str(tmp_path / f"b{n}"), "--json") for n in range(3)
    ]
    assert [d.returncode for d in done] == [0, 0, 0], done[0].stderr
    # Killed while it is made, at a moment that is left to chance: never a half one under its name.
    for pause in (0.15, 0.25, 0.3, 0.35, 0.4):
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "backup", str(tmp_path / "killed")],
            cwd=REPO,
            env=environment(world.home, {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await asyncio.sleep(pause)
        process.kill()
        process.wait()
    stop.set()
    assert await talking > 0
    for folder in tmp_path.rglob("state.db"):
        if folder.parent.name != "home" and not folder.parent.name.endswith(".part"):
            check_invariants(folder)
            assert (folder.parent / "backup.json").exists()
    await run_command(world.home, "backup", str(tmp_path / "last"))
    assert not list(tmp_path.glob(".posthouse-*.part"))
    await nothing_under_way(world)

    facts = json.loads(done[1].stdout)
    busy = await run_command(world.home, "restore", str(tmp_path / "b1"), "--yes")
    assert busy.returncode == 73
    assert "stop it first" in busy.stderr
    await daemon.kill()
    asked = world.database().one("SELECT max(id) FROM inbox")
    restored = await run_command(world.home, "restore", str(tmp_path / "b1"), "--yes")
    assert restored.returncode == 0, restored.stderr
    assert world.database().one("SELECT count(*) FROM messages") == facts["counts"]["messages"]

    shown = len(chat.shown())
    daemon = await world.run("telegram")
    await nothing_under_way(world)
    # Nothing that was owed, waited or was being answered then is said a second time.
    chat.say("after the restore")
    await answered(chat, "after the restore", daemon)
    assert len(chat.shown()) == shown + 1
    assert world.database().one("SELECT max(id) FROM inbox") < asked
    await daemon.terminate()
    check_invariants(world.home / "state.db")
    (aside,) = world.home.glob("replaced-*")
    check_invariants(aside / "state.db")


async def test_an_export_of_a_restored_home_is_the_same(world: World, tmp_path: Path) -> None:
    world.configure()
    await world.run("telegram")
    said = await run_command(world.home, "chat", stdin="remember the blue door\n")
    assert said.returncode == 0, said.stderr
    (session_id,) = {str(row["session_id"]) for row in world.database().originals("user")}
    exported = await run_command(world.home, "sessions", "export", session_id)
    for target in ("b", "b.db"):
        made = await run_command(world.home, "backup", str(tmp_path / target))
        assert made.returncode == 0, made.stderr
        elsewhere = tmp_path / f"home of {target}"
        put = await run_command(elsewhere, "restore", str(tmp_path / target), "--yes")
        assert put.returncode == 0, put.stderr
        again = await run_command(elsewhere, "sessions", "export", session_id)
        assert again.stdout == exported.stdout


KILLER = """
import os, signal, sys
left = int(sys.argv.pop(1))
for name in ("rename", "replace", "link", "fsync"):
    def counted(*arguments, _real=getattr(os, name), **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return _real(*arguments, **options)
    setattr(os, name, counted)
from gateway.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


async def test_a_restore_killed_anywhere_is_wholly_done_or_not_begun(
    world: World, tmp_path: Path
) -> None:
    for text, target in (("the old state", "old"), ("the new state", "new")):
        said = await run_command(world.home, "chat", stdin=f"{text}\n")
        assert said.returncode == 0, said.stderr
        assert (await run_command(world.home, "backup", str(tmp_path / target))).returncode == 0
    states = set()
    for n in range(1, 60, 4):
        home = tmp_path / f"home{n}"
        shutil.copytree(world.home, home)
        killed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", KILLER, str(n), "restore", str(tmp_path / "old"), "--yes"],
            cwd=REPO,
            env={**environment(home, {}), "PYTHONPATH": str(REPO)},
            capture_output=True,
            check=False,
        )
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
        begun = (home / ".restoring/plan.json").exists()
        # The next start finishes what has begun, and knows nothing of what has not.
        again = await run_command(home, "chat", stdin="/status\n")
        assert again.returncode == 0, again.stderr
        listed = await run_command(home, "sessions", "search", "state", "--json")
        found = "the new state" in listed.stdout
        states.add(found)
        if begun:
            assert not found
            assert list(home.glob("replaced-*/state.db"))
        assert not (home / ".restoring").exists()
        check_invariants(home / "state.db")
        shutil.rmtree(home)
        if killed.returncode == 0:
            break
    assert states == {True, False}


async def test_a_damaged_database_is_put_back(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("hello")
    await answered(chat, "hello", daemon)
    assert (await run_command(world.home, "backup")).returncode == 0
    await daemon.terminate()
    page = world.database().one("SELECT rootpage FROM sqlite_master WHERE name = 'requests'")
    with (world.home / "state.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(os.urandom(4096))
    checked = await run_command(world.home, "backup")
    assert checked.returncode == 1
    assert "Traceback" not in checked.stderr
    restored = await run_command(world.home, "restore", "--yes")
    assert restored.returncode == 0, restored.stderr
    daemon = await world.run("telegram")
    chat.say("hello again")
    await answered(chat, "hello again", daemon)
    await nothing_under_way(world)


async def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """Nothing is acknowledged that is not stored; when there is room it goes on by itself."""
    with small_disk(tmp_path / "disk", 24) as disk:
        async with open_world(disk) as world:
            world.configure(gateway={"drain_seconds": 1, "http": {"port": 0}})
            daemon = await world.run("telegram")
            chat = TelegramChat(world)
            chat.say("before")
            await answered(chat, "before", daemon)
            filler = fill(disk)
            for n in range(8):
                chat.say(f"meanwhile {n} " + "x" * 3000)
            await eventually(
                lambda: "STORE TAKES NOTHING" in (daemon.status() or {}).get("details", {}),
                20.0,
                "the trouble is told",
                alive=daemon,
            )
            filler.unlink()
            await answered(chat, "meanwhile 7", daemon, seconds=60.0)
            await nothing_under_way(world)
            assert "STORE TAKES NOTHING" not in (daemon.status() or {})["details"]
            await daemon.terminate()
            check_invariants(world.home / "state.db")


async def test_a_search_index_that_is_damaged_under_the_daemon(
    world: World, tmp_path: Path
) -> None:
    """It stayed so until the next night, and the backup of that night failed over it."""
    database = world.home / "state.db"

    async def whole() -> None:
        await eventually(
            lambda: examine(database, thorough=True).sound, 30, "a whole index", alive=daemon
        )

    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    for n in range(6):
        chat.say(f"note {n} about quartz")
        await answered(chat, f"note {n}", daemon)
    await whole()
    damage(database, "rows gone")
    found = await run_command(world.home, "sessions", "search", "quartz", "--json")
    assert len(json.loads(found.stdout)) >= 6
    assert "the gateway knows" in found.stderr
    await whole()
    assert "search index" not in (await run_command(world.home, "status")).stdout
    damage(database, "zeroed")
    made = await run_command(world.home, "backup", str(tmp_path / "b"))
    assert made.returncode == 0, made.stderr
    assert "The gateway knows" in made.stdout
    assert examine(tmp_path / "b/state.db", thorough=True).sound
    # Twice in so short a time: not at once, and `status` says so meanwhile.
    assert "the search index was damaged" in (await run_command(world.home, "status")).stdout
    await daemon.terminate()
    daemon = await world.run("telegram")
    await whole()
    assert "search index" not in (await run_command(world.home, "status")).stdout
