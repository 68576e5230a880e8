"""Owns what `posthouse status`, `posthouse top` and the metrics tell of a running daemon: numbers.

No text of anybody is in it. Store and files are asked with a deadline: whoever looks why nothing
works must get an answer when they give none.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.census import Census
from agent.errors import StoreError
from agent.sessions import place_of
from agent.spending import day_at
from gateway.crashes.runs import cut_off
from gateway.monitoring.home_files import FileFacts, HomeFiles
from gateway.monitoring.metrics import resident_bytes
from gateway.monitoring.provider import as_json
from gateway.monitoring.readiness import PlatformFacts, Readiness, judge
from gateway.monitoring.sources import JobFacts, Sources

log = logging.getLogger(__name__)

MOST_REFUSING = 5
"""Chats that take nothing, by name."""
STORE_SECONDS = 2.0
FILES_SECONDS = 2.0
DAY_SECONDS = 86_400.0
MOST_LANES = 200
WARM_SECONDS = 60.0
WARM_LOOKS = 60


class Overview:
    """Everything at a glance."""

    def __init__(self, sources: Sources) -> None:
        self._of = sources
        self._started = sources.clock.monotonic()
        self._base_bytes: float | None = None
        self._census: Census | None = None
        self._jobs: JobFacts | None = None
        self._home = HomeFiles(sources.home, sources.backups)
        self._files: FileFacts | None = None

    def start(self) -> None:
        """On the loop that is to be watched."""
        if self._of.loop_watch is not None:
            self._of.loop_watch.start()

    async def warm(self) -> None:
        """Memory is compared with what it is once all that is loaded on demand has been loaded.

        That is after a turn, a minute or more after the start; without one, after an hour.
        """
        for _ in range(WARM_LOOKS):
            await self._of.clock.sleep(WARM_SECONDS)
            if self._of.board.recent():
                break
        self._base_bytes = resident_bytes()

    def stop(self) -> None:
        """No more watching."""
        if self._of.loop_watch is not None:
            self._of.loop_watch.stop()

    def readiness(self, *, started: bool) -> Readiness:
        """Can anybody be served?"""
        states, troubled = self._of.supervisor.status, self._of.supervisor.troubled_seconds
        return judge(
            started=started,
            store_trouble=self._of.store_trouble(),
            platforms={
                name: PlatformFacts(s.state, s.reason, troubled[name]) for name, s in states.items()
            },
            console=self._of.console,
        )

    async def refresh(self) -> None:
        """Ask store and files anew; what they do not say in time is not known."""
        await self._refresh(workspaces=False)

    async def _refresh(self, *, workspaces: bool) -> None:
        await asyncio.gather(self._ask_store(jobs=True), self._look_at_files(workspaces))

    async def _look_at_files(self, workspaces: bool) -> None:
        self._files = await self._home.look(FILES_SECONDS, workspaces=workspaces)

    async def _ask_store(self, *, jobs: bool) -> None:
        now = self._of.clock.now()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                if self._of.census is not None:
                    day = day_at(now, self._of.zone())
                    self._census = await self._of.census(now, day.start)
                if jobs and self._of.jobs is not None:
                    self._jobs = await self._of.jobs()
        except (StoreError, TimeoutError) as error:
            self._census = self._jobs = None
            log.debug("the store does not say how it is", extra={"error": type(error).__name__})

    # one look

    async def status(self) -> dict[str, Any]:
        """For ``status``, beside what it always had."""
        await self._refresh(workspaces=True)
        space = self._files.workspaces if self._files is not None else None
        return {
            "uptime_seconds": round(self._of.clock.monotonic() - self._started, 1),
            "lanes": self.lane_numbers(),
            "queues": self.queues(),
            "today": self._today(),
            "compressions": self._compressions(),
            "cache_share": self._of.metrics.cache_share(),
            "provider": as_json(self._of.standing()),
            "jobs": None if self._jobs is None else asdict(self._jobs),
            "memory": self._memory(),
            "loop": self._loop(),
            "database": self._database(),
            "backups": None if self._files is None else asdict(self._files.backups),
            "workspaces": None if space is None else asdict(space),
            "runs": self._runs(),
            "crashes": self._crashes(),
        }

    async def top(self) -> dict[str, Any]:
        """For ``top``: cheap enough for every second."""
        await self._ask_store(jobs=False)
        return {
            "now": self._of.clock.now(),
            "uptime_seconds": round(self._of.clock.monotonic() - self._started, 1),
            "lanes": self.lane_numbers(),
            "queues": self.queues(),
            "today": self._today(),
            "memory": self._memory(),
            "loop": self._loop(),
            "cache_share": self._of.metrics.cache_share(),
            "rows": self._rows(),
            "recent": [asdict(turn) for turn in self._of.board.recent()],
        }

    # its parts

    def lane_numbers(self) -> dict[str, Any]:
        """How many are at work, how many wait, and since when."""
        running, waiting = self._of.lanes.counts()
        views = [view for _, view in self._of.lanes.views()]
        return {
            "running": running,
            "waiting": waiting,
            "longest_running_seconds": _rounded(max((v.running_seconds for v in views), default=0)),
            "oldest_waiting_seconds": _rounded(max((v.oldest_seconds for v in views), default=0)),
        }

    def queues(self) -> dict[str, Any] | None:
        """In the store; None: it does not say."""
        found, now = self._census, self._of.clock.now()
        if found is None:
            return None
        return {
            "inbox": found.inbox_new,
            "inbox_oldest_seconds": _age(found.inbox_oldest_at, now),
            "outbox": found.owed,
            "outbox_oldest_seconds": _age(found.owed_oldest_at, now),
            "outbox_in_doubt": found.in_doubt,
            "refusing_chats": len(found.refusing),
            "refusing": [asdict(chat) for chat in found.refusing[:MOST_REFUSING]],
            "quarantined": found.quarantined,
        }

    def jobs(self) -> JobFacts | None:
        """As last asked."""
        return self._jobs

    def files(self) -> FileFacts | None:
        """As last looked at."""
        return self._files

    def newest_backup_age(self) -> float | None:
        """Seconds; None: there is none, or nobody knows."""
        newest = self._files.backups.newest_at if self._files else None
        return _age(newest, self._of.clock.now())

    def file_bytes(self) -> dict[str, int]:
        """Of the database and its log."""
        path = self._of.database
        return {"file": _size(path), "wal": _size(path.with_name(path.name + "-wal"))}

    def _today(self) -> dict[str, Any] | None:
        found = self._census
        if found is None:
            return None
        return {"turns": dict(found.turns), "compressions": found.compressions}

    def _compressions(self) -> dict[str, Any]:
        found = self._census
        return {
            "since_start": self._of.metrics.compressed_count(),
            "last": self._of.metrics.last_compression(),
            "last_at": found.compressed_at if found else None,
            "cooling_down": found.cooling_down if found else None,
        }

    def _memory(self) -> dict[str, Any]:
        now = resident_bytes()
        grown = None if now is None or self._base_bytes is None else int(now - self._base_bytes)
        return {"resident_bytes": now and int(now), "grown_bytes": grown}

    def _loop(self) -> dict[str, Any] | None:
        watch = self._of.loop_watch
        if watch is None:
            return None
        lag = watch.lag()
        return {
            "p99_seconds": round(lag.p99, 4),
            "most_seconds": round(lag.most, 4),
            "stalls": watch.stalls,
        }

    def _database(self) -> dict[str, Any]:
        sizes = self.file_bytes()
        return {
            "bytes": sizes["file"],
            "wal_bytes": sizes["wal"],
            "trouble": self._of.store_trouble(),
        }

    def _runs(self) -> dict[str, Any] | None:
        if self._files is None:
            return None
        found, now = self._files.runs, self._of.clock.now()
        lost = cut_off(found)
        return {
            "starts_24h": sum(now - run.started_at < DAY_SECONDS for run in found),
            "cut_off": len(lost),
            "last_cut_off_at": lost[-1].started_at if lost else None,
        }

    def _crashes(self) -> dict[str, Any] | None:
        if self._files is None:
            return None
        found = self._files.crashes
        newest = found[0] if found else None
        return {
            "count": len(found),
            "newest": newest and {"at": newest.at, "what": newest.what, "file": str(newest.path)},
        }

    def _rows(self) -> list[dict[str, Any]]:
        now = self._of.clock.monotonic()
        turns = {turn.key: turn for turn in self._of.board.running()}
        rows = []
        for key, view in self._of.lanes.views()[:MOST_LANES]:
            turn = turns.get(key)
            rows.append(
                {
                    **_whereabouts(key),
                    "conversation_id": turn.conversation_id if turn else None,
                    "doing": "turn" if turn else view.running,
                    "seconds": _rounded(now - turn.began_at if turn else view.running_seconds),
                    "waiting": view.waiting,
                    "oldest_seconds": _rounded(view.oldest_seconds),
                    "requests": turn.requests if turn else 0,
                    "prompt_tokens": turn.prompt_tokens if turn else 0,
                    "output_tokens": turn.output_tokens if turn else 0,
                }
            )
        return rows


def _whereabouts(key: str) -> dict[str, str | None]:
    names = ("platform", "bot_id", "chat_id", "thread_id", "user_id")
    place = place_of(key)
    return dict(zip(names, place, strict=True)) if place is not None else {"platform": key[:80]}


def _rounded(seconds: float) -> float:
    return round(seconds, 1)


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else _rounded(max(0.0, now - at))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
