"""Owns the way of raw updates into the intake: converted, handed in, kept until they are stored."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway import texts
from gateway.platforms.contract import Intake, PlatformState, Report
from gateway.platforms.telegram.convert import (
    PLATFORM,
    Edited,
    Moved,
    News,
    Said,
    chat_of,
    update_id,
)
from gateway.platforms.telegram.native.buttons import Pressed
from gateway.platforms.telegram.pieces import Pieces

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
"""Whatever was in the way, updates come again within ten seconds of its end."""
MAX_RAW_CHARS = 100_000

AnswerPress = Callable[[str, str], None]
Convert = Callable[[Mapping[str, Any]], News | None]
_Store = Callable[[], Awaitable[object]]
_Keep = Callable[[_Store], Awaitable[None]]
"""How a store that takes nothing is met: by waiting for it, or by giving up."""


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """An update that could not be converted."""

    reason: str


class Incoming:
    """Where every update of one bot goes, however it came."""

    def __init__(
        self,
        convert: Convert,
        bot_id: str,
        intake: Intake,
        report: Report,
        clock: Clock,
        answer_press: AnswerPress = lambda query_id, text: None,
    ) -> None:
        """``answer_press``: see `presses.Presses.answer`."""
        self._convert = convert
        self._bot_id = bot_id
        self._intake = intake
        self._report = report
        self._clock = clock
        self._answer_press = answer_press
        self._pieces = Pieces()
        self._waiting = 0
        """How many updates wait for the store."""

    async def remember(self) -> None:
        """What was said just before: pieces of it may still come."""
        try:
            lately = await self._intake.lately(PLATFORM, self._bot_id)
        except StoreUnavailable:
            log.warning("what was said lately is not known", extra={"platform": PLATFORM})
            return
        for message in lately:
            self._pieces.complete(message)

    async def take(self, update: Any) -> None:
        """One of them, tried once; else as `hand_in_all`.

        Raises:
            StoreUnavailable: not stored; Telegram has to keep it.
        """
        await self._take(update, self._read(update), _once)

    async def set_aside(self, raw: str, reason: str) -> None:
        """Put into quarantine, tried once, what is not even JSON.

        Raises:
            StoreUnavailable: not stored; Telegram has to keep it.
        """
        await self._quarantine(raw, reason, _once)

    async def hand_in_all(
        self, updates: Sequence[Any], on_stored: Callable[[], None] = lambda: None
    ) -> None:
        """Any JSON values at all. When this returns, Telegram may forget the updates.

        Never fails: what can not be read, or breaks the intake, is put into quarantine, and while
        the store takes nothing this waits (and says so).

        Each chat's are handed in in their order, the chats beside each other.
        So the store commits them in groups, and a chat with a hundred messages holds up no other.
        ``on_stored`` is called after each.
        """
        read = [(update, self._read(update)) for update in updates]
        said = (news.message for _, news in read if isinstance(news, Said))
        self._pieces.learn(said)
        chats: dict[str | None, list[tuple[Any, News | _Unreadable | None]]] = {}
        for update, news in read:
            chats.setdefault(chat_of(update), []).append((update, news))
        async with asyncio.TaskGroup() as group:
            for each in chats.values():
                group.create_task(self._take_in_order(each, on_stored))

    async def _take_in_order(
        self, read: Sequence[tuple[Any, News | _Unreadable | None]], on_stored: Callable[[], None]
    ) -> None:
        for update, news in read:
            await self._take(update, news, self._until_stored)
            on_stored()

    def _read(self, update: Any) -> News | _Unreadable | None:
        try:
            return self._convert(update)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with it, the next ones must come
            # Logged by the intake, with this reason, when it is put aside.
            return _Unreadable(f"unreadable: {type(exc).__name__} in {_where(exc)}")

    async def _take(self, update: Any, news: News | _Unreadable | None, keep: _Keep) -> None:
        give: _Store
        match news:
            case None:
                return
            case _Unreadable(reason):
                await self._quarantine(update, reason, keep)
                return
            case Said(message):
                give = partial(self._intake.receive, self._pieces.complete(message))
            case Edited(message):
                give = partial(self._intake.edited, message)
            case Pressed():
                give = partial(self._press, news)
            case Moved(old, new):
                give = partial(self._intake.moved, PLATFORM, self._bot_id, old, new)
        try:
            await keep(give)
        except StoreUnavailable:
            raise
        except Exception as exc:  # one that breaks the intake must not block all the others
            log.exception("update broke the intake", extra={"update_id": update_id(update)})
            await self._quarantine(update, f"intake failed: {type(exc).__name__}", keep)

    async def _press(self, pressed: Pressed) -> None:
        """The same as if it had been typed. Strangers are told nothing, as everywhere."""
        message = pressed.message
        if message is None:
            told = ""
        elif pressed.ours:
            await self._intake.receive(message)
            told = ""
        else:
            told = texts.BUTTON_WITHOUT_USE if self._intake.admits(message) else ""
        self._answer_press(pressed.query_id, told)

    async def _quarantine(self, update: Any, reason: str, keep: _Keep) -> None:
        raw, number = _raw(update), update_id(update)
        # What has no number can not be confirmed and comes again: it is kept once, by its content.
        shown = f"?{sha256(raw.encode()).hexdigest()[:16]}" if number is None else str(number)
        await keep(lambda: self._intake.quarantine(PLATFORM, self._bot_id, shown, raw, reason))

    async def _until_stored(self, store: _Store) -> None:
        """Try until the store takes it. Telegram keeps the update as long as we do not move on."""
        try:
            await store()
        except StoreUnavailable:
            self._waiting += 1
            try:
                await self._keep_trying(store)
            finally:
                self._waiting -= 1
            if not self._waiting:
                self._report(PlatformState.RUNNING, "")

    async def _keep_trying(self, store: _Store) -> None:
        count = 0
        while True:
            count += 1
            self._report(PlatformState.DEGRADED, "the store is not available")
            await self._clock.sleep(pause_seconds(count))
            try:
                await store()
            except StoreUnavailable:
                continue
            return


async def _once(store: _Store) -> None:
    await store()


def _where(exc: Exception) -> str:
    """Where it was raised. What it says may be somebody's words, and this is logged."""
    *_, last = traceback.extract_tb(exc.__traceback__)
    return f"{last.name}, line {last.lineno}"


def pause_seconds(count: int) -> float:
    """How long to wait after the n-th failure in a row."""
    pause: float = FIRST_PAUSE_SECONDS * 2 ** min(count - 1, 10)
    return min(LONGEST_PAUSE_SECONDS, pause)


def _raw(update: Any) -> str:
    """The update as text; what the JSON reader took, but its writer refuses, as Python shows it."""
    try:
        return json.dumps(update, ensure_ascii=True, default=repr)[:MAX_RAW_CHARS]
    except (ValueError, RecursionError):
        return repr(type(update))
