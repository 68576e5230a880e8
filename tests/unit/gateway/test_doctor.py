"""Each thing that can be wrong here is found, with what to do; and looking changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.backups.shelf import MANIFEST, Backup, manifest, note_elsewhere
from gateway.cli.doctor import in_words
from gateway.cli.main import main
from gateway.config.environment import Home, read_secrets
from gateway.control import send_line
from gateway.control_server import ControlServer
from gateway.doctor import machine, place, running, software, unit
from gateway.doctor.areas import all_areas
from gateway.doctor.asked import facts_of
from gateway.doctor.checkup import examine
from gateway.doctor.finding import Area, Finding, Said
from gateway.doctor.ground import as_the_service, survey
from gateway.doctor.skew import say_skew
from gateway.service.installed import this_layout
from storage.sqlite import open_store
from tests.contract.jobs_suite import draft, firing
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.disks import small_disk
from tests.fakes.index_damage import damage

KEY = "sk-ant-never-shown-anywhere"


@dataclass
class House:
    """A home in which all is well, to be broken by a test."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.home / "state.db"

    def say(self, text: str) -> None:
        (self.home / "config.yaml").write_text(text)

    def findings(self) -> list[Finding]:
        ground = survey(self.env, None, offline=True)
        return examine(all_areas(ground), ground.secrets.values())

    def troubles(self) -> list[Finding]:
        """Of this home; how the machine is that runs the tests, is its own affair."""
        found = [f for f in self.findings() if f.level in ("warning", "problem")]
        return [f for f in found if f.area not in ("service", "clock", "software")]


@pytest.fixture
async def house(tmp_path: Path, clock: FakeClock) -> House:
    home = tmp_path / "home"
    (home / "secrets").mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    key = home / "secrets" / "ANTHROPIC_API_KEY"
    key.write_text(KEY)
    key.chmod(0o600)
    store = await open_store(home / "state.db", clock=clock, ids=SequentialIds())
    await store.close()
    backup = home / "backups" / "one"
    backup.mkdir(mode=0o700, parents=True)
    made = {"made_at": time.time() - 3600, "database_bytes": 4096}
    (backup / MANIFEST).write_text(manifest(made))
    env = {"POSTHOUSE_HOME": str(home), "PATH": os.environ["PATH"], "TZ": "Europe/Berlin"}
    found = House(home, env)
    found.say("logging: {level: INFO}\n")
    (home / "config.yaml").chmod(0o600)
    return found


def test_where_all_is_well_nothing_is_found(house: House) -> None:
    assert house.troubles() == []
    words = in_words(house.findings())
    assert f"{house.home} (POSTHOUSE_HOME)" in words
    assert "ANTHROPIC_API_KEY: from" in words
    assert "the newest backup is 60 min old" in words


