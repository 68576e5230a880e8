"""Owns the nightly care of the database: is it sound, what of it is made anew, and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agent.errors import StoreError
from agent.ports import Clock
from gateway.store_care_ports import Care, Found

log = logging.getLogger(__name__)

AFTER_START_SECONDS = 60.0
"""What was damaged while the daemon was down shows before much is written on top of it."""
THOROUGH_AFTER_SECONDS = 6.5 * 86_400
"""Once a week every index is compared with its table, and every word of search is read."""
LAST_THOROUGH = "last thorough check"
WORTH_SHARE = 0.25
WORTH_BYTES = 16 * 1024 * 1024
"""Writing the file anew holds up every write for about a second per 200 MB: so much is worth it."""
ABANDONED = "pages_abandoned"
"""Set by the store: pages of a search index that could not be dropped are still in the file."""
REWRITING_SINCE = "rewriting since"
REST_SECONDS = 6.5 * 86_400
"""What was cut off in its midst would be so in the next night too, and nobody is answered then."""
QUIET_SECONDS = 20.0
PATIENCE_SECONDS = 1800.0
"""For so long a quiet moment is waited for; then it is left to the next night."""
LOOK_SECONDS = 5.0
BETWEEN_STEPS_SECONDS = 0.05
"""Of making the index anew: everybody else goes first."""
AGAIN_SECONDS = 5.0
"""At least so long from one try to the next."""
PAGES_LOOKED_AT = "pages looked at"


class StoreCare:
    """Looks after the file. What it finds is in the log, and in `status` while it is so."""

    def __init__(self, care: Care, clock: Clock, advice: Callable[[], str]) -> None:
        """``advice``: what to do about damage, with the newest backup by name. Blocking, short."""
        self._care = care
        self._clock = clock
        self._advice = advice
        self._remark: str | None = None
        self._one_look = asyncio.Lock()

    @property
    def remark(self) -> str | None:
        """What is not whole; None: nothing that anybody has met."""
        return self._remark or self._care.index.remark

    async def nightly(self) -> str:
        """Check, then give back what is unused; what came of it, for the list of jobs."""
        return "; ".join([await self.check(), await self.tidy()])

    async def mind_index(self) -> None:
        """Look at the index of search, and have it made anew whenever it is damaged.

        For as long as something is written: damage of what is stored ends it.

        The first look is at once, so that a process that lives for a few seconds does it as well.
        """
        try:
            await self.look_at_index()
        except StoreError as exc:
            log.warning("the search index could not be looked at", extra={"reason": str(exc)})
        while self._remark is None:
            if await self._care.index.wanted():
                await self._look_at_pages()
            elif self._care.index.remark is not None:
                await self._make_index_anew()

    async def look_at_index(self) -> str | None:
        """Somebody has reason to think that it is damaged; what it is, as `remark` has it.

        Raises:
            StoreError: it could not be looked at.
        """
        async with self._one_look:
            of = self._care.index.rebuilds
            if (trouble := await self._care.index_trouble()) is not None:
                self._care.index.hurt(trouble, of=of)
        return self._care.index.remark

    async def _make_index_anew(self) -> None:
        """One step of it, and the rest behind that."""
        rest = BETWEEN_STEPS_SECONDS
        try:
            if not await self._care.maintain():
                rest = max(AGAIN_SECONDS, self._care.index.wait_seconds())
        except StoreError as exc:
            log.warning("search index could not be made anew", extra={"error": repr(exc)})
            rest = AGAIN_SECONDS  # it may have met a page that has to be looked at before
        if self._care.index.remark is not None:
            await self._clock.sleep(rest)

    async def _look_at_pages(self) -> None:
        """Somebody has met one that is damaged: not at night, but now."""
        try:
            # A store that takes what is written is none that has nothing but its last failure.
            await self._care.set_fact(PAGES_LOOKED_AT, str(self._clock.now()))
            await self._examined(thorough=True)
        except StoreError as exc:
            log.warning("the database could not be checked", extra={"reason": str(exc)})
            await self._clock.sleep(AGAIN_SECONDS)

    async def at_start(self) -> None:
        """A quick look, a minute after a start."""
        await self._clock.sleep(AFTER_START_SECONDS)
        try:
            await self._examined(thorough=False)
        except StoreError as exc:
            log.warning("the database could not be checked", extra={"reason": str(exc)})

    async def check(self) -> str:
        """Thoroughly once a week, quickly else.

        Raises:
            StoreError: it could not be looked at.
        """
        if (trouble := self._care.trouble()) is not None:
            return f"not checked: {trouble}"
        thorough = await self._thorough_is_due()
        said = await self._examined(thorough=thorough)
        if thorough and self._care.trouble() is None:
            await self._care.set_fact(LAST_THOROUGH, str(self._clock.now()))
        return said

    async def tidy(self) -> str:
        """Write the file anew if a quarter of it is unused, at a moment when nobody writes."""
        if self._care.trouble() is not None:
            return "not tidied"
        unused, all_bytes = await self._care.unused_bytes()
        abandoned = await self._care.fact(ABANDONED) is not None
        if not abandoned and (unused < WORTH_BYTES or unused < WORTH_SHARE * all_bytes):
            return f"{_mb(unused)} of {_mb(all_bytes)} unused"
        if not await self._quiet():
            return f"{_mb(unused)} unused, but somebody always writes; tomorrow again"
        if (cut_off := await self._cut_off()) is not None:
            return f"{_mb(unused)} unused; {cut_off}"
        begun = self._clock.monotonic()
        await self._care.set_fact(REWRITING_SINCE, str(self._clock.now()))
        try:
            rewritten = await self._care.rewrite_file()
        except StoreError:
            await self._care.set_fact(REWRITING_SINCE, None)
            raise
        await self._care.set_fact(REWRITING_SINCE, None)
        if not rewritten:
            return f"{_mb(unused)} unused, and the file can not be written anew; see the log"
        if abandoned:
            await self._care.set_fact(ABANDONED, None)
        seconds = self._clock.monotonic() - begun
        log.info("database written anew", extra={"freed_bytes": unused, "seconds": seconds})
        return f"{_mb(unused)} given back in {seconds:.1f} s"

    async def _cut_off(self) -> str | None:
        """Why it is left alone: somebody ended the process at the last time, in its midst."""
        try:
            since = float(await self._care.fact(REWRITING_SINCE) or 0)
        except ValueError:
            return None
        if not 0 <= self._clock.now() - since < REST_SECONDS:
            return None
        log.warning("the database is not written anew: the last time did not come to its end")
        return "writing it anew did not come to its end the last time; tried again a week later"

    async def _thorough_is_due(self) -> bool:
        last = await self._care.fact(LAST_THOROUGH)
        try:
            age = self._clock.now() - float(last or 0)
        except ValueError:
            return True
        return not 0 <= age < THOROUGH_AFTER_SECONDS

    async def _examined(self, *, thorough: bool) -> str:
        found = await self._care.examine(thorough=thorough)
        if found.sound:
            self._remark = None
            return "sound in every page and index" if thorough else "sound"
        # Twice: what is gone at the second look was none.
        found = await self._care.examine(thorough=True)
        if self._care.trouble() is not None:
            return f"not checked: {self._care.trouble()}"
        if found.sound:
            self._remark = None
            return "sound at the second look"
        if not found.pages:
            return await self._mended(found)
        return self._condemned(found.lines())

    async def _mended(self, found: Found) -> str:
        said = f"{found.lines()[0]}; it is made anew, nothing is lost"
        known = self._care.index.remark is not None and len(found.search) == len(found.lines())
        if not known:
            log.critical("the database was damaged: %s", said, extra={"found": found.lines()})
        try:
            await self._care.mend(found)
        except StoreError as exc:
            return self._condemned([*found.lines(), str(exc)])
        self._remark = None  # what is not whole yet is the index of search, which says so itself
        return said

    def _condemned(self, lines: Sequence[str]) -> str:
        reason = (
            f"the database is damaged ({lines[0]}), so nothing more is written. {self._advice()}"
        )
        self._remark = reason
        log.critical("%s", reason, extra={"found": list(lines)})
        self._care.condemn(reason)
        return reason

    async def _quiet(self) -> bool:
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while self._care.idle_seconds() < QUIET_SECONDS:
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(LOOK_SECONDS)
        return True


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
