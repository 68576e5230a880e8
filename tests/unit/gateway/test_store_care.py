"""Owns the tests of the nightly care of the database, and of both jobs of the house."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agent.clock import RandomIds, SystemClock
from agent.errors import ConfigError, StoreUnavailable
from gateway.backups.nightly import (
    scheduled,
)
from gateway.config.environment import Home
from gateway.config.models import Config
from gateway.store_care import ABANDONED, LAST_THOROUGH, QUIET_SECONDS, WORTH_BYTES, StoreCare
from gateway.wiring.store_care import Night, build_care, look_before_opening
from storage.search.keeper import FOUND_BY_A_WRITE
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import begin, said, talk
from tests.fakes.clock import FakeClock
from tests.unit.gateway.backup_rig import filled, made, new_home

T = TypeVar("T")

DAY = 86_400.0


@dataclass(frozen=True)
class Finding:
    """What a check says."""

    pages: Sequence[str] = ()
    others: Sequence[str] = ()
    search: Sequence[str] = ()

    @property
    def sound(self) -> bool:
        return not (self.pages or self.others or self.search)

    def lines(self) -> list[str]:
        return [*self.pages, *self.others, *self.search]


class FakeIndex:
    """An index of search whose state a test decides."""

    def __init__(self) -> None:
        self.remark: str | None = None
        self.told = asyncio.Event()
        self.in_pages = False
        self.wait = 0.0
        self.rebuilds = 0

    def hurt(self, reason: str, *, of: int | None = None) -> None:
        assert of in (None, self.rebuilds)
        self.remark = reason
        self.told.set()

    async def wanted(self) -> bool:
        await self.told.wait()
        if self.remark is None:
            self.told.clear()
        in_pages, self.in_pages = self.in_pages, False
        return in_pages

    def wait_seconds(self) -> float:
        return self.wait


class FakeFile:
    """A file whose state a test decides."""

    def __init__(self) -> None:
        self.index = FakeIndex()
        self.trouble_with_index: str | None = None
        self.steps: list[bool | StoreUnavailable | None] = []
        """What each step of upkeep says; None: it is whole, and there is no more."""
        self.upkept = 0
        self.findings: list[Finding] = []
        self.looks: list[bool] = []
        self.mended = 0
        self.can_mend = True
        self.condemned: str | None = None
        self.facts: dict[str, str] = {}
        self.unused = (0, 0)
        self.idle = 1000.0
        self.rewritten = 0

    async def examine(self, *, thorough: bool) -> Finding:
        self.looks.append(thorough)
        return self.findings.pop(0) if self.findings else Finding()

    async def index_trouble(self) -> str | None:
        return self.trouble_with_index

    async def maintain(self) -> bool:
        self.upkept += 1
        said = self.steps.pop(0) if self.steps else None
        if isinstance(said, StoreUnavailable):
            raise said
        if said is None:
            self.index.remark = None
        return bool(said)

    async def mend(self, found: object) -> None:
        if not self.can_mend:
            raise StoreUnavailable("it is worse than that")
        self.mended += 1

    def condemn(self, reason: str) -> None:
        self.condemned = reason

    def trouble(self) -> str | None:
        return self.condemned

    def idle_seconds(self) -> float:
        return self.idle

    async def unused_bytes(self) -> tuple[int, int]:
        return self.unused

    async def rewrite_file(self) -> bool:
        self.rewritten += 1
        return True

    async def fact(self, name: str) -> str | None:
        return self.facts.get(name)

    async def set_fact(self, name: str, value: str | None) -> None:
        self.facts.pop(name, None)
        if value is not None:
            self.facts[name] = value


def care_of(file: FakeFile, clock: FakeClock) -> StoreCare:
    return StoreCare(file, clock, lambda: "`posthouse restore`")


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """It waits for the clock by now."""
    task = asyncio.ensure_future(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def test_what_was_cut_off_in_its_midst_is_not_begun_every_night(clock: FakeClock) -> None:
    """A disk too slow for it: the daemon was killed each night at the same place."""
    file = FakeFile()
    file.unused = (WORTH_BYTES, 2 * WORTH_BYTES)
    assert "given back" in await care_of(file, clock).tidy()
    assert file.facts == {}

    async def killed() -> bool:
        file.rewritten += 1
        raise asyncio.CancelledError

    whole, file.rewrite_file = file.rewrite_file, killed  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await care_of(file, clock).tidy()
    file.rewrite_file = whole  # type: ignore[method-assign]
    for _ in range(6):
        clock.jump(DAY)
        assert "did not come to its end" in await care_of(file, clock).tidy()
    assert file.rewritten == 2
    clock.jump(DAY)
    assert "given back" in await care_of(file, clock).tidy()
    assert "given back" in await care_of(file, clock).tidy()


async def test_thoroughly_once_a_week(clock: FakeClock) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    for _ in range(15):
        assert "sound" in await care.check()
        clock.jump(DAY)
    assert [n for n, thorough in enumerate(file.looks) if thorough] == [0, 7, 14]
    clock.set_wall(clock.now() - 400 * DAY)  # a clock that was wrong until now
    await care.check()
    assert file.looks[-1]


async def test_damage_is_condemned_and_says_what_to_do(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    file.findings = [Finding(["page 7"]), Finding(["page 7"])]
    said = await care.nightly()
    assert file.condemned is not None
    assert "page 7" in file.condemned
    assert "`posthouse restore`" in file.condemned
    assert care.remark == file.condemned
    assert "not tidied" in said
    assert [r.levelno for r in caplog.records] == [logging.CRITICAL]
    assert LAST_THOROUGH not in file.facts
    assert "not checked" in await care.check()


async def test_what_is_gone_at_the_second_look_is_no_damage(clock: FakeClock) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    file.findings = [Finding(["page 7"])]
    assert "second look" in await care.check()
    assert (file.condemned, care.remark) == (None, None)


async def test_what_can_be_made_anew_stops_nobody(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    file.findings = [Finding(search=["the search index"])] * 2
    await care.check()
    assert (file.mended, file.condemned, care.remark) == (1, None, None)
    assert [r.levelno for r in caplog.records] == [logging.CRITICAL]
    file.findings, file.can_mend = [Finding(others=["an index"])] * 2, False
    await care.check()
    assert file.condemned is not None


async def test_an_index_that_is_damaged_is_made_anew_at_once(clock: FakeClock) -> None:
    """It was left to the night: the backup an hour before that failed over it."""
    file = FakeFile()
    care = care_of(file, clock)
    file.trouble_with_index = "malformed"
    file.steps = [True, True]
    minding = await begun(care.mind_index())
    assert care.remark == "malformed"
    await clock.advance(1)
    assert (file.upkept, care.remark) == (3, None)
    file.index.hurt("malformed again")
    file.steps = [StoreUnavailable("full"), False, False]
    file.index.wait = 600.0
    await clock.advance(1)
    assert (file.upkept, care.remark) == (4, "malformed again")
    await clock.advance(700)
    assert file.upkept == 6
    await clock.advance(600)
    assert (file.upkept, care.remark) == (7, None)
    minding.cancel()


async def test_what_is_known_of_the_index_is_not_said_once_more(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = FakeFile()
    file.index.hurt("malformed")
    file.findings = [Finding(search=["malformed"])] * 2
    await care_of(file, clock).check()
    assert file.mended == 1
    assert not caplog.records


async def test_whoever_meets_damage_beside_the_daemon_has_it_looked_at(clock: FakeClock) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    assert await care.look_at_index() is None
    file.trouble_with_index = "malformed"
    assert await care.look_at_index() == "malformed"


async def test_a_page_that_somebody_has_met_is_looked_at_at_once(clock: FakeClock) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    minding = await begun(care.mind_index())
    file.index.in_pages = True
    file.findings = [Finding(["page 7"]), Finding(["page 7"])]
    file.index.told.set()
    await clock.advance(1)
    assert file.condemned is not None
    minding.cancel()


async def test_a_page_that_making_the_index_anew_meets_is_looked_at(clock: FakeClock) -> None:
    """Each step failed over a page of the messages, every five seconds until the night."""
    file = FakeFile()
    file.steps = [StoreUnavailable("malformed")] * 9
    file.index.hurt("malformed")
    minding = await begun(care_of(file, clock).mind_index())
    file.index.in_pages = True
    file.findings = [Finding(["page 7"]), Finding(["page 7"])]
    await clock.advance(60)
    assert file.condemned is not None
    assert len(file.looks) == 2
    assert file.upkept == 1, "nothing more is written"
    await minding


async def test_written_anew_when_it_is_worth_it_and_nobody_writes(clock: FakeClock) -> None:
    file = FakeFile()
    care = care_of(file, clock)
    for unused, of in ((0, 0), (WORTH_BYTES - 1, WORTH_BYTES), (WORTH_BYTES, 10 * WORTH_BYTES)):
        file.unused = unused, of
        await care.tidy()
    assert file.rewritten == 0
    file.unused, file.idle = (WORTH_BYTES, 2 * WORTH_BYTES), QUIET_SECONDS / 2
    waiting = await begun(care.tidy())
    await clock.advance(60)
    assert file.rewritten == 0
    file.idle = QUIET_SECONDS
    await clock.advance(10)
    assert "given back" in await waiting
    assert file.rewritten == 1
    file.idle = 0.0
    waiting = await begun(care.tidy())
    await clock.advance(3600)
    assert "tomorrow" in await waiting
    assert file.rewritten == 1


async def test_pages_that_nobody_uses_are_left_out_that_night(clock: FakeClock) -> None:
    file = FakeFile()
    file.facts[ABANDONED] = "1"
    assert "given back" in await care_of(file, clock).tidy()
    assert file.facts == {}
    await care_of(file, clock).tidy()
    assert file.rewritten == 1


# --- over a real store ----------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


@pytest.fixture
async def store(home: Home) -> AsyncIterator[SqlStore]:
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    yield store
    await store.close()


async def test_a_damaged_index_of_search_is_whole_the_next_night(
    home: Home, store: SqlStore, clock: FakeClock
) -> None:
    await talk(store, *(said(f"swordfish {n}") for n in range(50)))
    with closing(sqlite3.connect(home.database)) as db, db:
        db.execute("UPDATE message_index_data SET block = x'deadbeef' WHERE id > 10")
    care = build_care(home, store, clock)
    assert "made anew" in await care.nightly()
    assert care.remark is not None
    assert FOUND_BY_A_WRITE not in care.remark, "it was found by a check, which said how"
    while await store.maintain():
        pass
    assert care.remark is None
    assert "sound" in await care.check()


async def test_a_damaged_page_stops_the_writing_and_names_the_backup(
    home: Home, store: SqlStore, clock: FakeClock
) -> None:
    await talk(store, *(said(f"{n} " + "x" * 3000) for n in range(40)))
    backup = await made(home, str(home.path / "backups"))
    await store.close()
    with closing(sqlite3.connect(home.database)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'turns'"
        (page,) = db.execute(query).fetchone()
    with home.database.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    again = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    await build_care(home, again, clock).check()
    trouble = again.trouble()
    assert trouble is not None
    assert "posthouse restore" in trouble
    assert str(backup.backup.path) in trouble
    with pytest.raises(StoreUnavailable, match="posthouse restore"):
        await begin(again, "more")
    await again.close()


async def test_an_emptied_database_is_not_taken_for_a_new_one(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    home.database.touch()
    look_before_opening(home)  # as a first start that was cut off leaves it
    home.database.unlink()
    await filled(home)
    look_before_opening(home)
    os.truncate(home.database, 0)
    with pytest.raises(ConfigError) as refused:
        look_before_opening(home)
    assert "posthouse restore" in refused.value.problems[0]
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
    home.database.unlink()
    look_before_opening(home)
    assert "begins anew" in caplog.text


# --- as jobs of the house -------------------------------------------------------------------------


async def test_the_jobs_of_the_house(home: Home, store: SqlStore, clock: FakeClock) -> None:
    config = Config.model_validate({"backup": {"hour": 5, "keep": 1}})
    night = Night(home, store, clock, config)
    jobs = [maker(config, "Europe/Berlin") for maker in night.makers()]
    assert [(job.name, job.schedule.spec) for job in jobs if job is not None] == [
        ("backup", "0 5 * * *"),
        ("upkeep", "50 3 * * *"),
    ]
    await talk(store, said("x"))
    for job in jobs:
        assert job is not None
        assert await job.run()
    clock.jump(DAY)
    assert jobs[0] is not None
    await jobs[0].run()
    assert len(scheduled(home)) == 1
    off = Config.model_validate({"backup": {"enabled": False}})
    assert [maker(off, "UTC") is None for maker in night.makers()] == [True, False]
    assert len(Night(home, store, clock, off).beside()) == len(night.beside()) - 1


async def test_what_is_not_whole_stands_in_the_status(
    home: Home, store: SqlStore, clock: FakeClock
) -> None:
    await talk(store, *(said(f"swordfish {n}") for n in range(50)))
    with closing(sqlite3.connect(home.database)) as db, db:
        db.execute("UPDATE message_index_data SET block = x'deadbeef' WHERE id > 10")
    night = Night(home, store, clock, Config())
    details = night.details(lambda: {"model": "m"})
    assert details() == {"model": "m"}
    upkeep = night.makers()[1](Config(), "UTC")
    assert upkeep is not None
    await upkeep.run()
    assert "made anew" in details()["DATABASE"]
    while await store.maintain():
        pass
    assert details() == {"model": "m"}, "it stood there until the next night"
