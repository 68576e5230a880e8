"""Owns the console as a platform: lines in, answers out, on standard streams and attached ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent.errors import StoreUnavailable
from agent.ports import Clock, IdSource
from gateway import texts
from gateway.platforms.console import render as rendering
from gateway.platforms.console.convert import BOT_ID, PLATFORM, convert
from gateway.platforms.console.streams import StandardStreams, standard_streams
from gateway.platforms.contract import (
    Address,
    Attachment,
    FetchRefused,
    Intake,
    OutboxDraft,
    OutboxPart,
    PartDraft,
    PlatformState,
    PreviewBounds,
    PreviewKind,
    Report,
    SendUnavailable,
)
from gateway.tasks import StopReason, StopSignal, run_stoppable

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 5.0
LEAVE_SECONDS = 1.0
"""What reading from a terminal may take to end, once nobody looks at it any more."""


class Terminal(Protocol):
    """Somebody who reads and writes the console's chat."""

    @property
    def in_turns(self) -> bool:
        """Take the next line only when the one before is answered: a script, no person."""
        ...

    def lines(self) -> AsyncIterator[str]:
        """What is typed, until its end."""
        ...

    async def show(self, text: str) -> None:
        """Show an answer.

        Raises:
            OSError: nobody reads it any more.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Seat:
    """A terminal in use. ``gone`` is requested when nobody reads it any more."""

    terminal: Terminal
    gone: StopSignal = field(default_factory=StopSignal)


class ConsolePlatform:
    """`gateway.platforms.contract.Platform` for whoever has the server's console.

    All terminals share one chat: standard input and output (if it is used), and those that `attach`
    while they are connected. With no terminal open an answer waits.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ids: IdSource,
        idle: Callable[[], Awaitable[None]],
        on_attach: Callable[[], None] = lambda: None,
        standard: Terminal | None = None,
    ) -> None:
        """Make it.

        ``idle`` waits until the console's chat has every answer that it is owed. ``on_attach`` is
        called when an answer that waited can be shown.
        """
        self._clock = clock
        self._ids = ids
        self._idle = idle
        self._on_attach = on_attach
        self._standard = standard
        self._seats: set[_Seat] = set()
        self._intake: asyncio.Future[Intake] | None = None

    @property
    def name(self) -> str:
        return PLATFORM

    @property
    def bot_id(self) -> str | None:
        return BOT_ID

    @property
    def dedupes_sends(self) -> bool:
        return False

    async def run(self, intake: Intake, report: Report) -> None:
        """As the port; ends at the end of standard input, once everything is answered."""
        if not self._started().done():  # run again after a failure
            self._started().set_result(intake)
        report(PlatformState.RUNNING, "")
        if self._standard is None:
            await asyncio.Event().wait()
            return
        await self.attach(self._standard)

    async def attach(self, terminal: Terminal) -> None:
        """Serve a terminal until it has no more lines and all answers are shown, or it is gone."""
        intake = await asyncio.shield(self._started())
        seat = _Seat(terminal)
        self._seats.add(seat)
        self._on_attach()
        try:
            await run_stoppable(
                lambda: self._serve(terminal, intake),
                seat.gone,
                self._clock,
                name="console",
                grace_seconds=LEAVE_SECONDS,
            )
        except asyncio.CancelledError:
            raise  # a stop: whoever sits here still sees what is answered until `close`
        except BaseException:
            self._seats.discard(seat)
            raise
        self._seats.discard(seat)

    async def _serve(self, terminal: Terminal, intake: Intake) -> None:
        async for line in terminal.lines():
            await self._take(intake, line, terminal)
            if terminal.in_turns:
                await self._idle()
        await self._idle()

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        return rendering.render(draft.text, draft.files)

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        text = str(part.payload["text"])
        if repeat:
            text = rendering.REPEAT_MARK + text
        shown = 0
        for seat in [seat for seat in self._seats if seat.gone.reason is None]:
            try:
                await seat.terminal.show(text)
                shown += 1
            except OSError as exc:
                log.info("a console is gone", extra={"reason": str(exc)})
                seat.gone.request(StopReason.USER)
        if not shown:
            raise SendUnavailable("no console is open")
        return self._ids.new("shown")

    def preview_kind(self, address: Address) -> PreviewKind:
        return "none"

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return PreviewBounds(limit=4096, calls=1, seconds=1.0)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        return None

    async def take_buttons(self, address: Address, message_id: str) -> None:
        return None

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        raise FetchRefused("the console brings no files")

    async def typing(self, address: Address) -> None:
        return None

    async def close(self) -> None:
        self._seats.clear()

    def _started(self) -> asyncio.Future[Intake]:
        """The intake, once the platform runs; terminals may attach before."""
        if self._intake is None:
            self._intake = asyncio.get_running_loop().create_future()
        return self._intake

    async def _take(self, intake: Intake, line: str, terminal: Terminal) -> None:
        message = convert(line, message_id=self._ids.new("line"), now=self._clock.now())
        pause = FIRST_RETRY_SECONDS
        while message is not None:
            try:
                await intake.receive(message)
                return
            except StoreUnavailable as exc:
                log.error("line not stored yet", extra={"reason": str(exc)})
                if pause == FIRST_RETRY_SECONDS:
                    with contextlib.suppress(OSError):  # nobody there: as with any answer
                        await terminal.show(texts.NOT_TAKEN_YET)
                await self._clock.sleep(pause)
                pause = min(LONGEST_RETRY_SECONDS, pause * 2)
            except Exception:  # one line that breaks the intake must not end the conversation
                log.exception("line could not be taken")
                return


__all__ = ["ConsolePlatform", "StandardStreams", "Terminal", "standard_streams"]
