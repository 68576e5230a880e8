"""Owns whether the full-text index is whole, as the process knows it, and when it is made anew.

Whoever finds out that it is not (a search, a message that is stored, a look at the file, a backup)
says so here. What is in the file is `storage.search.index`.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable

from agent.errors import StoreError
from agent.ports import Clock
from storage.database import is_damage
from storage.search.index import Kept

_log = logging.getLogger(__name__)

WAITS_SECONDS = (0.0, 60.0, 600.0, 3600.0, 6 * 3600.0)
"""Before it is made anew for the first time, the second, …; the last one is for all that follow."""
CALM_SECONDS = 86_400.0
"""Whole for so long: what comes now is another damage."""
FOUND_BY_A_WRITE = "it could not take in what was stored"


class IndexKeeper:
    """One for each store; on the event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reason: str | None = None
        """Why it is not whole; None: as far as anybody knows it is."""
        self._begun = False
        self.rebuilds = 0
        """How often it was made anew since the start."""
        self._tries = 0
        self._tried_at = self._whole_at = clock.monotonic()
        self._failed: str | None = None
        self._forsaken = False
        self._hurt = asyncio.Event()
        self._pages = False

    # what is found out

    def hurt(self, reason: str, *, in_pages: bool = False, of: int | None = None) -> None:
        """It did not do what it is for; said in the log once, until it is whole.

        ``in_pages``: SQLite met a page that is none; only a look at the file tells whose it is.
        ``of``: which one did not, by `rebuilds`; it may have been made anew since.
        """
        if in_pages:
            _log.error("a page of the database is damaged; it is looked at: %s", reason)
            self._pages = True
            self._hurt.set()
            return
        if of is not None and of != self.rebuilds:
            return
        if self._reason is None:
            self._reason = reason
            self._begun = False
            _log.error("search index is damaged; it is made anew, nothing is lost: %s", reason)
        self._hurt.set()

    def found_by_writer(self, page_damage: str | None) -> None:
        """By the thread that writes; None: the index was left out of what was stored."""
        if page_damage is not None:
            self.hurt(page_damage, in_pages=True)
        elif not self._begun:
            self.hurt(FOUND_BY_A_WRITE)

    async def step(self, maintain: Callable[[bool, bool, bool], Awaitable[Kept]]) -> bool:
        """Have one step of upkeep done (`storage.search.index.maintain`); True: there may be more.

        Raises:
            StoreError: it could not be; if it was to be made anew, that is tried again later.
        """
        distrusted = self._reason is not None and not self._begun
        try:
            kept = await maintain(distrusted, self.wait_seconds() == 0, self._forsaken)
        except StoreError as exc:
            if distrusted:
                # It may be that it can not be dropped; the next try does without.
                self._forsaken = isinstance(exc.__cause__, sqlite3.Error) and is_damage(
                    exc.__cause__
                )
                self._failed = str(exc)
                self._count()
            raise
        self._heard(kept)
        return kept.more

    def _heard(self, kept: Kept) -> None:
        if kept.begun:
            self._forsaken = False
            self.rebuilds += 1
            self._count()
        if kept.damaged:
            self._begun = False
            self.hurt(FOUND_BY_A_WRITE)
        elif not kept.whole:
            self._begun = True
        else:
            if self._reason is not None:
                _log.warning("search index is whole again")
                self._whole_at = self._clock.monotonic()
            self._reason = self._failed = None
            self._begun = False

    def _count(self) -> None:
        self._tries += 1
        self._tried_at = self._clock.monotonic()

    # what is to be done

    def wait_seconds(self) -> float:
        """Until it may be made anew."""
        now = self._clock.monotonic()
        if self._reason is None and now - self._whole_at > CALM_SECONDS:
            self._tries = 0
        pause = WAITS_SECONDS[min(self._tries, len(WAITS_SECONDS) - 1)]
        return max(0.0, self._tried_at + pause - now) if self._tries else 0.0

    async def wanted(self) -> bool:
        """Wait until it is hurt; True: the file itself has to be looked at."""
        await self._hurt.wait()
        pages = self._pages
        self._pages = False
        if self._reason is None:
            self._hurt.clear()
        return pages

    @property
    def remark(self) -> str | None:
        """For people, as long as it is not whole."""
        if self._reason is None:
            return None
        if self._failed is not None:
            minutes = self.wait_seconds() / 60
            return (
                f"the search index is damaged and could not be made anew ({self._failed}); tried"
                f" again in {minutes:.0f} min. Nothing is lost; until then search is slower"
            )
        wait = self.wait_seconds()
        later = f"is made anew in {wait / 60:.0f} min" if wait >= 60 else "is being made anew"
        what = "is being made anew" if self._begun else later
        return f"the search index was damaged ({self._reason}); it {what}, nothing is lost"