def _rows(house: House, *statements: str) -> None:
    db = sqlite3.connect(house.database)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def _damage(house: House) -> None:
    """One page in the middle is nonsense."""
    data = bytearray(house.database.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for page in range(2, len(data) // size):
        data[page * size : page * size + 100] = b"\xff" * 100
    house.database.write_bytes(data)


def _backup_of(house: House, made_at: float) -> None:
    made = {"made_at": made_at, "database_bytes": 4096}
    (house.home / "backups/one" / MANIFEST).write_text(manifest(made))


def _log_of(house: House, size: int) -> None:
    with (house.home / "state.db-wal").open("wb") as stream:
        stream.truncate(size)  # without its -shm: as a crash and a copy have left it


def _linked_with_log(house: House) -> None:
    (house.home / "disk").mkdir()
    _log_of(house, 4096)
    for name in ("state.db", "state.db-wal"):
        (house.home / name).rename(house.home / "disk" / name)
    house.database.symlink_to(house.home / "disk" / "state.db")


def _key_file(house: House) -> None:
    file = house.home / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    house.env["ANTHROPIC_API_KEY_FILE"] = str(file)


def _crash(house: House) -> None:
    folder = house.home / "crashes"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("a crash\n")


@dataclass(frozen=True)
class Case:
    breaks: Callable[[House], object]
    area: str
    level: str
    text: str
    remedy: str


CASES = {
    "home open": Case(
        lambda h: h.home.chmod(0o755), "home", "warning", "look into it (mode 755)", "chmod 700"
    ),
    "somebody else's file": Case(
        lambda h: os.chown(h.database, 12345, -1),
        "home",
        "warning",
        "state.db",
        "chown -R --reference=/",
    ),
    "no yaml": Case(
        lambda h: h.say("telegram: ["), "configuration", "problem", "not valid YAML", "correct"
    ),
    "a slip": Case(
        lambda h: h.say("telegram: {alow_from: [1]}"),
        *("configuration", "problem", "did you mean telegram.allow_from?", "config check"),
    ),
    "a token that is waited for": Case(
        lambda h: h.say("telegram: {allow_from: [1]}"),
        *("configuration", "warning", "there is no TELEGRAM_BOT_TOKEN", "/secrets/TELEGRAM_BOT"),
    ),
    "a token that is missing": Case(
        lambda h: h.say("discord: {enabled: true}"),
        *("configuration", "problem", "put it alone into secrets/DISCORD_BOT_TOKEN", "init"),
    ),
    "config open": Case(
        lambda h: (h.home / "config.yaml").chmod(0o622),
        *("configuration", "warning", "change the configuration", "chmod go-w"),
    ),
    "no token": Case(
        lambda h: h.say("telegram: {enabled: true}"),
        *("configuration", "problem", "there is no TELEGRAM_BOT_TOKEN", "posthouse init"),
    ),
    "nobody may talk": Case(
        lambda h: h.env.update(TELEGRAM_BOT_TOKEN="123:abcdef"),
        *("configuration", "warning", "nobody is allowed to talk to telegram", "posthouse init"),
    ),
    "everybody may talk": Case(
        lambda h: (
            h.say("telegram: {allow_from: ['*']}"),
            h.env.update(TELEGRAM_BOT_TOKEN="123:abcdef"),
        ),
        *("configuration", "warning", "everybody who finds the bot", "posthouse init"),
    ),
    "debug": Case(
        lambda h: h.say("logging: {level: DEBUG}"),
        *("configuration", "note", "the log is at DEBUG", "logging.level: INFO"),
    ),
    "secret open": Case(
        lambda h: (h.home / "secrets/ANTHROPIC_API_KEY").chmod(0o644),
        *("secrets", "problem", "others can read", "chmod 600"),
    ),
    "secrets open": Case(
        lambda h: (h.home / "secrets").chmod(0o755),
        *("secrets", "warning", "look into", "chmod 700"),
    ),
    "secret file open": Case(_key_file, "secrets", "warning", "can read", "chmod 600"),
    "secret file gone": Case(
        lambda h: h.env.update(ANTHROPIC_API_KEY_FILE="/nowhere/key"),
        *("secrets", "problem", "no such file", "unset"),
    ),
    "swapped": Case(
        lambda h: h.env.update(TELEGRAM_BOT_TOKEN="a.b.c", DISCORD_BOT_TOKEN="123:abc"),
        *("secrets", "warning", "swapped", "posthouse init"),
    ),
    "no key": Case(
        lambda h: (
            h.say("model: {provider: anthropic}") or (h.home / "secrets/ANTHROPIC_API_KEY").unlink()
        ),
        *("model", "problem", "neither ANTHROPIC_API_KEY nor a base_url", "posthouse init"),
    ),
    "no database": Case(
        lambda h: h.database.write_bytes(b"no database at all" * 100),
        *("database", "problem", "is no database", "posthouse restore"),
    ),
    "emptied database": Case(
        lambda h: h.database.write_bytes(b""),
        *("database", "problem", "is empty, and this home was used", "posthouse restore"),
    ),
    "lost database": Case(
        lambda h: h.database.unlink(),
        *("database", "warning", "is gone, and this home was used", "posthouse restore"),
    ),
    "no database yet": Case(
        lambda h: ((h.home / "backups/one" / MANIFEST).unlink(), h.database.unlink()),
        *("database", "note", "none yet", ""),
    ),
    "UTC": Case(lambda h: h.env.update(TZ="UTC"), "clock", "note", "in UTC", "timezone in"),
    "no such zone": Case(
        lambda h: h.env.update(TZ="Nowhere/Nothing"), "clock", "note", "in UTC", "posthouse init"
    ),
    "newer": Case(
        lambda h: _rows(h, "PRAGMA user_version = 999"),
        *("database", "problem", "by a newer version (form 999", "newer version again"),
    ),
    "older": Case(
        lambda h: _rows(h, "PRAGMA user_version = 1"),
        *("database", "note", "the next start brings it to", ""),
    ),
    "damaged": Case(_damage, "database", "problem", "it is damaged", "posthouse restore"),
    "search damaged": Case(
        lambda h: damage(h.database, "no structure"),
        *("database", "warning", "no message is lost", "start the gateway"),
    ),
    "no backup": Case(
        lambda h: (h.home / "backups/one" / MANIFEST).unlink(),
        *("database", "warning", "no backup", "posthouse backup"),
    ),
    "no backup yet": Case(
        lambda h: (
            (h.home / "backups/one" / MANIFEST).unlink(),
            _rows(h, f"UPDATE schema_migrations SET applied_at = {time.time() - 60}"),
        ),
        *("database", "note", "no backup yet", ""),
    ),
    "no backup, and none to come": Case(
        lambda h: (
            h.say("backup: {enabled: false}"),
            (h.home / "backups/one" / MANIFEST).unlink(),
            _rows(h, f"UPDATE schema_migrations SET applied_at = {time.time() - 60}"),
        ),
        *("database", "warning", "no backup", "posthouse backup"),
    ),
    "backup of tomorrow": Case(
        lambda h: _backup_of(h, time.time() + 90_000), "database", "ok", "is 0 min old", ""
    ),
    "old backup": Case(
        lambda h: _backup_of(h, time.time() - 30 * 86_400),
        *("database", "warning", "30 days old", "posthouse backup"),
    ),
    "unplugged": Case(
        lambda h: note_elsewhere(Home(h.home, ""), Backup(Path("/unplugged/b"), time.time(), 1)),
        *("database", "note", "is not there now", "kept elsewhere"),
    ),
    "large log": Case(
        lambda h: _log_of(h, 300 << 20), "database", "warning", "grown large", "fuser -v"
    ),
    "log of a crash": Case(
        lambda h: _log_of(h, 4096), "database", "note", "a crash left a log", ""
    ),
    "log of a crash beside a linked file": Case(
        _linked_with_log, "database", "note", "a crash left a log", ""
    ),
    "crashes": Case(_crash, "gateway", "warning", "2 crashes in the last 7 days", "read "),
    "killed again and again": Case(
        lambda h: (h.home / "runs.json").write_text(
            json.dumps([{"started_at": time.time() - 60} for _ in range(5)])
        ),
        *("gateway", "warning", "4 starts of the last 7 days ended", "Out of memory"),
    ),
    "an old name": Case(
        lambda h: h.say("agent: {max_turns: 9}"),
        *("configuration", "note", "agent.max_iterations", "new name"),
    ),
    "plugin missing": Case(
        lambda h: h.say("plugins: {enabled: [nosuch]}"), "plugins", "warning", "nosuch", "plugins"
    ),
    "program missing": Case(
        lambda h: h.say("agent: {tools: {mcp: {x: {command: /nowhere/server}}}}"),
        *("plugins", "warning", "/nowhere/server", "docs/mcp.md"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_with_its_remedy(house: House, name: str) -> None:
    case = CASES[name]
    if name == "somebody else's file" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    case.breaks(house)
    found = [f for f in house.findings() if (f.area, f.level) == (case.area, case.level)]
    assert any(case.text in f.text and case.remedy in f.remedy for f in found), house.findings()
    assert all(f.remedy for f in house.troubles())
    assert KEY not in in_words(house.findings())


def test_the_secrets_of_the_service_are_looked_for_where_it_gets_them(tmp_path: Path) -> None:
    env = {"PATH": "/bin"}
    of_unit = Home(tmp_path / "home", "the installed unit posthouse.service")
    assert as_the_service(env, of_unit, tmp_path / "none") == env
    assert as_the_service(env, Home(tmp_path, "POSTHOUSE_HOME"), tmp_path) == env
    (tmp_path / "ANTHROPIC_API_KEY").write_text(KEY)
    found = as_the_service(env, of_unit, tmp_path)
    assert read_secrets(found).anthropic_api_key == KEY
    given = {**env, "CREDENTIALS_DIRECTORY": "/run/credentials/posthouse.service"}
    assert as_the_service(given, of_unit, tmp_path) == given


@pytest.mark.parametrize("name", ["wholesome", "log of a crash", "newer"])
def test_looking_changes_nothing(house: House, name: str) -> None:
    if name in CASES:
        CASES[name].breaks(house)

    def everything() -> dict[Path, tuple[bytes, int]]:
        files = (p for p in house.home.rglob("*") if p.is_file())
        return {p: (p.read_bytes(), p.stat().st_mode) for p in files}

    before = everything()
    house.findings()
    assert everything() == before


def test_a_home_that_is_not_there_is_no_problem_and_not_made(tmp_path: Path) -> None:
    house = House(tmp_path / "nothing", {"POSTHOUSE_HOME": str(tmp_path / "nothing")})
    assert house.troubles() == []
    assert not house.home.exists()
    assert any("posthouse init" in f.remedy for f in house.findings())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_the_socket_of_the_tools_is_systemds(house: House) -> None:
    """And so root's, until the service's start gives it to its user."""
    with socket.socket(socket.AF_UNIX) as tools:
        tools.bind(str(house.home / "tools.sock"))
    os.chown(house.home / "tools.sock", 12345, -1)
    assert house.troubles() == []


def test_a_pipe_in_the_place_of_the_database_is_not_waited_for(house: House) -> None:
    house.database.unlink()
    os.mkfifo(house.database)
    assert not [f for f in house.findings() if "no answer within" in f.text]


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "home"
    file.write_text("")
    house = House(file, {"POSTHOUSE_HOME": str(file)})
    assert ("home", "problem") in {(f.area, f.level) for f in house.troubles()}


def test_a_service_that_does_not_run_is_started_as_one(house: House) -> None:
    ground = survey(house.env, None, offline=True)
    (own,) = running.look(ground)
    assert (own.level, own.text) == ("note", "it does not run")
    services = Home(house.home, "the installed unit posthouse.service")
    (found,) = running.look(replace(ground, home=services))
    assert (found.level, found.remedy) == ("warning", "sudo systemctl start posthouse")


async def test_jobs_in_trouble(house: House, clock: FakeClock) -> None:
    store = await open_store(house.database, clock=clock, ids=SequentialIds())
    job = await store.add_job(draft("drink"))
    fired = await store.fire_job(job.id, firing())
    assert fired is not None
    await store.close()
    _rows(
        house,
        "UPDATE job_runs SET state = 'failed', reason = 'the chat is gone', ended_at = 1",
        "INSERT INTO job_runs (job_id, due_at, until_at, count, state, claimed_at, ended_at) "
        f"SELECT id, 1, {time.time()}, 3, 'missed', 1, 1 FROM jobs",
        "UPDATE job_runs SET id = id + 10 WHERE state = 'failed'",
    )
    found = [f for f in await asyncio.to_thread(house.findings) if f.area == "jobs"]
    assert [f.level for f in found] == ["warning", "note"]
    assert "'drink' failed: the chat is gone" in found[0].text
    assert "3 runs were missed" in found[1].text


async def _with_daemon(house: House, answer: Mapping[str, object]) -> list[Finding]:
    async def status(request: object, reader: object, writer: asyncio.StreamWriter) -> None:
        await send_line(writer, answer)

    server = ControlServer(house.home / "control.sock", {"status": status})
    await server.start()
    try:
        return await asyncio.to_thread(house.findings)
    finally:
        await server.close()


async def test_what_the_running_gateway_says_of_itself(house: House) -> None:
    platforms = {
        "telegram": {"state": "failed-config", "reason": "the token is not taken"},
        "discord": {"state": "retrying", "reason": "no network"},
    }
    details = {"STORE TAKES NOTHING": "the disk is full", "remarks": "x does not reach y"}
    answer = {"ready": False, "version": "0.0.1", "platforms": platforms, "details": details}
    found = [f for f in await _with_daemon(house, answer) if f.area == "gateway"]
    told = {(f.level, f.text.split(":")[0]) for f in found}
    assert ("problem", "telegram") in told
    assert ("warning", "discord") in told
    assert ("problem", "the store takes nothing") in told
    assert any("is version 0.0.1" in f.text for f in found)
    assert any("x does not reach y" in f.text for f in found)
    assert all(f.remedy for f in found)


async def test_a_key_that_the_running_gateway_has_refused_is_a_problem(house: House) -> None:
    now = time.time()
    trouble = {"model": "claude-x", "kind": "key", "since": now - 300, "last_at": now - 20}
    answer = {"ready": True, "provider": {"answered_at": None, "troubles": [trouble]}}
    found = [f for f in await _with_daemon(house, answer) if f.area == "gateway"]
    (problem,) = [f for f in found if f.level == "problem"]
    assert "refuses the key" in problem.text
    assert "claude-x" in problem.text
    assert "ANTHROPIC_API_KEY" in problem.remedy


async def test_a_gateway_that_hangs_holds_nobody_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def status(request: object, reader: object, writer: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr("gateway.doctor.ground.ANSWER_SECONDS", 0.2)
    server = ControlServer(house.home / "control.sock", {"status": status})
    await server.start()
    try:
        found = await asyncio.to_thread(house.findings)
    finally:
        await server.close()
    (finding,) = [f for f in found if f.area == "gateway"]
    assert (finding.level, "does not answer" in finding.text) == ("problem", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_somebody_elses_home(house: House, mode: int) -> None:
    # Not in pytest's own folder: each session that begins closes that to others again.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        home = shutil.copytree(house.home, Path(place) / "home")
        house.env["POSTHOUSE_HOME"] = str(home)
        home.chmod(mode)
        house.findings()  # whatever is imported has to be read as root
        os.seteuid(65_534)
        try:
            found = house.troubles()
        finally:
            os.seteuid(0)
    problems = [f for f in found if f.level == "problem"]
    assert [f.area for f in problems if "as the" in f.remedy or "as that" in f.remedy]
    assert not [f for f in found if "the check itself failed" in f.text]


def test_one_that_hangs_and_one_that_breaks_hold_nobody_up() -> None:
    def hangs() -> Iterable[Finding]:
        time.sleep(30)
        return []

    def breaks() -> Iterable[Finding]:
        raise RuntimeError(f"with {KEY}")

    def sound() -> Iterable[Finding]:
        said = Said("third")
        said.ok(f"a word of {KEY}")
        return said.findings

    areas = [Area("first", hangs, 0.1), Area("second", breaks, 5), Area("third", sound, 5)]
    found = examine(areas, [KEY])
    assert [(f.area, f.level) for f in found] == [
        ("first", "warning"),
        ("second", "problem"),
        ("third", "ok"),
    ]
    assert KEY not in in_words(found)


@pytest.mark.parametrize(
    ("facts", "level", "text", "remedy"),
    [
        ({"ActiveState": "failed", "ExecMainStatus": "78"}, "problem", "needs a person", "logs"),
        (
            {"ActiveState": "failed", "ExecMainStatus": "73"},
            "problem",
            "another instance",
            "status",
        ),
        ({"ActiveState": "failed", "ExecMainStatus": "9"}, "problem", "exit status 9", "logs"),
        ({"UnitFileState": "disabled"}, "warning", "not start with the machine", "enable"),
        ({"NRestarts": "7"}, "warning", "7 times", "logs"),
        ({"TimeoutStopUSec": "30s"}, "warning", "TimeoutStopSec is 30 s", "TimeoutStopSec=50"),
        ({"WatchdogUSec": "0"}, "note", "watchdog is off", ""),
        ({"NeedDaemonReload": "yes"}, "warning", "was changed", "daemon-reload"),
    ],
)
def test_the_service(facts: dict[str, str], level: str, text: str, remedy: str) -> None:
    (found,) = unit.judged(facts, drain_seconds=20)
    assert found.level == level
    assert text in found.text
    assert remedy in found.remedy


def test_a_service_that_is_well_or_somebody_elses() -> None:
    well = {"ActiveState": "active", "UnitFileState": "enabled", "TimeoutStopUSec": "1min 30s"}
    assert unit.judged({**well, "NRestarts": "0", "WatchdogUSec": "1min"}, 20) == []
    layout = this_layout()
    assert [f.level for f in unit.judged_files(layout.program, (), layout)] == ["ok"]
    (other,) = unit.judged_files(Path("/opt/old/posthouse"), (), layout)
    assert "/opt/old/posthouse" in other.text
    (old,) = unit.judged_files(layout.program, ("posthouse.service",), layout)
    assert "posthouse.service" in old.text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1min 30s", 90.0), ("500ms", 0.5), ("0", 0.0), ("infinity", None), ("", None)],
)
def test_times_as_systemctl_writes_them(text: str, seconds: float | None) -> None:
    assert unit.seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("version", "level"),
    [((3, 40, 1), "note"), ((3, 51, 3), "ok"), ((3, 44, 6), "ok"), ((3, 44, 5), "note"),
     ((3, 50, 7), "ok"), ((3, 51, 2), "note"), ((4, 0, 0), "ok")],
)  # fmt: skip
def test_which_sqlite_is_sound(version: tuple[int, ...], level: str) -> None:
    said = Said("software")
    software.say_sqlite(said, version)
    assert [f.level for f in said.findings] == [level]


def test_other_libraries_than_those_that_were_tested(tmp_path: Path) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("pydantic==0.0.1\nno-such-thing==1.0\n")
    said = Said("software")
    software.say_libraries(said, pins)
    (found,) = said.findings
    assert found.level == "warning"
    assert "(tested with 0.0.1)" in found.text
    assert "make clean install" in found.remedy


def test_a_library_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ours by our own metadata; what only tests need is left alone."""
    needed = software._needed()[0]
    pins = tmp_path / "constraints.txt"
    pins.write_text(f"{needed}=={software._installed(needed)}\nno-such-thing==1.0\n")
    assert _said_of(pins) == [("ok", "libraries are those that were tested")]
    monkeypatch.setattr(software, "_installed", lambda name: None)
    assert _said_of(pins) == [("problem", f"{needed} is missing")]


def _said_of(pins: Path) -> list[tuple[str, str]]:
    said = Said("software")
    software.say_libraries(said, pins)
    return [(f.level, f.text) for f in said.findings]


@pytest.mark.parametrize(
    ("free_mb", "files", "files_free", "level", "text"),
    [
        (4, 1000, 10, "problem", "the disk is nearly full: 4 MB free"),
        (0, 1000, 10, "problem", "the disk is full: 0 MB free"),
        (400, 1000, 10, "warning", "nearly full: 400 MB free"),
        (400, 1000, 0, "problem", "no inodes left"),
        (9000, 1000, 0, "problem", "no inodes left"),
        (9000, 0, 0, "ok", "9,000 MB free"),
    ],
)
def test_room_on_the_disk(free_mb: int, files: int, files_free: int, level: str, text: str) -> None:
    """Of files some disks have no number: then there is nothing to run out of."""
    free = free_mb * 256
    facts = os.statvfs_result((4096, 4096, 3_000_000, free, free, files, 5, files_free, 0, 255))
    said = Said("home")
    place.say_room(said, Path("/x"), facts)
    (found,) = said.findings
    assert (found.level, text in found.text) == (level, True)
    assert bool(found.remedy) == (level != "ok")


def test_a_home_on_a_disk_that_is_read_only(house: House, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12) as disk:
        shutil.copytree(house.home, disk / "home")
        house.env["POSTHOUSE_HOME"] = str(disk / "home")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        found = [f for f in house.troubles() if f.area == "home"]
    assert [f.level for f in found] == ["problem", "problem"]
    assert "mounted read-only" in found[0].text
    assert "remount,rw" in found[0].remedy
    assert "full: " in found[1].text


def test_what_vanishes_while_it_is_looked_at_is_nobodys(house: House) -> None:
    """As what a gateway at work writes beside its files."""
    assert not place._is_strange(house.home / "runs.json.7.new", os.geteuid())


def test_a_program_that_prints_no_text(tmp_path: Path) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nprintf 'Result=a\\377b\\nNRestarts=\\nodd'\n")
    program.chmod(0o755)
    assert facts_of({"PATH": str(tmp_path)}, "systemctl") == {
        "Result": "a\N{REPLACEMENT CHARACTER}b"
    }
    assert facts_of({"PATH": str(tmp_path)}, "timedatectl") == {}


@pytest.mark.parametrize(
    ("facts", "levels"),
    [
        ({"NTP": "yes", "NTPSynchronized": "yes"}, ["ok"]),
        ({"NTP": "no", "NTPSynchronized": "no"}, ["note"]),
        ({"NTP": "yes", "NTPSynchronized": "no"}, ["note"]),
        ({}, []),
    ],
)
def test_the_clock_is_set_by_the_network(facts: dict[str, str], levels: list[str]) -> None:
    assert [f.level for f in machine.judged(facts)] == levels


@pytest.mark.parametrize(("off", "words"), [(300.0, "ahead"), (-300.0, "behind"), (5.0, "")])
def test_a_clock_that_is_off(off: float, words: str) -> None:
    said = Said("model")
    say_skew(said, 1_000.0, now=1_000.0 + off)
    assert (words in said.findings[0].text) if words else said.findings == []


def test_the_command(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(house.home))
    assert main(["doctor", "--offline"]) == 0
    assert f"{house.home} (POSTHOUSE_HOME)" in capsys.readouterr().out
    house.say("telegram: [")
    assert main(["doctor", "--offline", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["home"] == str(house.home)
    assert {"area", "level", "text", "remedy"} == set(told["findings"][0])


def test_no_sdk_is_loaded_for_it(house: House) -> None:
    """They take two seconds and 100 MB."""
    line = (
        "import sys; from gateway.cli.main import main; main(['doctor', '--offline'])\n"
        "print(*{'anthropic', 'telegram', 'discord', 'aiohttp', 'mcp', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], env=house.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == ""


def _tool_wrote(house: House, name: str, size: int) -> None:
    folder = house.home / "workspace" / name
    folder.mkdir(mode=0o700, parents=True)
    (folder / "big").touch()
    os.truncate(folder / "big", size)


def test_how_much_tools_have_written(house: House) -> None:
    house.say("agent: {tools: {files: true, workspace_mb: 10, keep_free_mb: 1}}\n")
    assert [f for f in house.findings() if f.area == "workspaces"] == []
    _tool_wrote(house, "telegram-1", 3 * 1024**2)
    _tool_wrote(house, "telegram-2", 21 * 1024**2 // 2)
    _tool_wrote(house, "telegram-3", 19 * 1024**2 // 2)
    found = {f.text: f.level for f in house.findings() if f.area == "workspaces"}
    assert found == {
        "3 with 23 MB in all; each may hold 10 MB": "ok",
        "telegram-2 is full: 10 MB in 1 entries; in it tools can only delete": "warning",
        "telegram-3 is nearly full: 9 MB": "warning",
    }
    house.say("agent: {tools: {files: true, keep_free_mb: 1000000000}}\n")
    (problem,) = [f for f in house.findings() if f.level == "problem"]
    assert problem.text.startswith("tools write nothing: ")
    house.say("agent: {tools: {keep_free_mb: 1000000000}}\n")  # none writes
    assert [f for f in house.findings() if f.level == "problem"] == []


def test_a_home_below_a_file_can_not_be_made(house: House, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    house.env["POSTHOUSE_HOME"] = str(tmp_path / "file" / "home")
    (found,) = [f for f in house.findings() if f.area == "home"]
    assert found.level == "problem"
    assert f"{tmp_path / 'file'} is no folder" in found.text
