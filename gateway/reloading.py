"""Owns the reload: what is read again, who takes over what has changed, what waits for a start.

Parts that can take over a change say so at the composition (`Reloads.on`); those that only look
at a value when they need it read `Reloads.config`. A turn that runs keeps what it began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from agent.errors import ConfigError
from agent.llm.background import in_daemon_thread
from agent.ports import Clock
from gateway.config.models import Config
from gateway.config.reading import FileText, Reading, Source, changed_secrets
from gateway.config.taking_effect import changed_paths, covers, takes_effect, with_paths

log = logging.getLogger(__name__)

Read = TypeVar("Read")
Apply = Callable[[Config], Awaitable[None]]

WRITING_SECONDS = 0.3
"""Two looks so far apart have to agree: an editor may be writing the file at this moment."""
SHORTER_SECONDS = 1.0
"""The same for one that has become shorter, or is without its last line's end."""
MOST_LOOKS = 10
READ_SECONDS = 8.0
"""A disk of the network may hang; `posthouse config reload` waits for two looks and a reading."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What came of one."""

    applied: tuple[str, ...] = ()
    """Dotted paths whose new values are in force."""
    restart: tuple[str, ...] = ()
    """Dotted paths, and names of secrets, whose new values wait for the next start."""
    errors: tuple[str, ...] = ()
    """Why nothing was taken over."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Taker:
    prefixes: tuple[str, ...]
    apply: Apply


class Reloads:
    """The configuration in force, and the way to another one."""

    def __init__(self, started: Reading, source: Source | None, clock: Clock) -> None:
        """``source``: where it came from; None: from nowhere that could be read again."""
        self._started = started
        self._config = started.config
        self.counts = {"taken over": 0, "refused": 0}
        """Of reloads, by what came of them."""
        self._source = source
        self._last = started.file
        self._clock = clock
        self._takers: list[_Taker] = []
        self._told: list[Callable[[Reading], None]] = []
        self._lock = asyncio.Lock()
        self._errors: tuple[str, ...] = ()
        self._waiting: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """What is in force: as at the start, with what reloads have changed since."""
        return self._config

    def on(self, prefixes: Sequence[str], apply: Apply) -> None:
        """Who takes over changes of these paths; called with the whole configuration in force.

        Raises:
            ValueError: the table says that one of them needs a start.
        """
        for prefix in prefixes:
            if takes_effect(prefix) != "reload":
                raise ValueError(f"{prefix} takes effect with a start only (TAKES_EFFECT)")
        self._takers.append(_Taker(tuple(prefixes), apply))

    def looked_at(self, *prefixes: str) -> None:
        """Of these the values are read from `config` whenever they are needed."""
        self.on(prefixes, _nothing)

    def on_reading(self, told: Callable[[Reading], None]) -> None:
        """Who hears of every good reading, before anything is taken over."""
        self._told.append(told)

    def is_taken_over(self, path: str) -> bool:
        """Does a part of this daemon take over changes of this path?"""
        return any(covers(prefix, path) for taker in self._takers for prefix in taker.prefixes)

    async def reload(self) -> Reload:
        """Read all of it again and take over what can be; a bad reading changes nothing."""
        async with self._lock:
            source = self._source
            if source is None:
                return self._refused(["this daemon's configuration does not come from a file"])
            try:
                file = await self._settled(source)
                reading = await _read(partial(source.reading, file))
                for told in self._told:
                    told(reading)
            except ConfigError as exc:
                return self._refused(exc.problems)
            except Exception as exc:  # the supervised border: the next reload shall be possible
                log.exception("the configuration was not read")
                return self._refused([f"not read, by a fault of ours: {type(exc).__name__}"])
            return await self._take_over(reading)

    def details(self) -> dict[str, str]:
        """For ``posthouse status``: nothing where there is nothing to say."""
        found: dict[str, str] = {}
        if self._errors:
            found["CONFIGURATION REFUSED"] = (
                f"{'; '.join(self._errors)}; the last good one is in force"
            )
        if self._waiting:
            found["waits for a restart"] = ", ".join(self._waiting)
        return found

    async def _settled(self, source: Source) -> FileText:
        """Once two looks agree: an editor may be writing it, or putting a new file in its place.

        Raises:
            ConfigError: it can not be read, or it is not what anybody meant.
        """
        before = await _look(source)
        for _ in range(MOST_LOOKS):
            await self._clock.sleep(
                WRITING_SECONDS if self._seems_whole(before) else SHORTER_SECONDS
            )
            after = await _look(source)
            if after == before:
                if isinstance(after, str):
                    raise ConfigError(after.splitlines())
                if after.is_empty and not self._last.is_empty:
                    raise ConfigError([f"{after.name}: is empty or gone, and it was not before"])
                return after
            before = after
        raise ConfigError(["the configuration is still being written; reload again"])

    def _seems_whole(self, look: FileText | str) -> bool:
        if isinstance(look, str):
            return False
        return look.text.endswith("\n") and len(look.text) >= len(self._last.text)

    def _refused(self, problems: Sequence[str]) -> Reload:
        self.counts["refused"] += 1
        self._errors = tuple(problems)
        for line in problems:
            log.error("the configuration was not reloaded: %s", line)
        return Reload(errors=self._errors)

    async def _take_over(self, reading: Reading) -> Reload:
        before = self._config
        changed = list(changed_paths(before, reading.config))
        live = {p for p in changed if takes_effect(p) == "reload" and self.is_taken_over(p)}
        self._config = with_paths(before, reading.config, frozenset(live))
        failed: set[str] = set()
        for taker in self._takers:
            concerned = {p for p in live if any(covers(prefix, p) for prefix in taker.prefixes)}
            if not concerned:
                continue
            try:
                await taker.apply(self._config)
            except Exception:  # the supervised border: one part must not keep the others from it
                log.exception("a changed configuration was not taken over")
                failed |= concerned
        if failed:  # the next reload tries again
            self._config = with_paths(self._config, before, frozenset(failed))
        self.counts["taken over"] += 1
        self._last, self._errors = reading.file, ()
        applied = tuple(p for p in changed if p in live - failed)
        self._waiting = (
            *(p for p in changed if p not in applied),
            *_changed_sections(self._started.sections, reading.sections),
            *changed_secrets(self._started, reading),
        )
        waiting = {"waits_for_a_restart": ",".join(self._waiting)} if self._waiting else {}
        log.info(
            "configuration reloaded", extra={"changed": ",".join(applied) or "nothing", **waiting}
        )
        for line in reading.warnings:
            log.warning(line)
        return Reload(applied, self._waiting, warnings=reading.warnings)


async def _look(source: Source) -> FileText | str:
    """The file as it is now, or why it can not be read."""
    try:
        return await _read(source.text)
    except ConfigError as exc:
        return str(exc)


async def _read(work: Callable[[], Read]) -> Read:
    """Beside the loop, and not for ever: whoever asks for the next reload must not wait for it.

    Raises:
        ConfigError: as the work does, or the disk does not answer.
    """
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await in_daemon_thread(work, "config-reading")
    except TimeoutError as exc:
        raise ConfigError(
            [f"the configuration or a secret was not read within {READ_SECONDS:g} seconds"]
        ) from exc


def _changed_sections(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]


async def _nothing(config: Config) -> None:
    """The values are looked at when they are needed."""
