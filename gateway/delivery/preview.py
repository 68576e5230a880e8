"""Owns showing an answer while it is written: paced, never in the way of the answer itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.mail import Address
from agent.ports import Clock
from agent.sessions import TurnTicket
from gateway.delivery.beside import Beside
from gateway.delivery.chats import Chats
from gateway.delivery.pace import PreviewSettings
from gateway.delivery.preview_place import Noted, PreviewNotes, PreviewPlace
from gateway.delivery.unfinished import finished, is_beyond, unfinished
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    Platform,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.tasks import TaskOwner, wait_all

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Previews:
    """Makes the previews of turns, and is what they share."""

    platforms: Mapping[str, Platform]
    notes: PreviewNotes
    chats: Chats
    is_busy: Callable[[Address], bool]
    """Is something owed to this chat on its way? It comes first."""
    tasks: TaskOwner
    clock: Clock
    settings: PreviewSettings = field(default_factory=PreviewSettings)

    @asynccontextmanager
    async def of(
        self, ticket: TurnTicket, address: Address, *, resumed: bool = False
    ) -> AsyncIterator[Preview | None]:
        """Show a turn while the block runs; behind it nothing changes what was shown any more.

        None: this chat shows nothing. ``resumed``: go on in the message of before.
        """
        platform = self.platforms.get(address.platform)
        if platform is None or platform.preview_kind(address) == "none":
            yield None
            return
        preview = Preview(self, platform, ticket, address)
        if resumed:
            await preview.take_up()
        showing = self.tasks.spawn(preview.run(), name="preview")
        try:
            yield preview
        finally:
            showing.cancel()
            await preview.end()


class Preview:
    """What one running turn shows. The turn itself only ever calls `on_text`."""

    def __init__(
        self, shared: Previews, platform: Platform, ticket: TurnTicket, address: Address
    ) -> None:
        self._platform = platform
        self._chats = shared.chats
        self._is_busy = shared.is_busy
        self._tasks = shared.tasks
        self._clock = shared.clock
        self._settings = shared.settings
        self._address = address
        self._is_draft = platform.preview_kind(address) == "draft"
        self._bounds = platform.preview_bounds(address)
        self._pieces: list[str] = []
        self._news = asyncio.Event()
        self._voided = ""
        """What was said last and is not part of the answer: words ahead of a tool."""
        self._whole = False
        """The message is full: more text changes nothing."""
        self._began: float | None = None
        """When the first text came, since what was shown was void."""
        self._place = PreviewPlace(shared.notes, ticket, address, shared.clock, shared.settings)
        self._shown = ""
        self._last_at = 0.0
        self._count = 0
        self._floods = 0
        self._failures = 0
        self._over = False
        self._left_behind = False
        self._under_way: asyncio.Future[None] | None = None

    # for the turn

    def on_text(self, delta: str) -> None:
        """As `agent.ports.TurnObserver.on_text`."""
        if delta:
            self._pieces.append(delta)
            if not self._whole:
                self._news.set()
            return
        self._voided = self.text or self._voided
        self._pieces.clear()
        self._whole = False
        self._began = None

    @property
    def text(self) -> str:
        """All that was said so far and not taken back, whether it was shown or not."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_shown(self) -> bool:
        """Did anything of this turn appear in the chat?"""
        return self._count > 0 or self._place.message_id is not None

    async def take_up(self) -> None:
        """Go on in the message in which this turn was shown before a restart."""
        if not await self._place.take_up():
            self._over = True  # a second message would be one too many

    async def run(self) -> None:
        """Show what there is, as often as the chat takes it, until cancelled or in vain."""
        while not self._over:
            if not await self._news_come():
                self._shown = ""  # the draft goes by itself if nobody shows it anew
            self._news.clear()
            while (wait := self._wait_seconds()) > 0:
                await self._clock.sleep(max(wait, self._settings.least_sleep_seconds))
            shown = unfinished(self.text, self._bounds.limit)
            self._whole = is_beyond(self.text, self._bounds.limit)
            if shown and shown != self._shown:
                await self._call(shown)

    async def end(self) -> None:
        """Nothing changes the message after this; what is under way gets a moment to arrive."""
        self._over = True
        await self._settled()

    async def _settled(self) -> None:
        """What is under way arrives, or the turn does without previews from now on."""
        call = self._under_way
        if call is None or call.done():
            return
        if await wait_all((call,), self._clock, self._settings.patience_seconds):
            return
        log.info("a preview was left behind", extra={"platform": self._address.platform})
        self._over = self._left_behind = True
        if self._place.message_id is not None or self._is_draft:
            call.cancel()

    async def stand(self) -> None:
        """A question comes below what is shown: that is finished, and what follows is put below."""
        if self._is_draft or (self._under_way is None and self._place.message_id is None):
            return
        await self._settled()
        text, shown = finished(self.text or self._voided, self._bounds.limit), self._place
        self.on_text("")
        if shown.message_id is not None:  # without words: it shows those of before a restart
            beside = Beside(self._platform, self._chats)
            putting = beside.put_down(self._address, shown.message_id, text, self._clock)
            self._under_way = self._tasks.spawn(putting, name="preview put down")
            await wait_all((self._under_way,), self._clock, self._settings.patience_seconds)
        if not await shown.leave():
            # The answer may come in its place, where no belated edit must land.
            await self.end()
            return
        self._under_way, self._shown, self._voided, self._count = None, "", "", 0

    async def rest(self, mark: str) -> None:
        """Behind `end`: let a message that will be gone on with stand without a cursor."""
        if (
            self._place.message_id is None
            or not self._shown
            or self._is_silent()
            or self._left_behind
        ):
            return
        self._over = False
        self._begin_call(f"{finished(self.text, self._bounds.limit)}\n\n{mark}")
        await self.end()

    # pace

    async def _news_come(self) -> bool:
        if not self._is_draft or not self._shown:
            await self._news.wait()
            return True
        news = asyncio.ensure_future(self._news.wait())
        try:
            return await wait_all((news,), self._clock, self._settings.refresh_seconds)
        finally:
            news.cancel()

    def _wait_seconds(self) -> float:
        now = self._clock.monotonic()
        wait = self._chats.budget(self._address).spare_seconds(self._bounds)
        if self._count:
            interval = self._settings.interval(self._count, self._failures, self._bounds)
            return max(wait, self._last_at + interval - now)
        if self._place.message_id is None and self._is_busy(self._address):
            wait = max(wait, self._settings.first_at_last_seconds)
        if self._failures:
            wait = max(wait, self._last_at + 2.0**self._failures - now)
        if self._began is None:
            self._began = now
        return max(wait, self._settings.wait_for_first(now - self._began, self.text))

    def _is_silent(self) -> bool:
        gone = self._chats.is_gone(self._address)
        return gone or self._chats.budget(self._address).wait_seconds > 0

    # the calls

    async def _call(self, text: str) -> None:
        if self._over or self._chats.is_gone(self._address):
            self._over = True
            return
        # Shielded: whoever ends the preview decides what becomes of a call that is under way.
        await asyncio.shield(self._begin_call(text))

    def _begin_call(self, text: str) -> asyncio.Future[None]:
        self._chats.budget(self._address).called()
        self._last_at = self._clock.monotonic()
        self._under_way = self._tasks.spawn(self._show(text), name="preview call")
        return self._under_way

    async def _show(self, text: str) -> None:
        try:
            message_id = await self._platform.preview(
                self._address, text, self._place.message_id, self._place.key
            )
        except SendFlood as exc:
            self._chats.budget(self._address).silence(exc.retry_after_seconds)
            self._floods += 1
            self._over = self._over or self._floods >= self._settings.strikes
        except ChatGone:
            self._chats.lost(self._address)
            self._over = True
        except (SendRefused, EditRefused) as exc:
            log.info("preview refused", extra={"reason": str(exc)})
            self._over = True
        except (SendUnavailable, SendUnknown) as exc:
            self._failures += 1
            doubled = isinstance(exc, SendUnknown) and self._could_double()
            self._over = self._over or doubled or self._failures >= self._settings.strikes
        except Exception:  # the supervised border of a platform: only an ornament
            log.warning("preview crashed", exc_info=True)
            self._over = True
        else:
            self._failures = 0
            self._count += 1
            self._shown = text
            self._last_at = self._clock.monotonic()
            if message_id is not None and self._place.message_id is None:
                await self._note(message_id)

    def _could_double(self) -> bool:
        """Would another call send another message, if the one before has arrived?"""
        return (
            self._place.message_id is None
            and not self._is_draft
            and not self._platform.dedupes_sends
        )

    async def _note(self, message_id: str) -> None:
        """Stored before it is edited; a message that can not be is taken away again."""
        noted = await self._place.note(message_id, lambda: self._left_behind)
        if noted is Noted.YES:
            return
        self._over = True
        if noted is Noted.MAYBE:  # then the answer comes in its place, so it has to stay
            return
        try:
            await self._platform.preview(self._address, "", message_id, self._place.key)
        except Exception:  # the supervised border of a platform: it stays, as half an answer
            log.warning("a preview could not be taken away", exc_info=True)
