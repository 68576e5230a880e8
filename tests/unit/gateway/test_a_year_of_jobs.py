"""A year of jobs over both changes of the clock in three zones: each due time once, none lost."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from agent.jobs.nouns import Schedule
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.unit.gateway.job_rig import JobRig, at, place

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
DAY = 86_400.0
BEGIN = "2026-06-01T00:00"


def walls(zone: str, spec: tuple[int, int], weekdays: tuple[int, ...]) -> list[float]:
    """The instants of a wall time over a year, by another way than the one that is tested."""
    zoned, found = ZoneInfo(zone), []
    day = datetime.fromisoformat(BEGIN)
    for _ in range(367):
        if day.isoweekday() % 7 in weekdays:
            wall = day.replace(hour=spec[0], minute=spec[1], tzinfo=zoned, fold=0)
            found.append(wall.timestamp())
        day += timedelta(days=1)
    return sorted(found)


EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
CASES = (
    ("30 2 * * *", (2, 30), EVERY_DAY),
    ("15 2 * * 0", (2, 15), (0,)),
    ("0 9 * * 1-5", (9, 0), (1, 2, 3, 4, 5)),
    ("45 1 * * 5-7", (1, 45), (0, 5, 6)),
)


@pytest.mark.parametrize("zone", ZONES)
async def test_a_year(zone: str, clock: FakeClock) -> None:
    clock.set_wall(at(BEGIN, zone) - 60)
    rig = JobRig(clock, store=MemoryStore(clock, SequentialIds()))
    rig.platform.limit = 4_000
    await rig.start()
    jobs = {}
    for spec, wall, weekdays in CASES:
        job = await rig.add(spec, Schedule("cron", spec, zone), "text", place())
        jobs[job.id] = walls(zone, wall, weekdays)
    beat = await rig.add("beat", Schedule("every", str(int(DAY)), zone), "text", place())
    begin, ran = clock.now(), Counter[tuple[str, float]]()
    while clock.now() < begin + 365 * DAY:
        await rig.runner.step()
        due = await rig.store.next_job_at()
        assert due is not None
        clock.jump(due - clock.now())
        for view in await rig.store.due_jobs(clock.now()):
            assert view.job.next_run_at is not None
            ran[view.job.id, view.job.next_run_at] += 1
    end = clock.now()
    await rig.runner.step()
    assert max(ran.values()) == 1
    for job_id, expected in jobs.items():
        found = sorted(due for one, due in ran if one == job_id)
        assert found == [due for due in expected if begin < due <= end]
    beats = sorted(due for one, due in ran if one == beat.id)
    assert len(beats) in (364, 365)
    assert {round(second - first) for first, second in pairwise(beats)} == {int(DAY)}
    assert len(rig.platform.texts()) + len(await rig.store.owed()) == len(ran)
