"""Owns plugins' platforms as platforms of ours: each on its plugin's loop, watched from ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from agent.mail import Address, OutboxDraft, OutboxPart, PartDraft
from agent.plugin_contract import (
    ChatAdapter,
    NeverSendable,
    NotSent,
    WrongSettings,
)
from agent.ports import Clock
from gateway import texts
from gateway.delivery.splitting import split_markdown
from gateway.platforms.contract import (
    Attachment,
    EditRefused,
    FetchRefused,
    Intake,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    PreviewBounds,
    PreviewKind,
    Report,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.plugins.calling import Callee, CallFailed, PluginCalls
from gateway.plugins.collected import PluginPlatform
from gateway.plugins.door import MAX_ID_CHARS, Door
from gateway.plugins.loops import PluginLoops
from gateway.tasks import wait_all

log = logging.getLogger(__name__)
T = TypeVar("T")

_REPEAT = f"{texts.POSSIBLE_REPEAT} "
_REPEAT_CHARS = len(_REPEAT)
MAKING_SECONDS = 10.0
SEND_SECONDS = 30.0
SIGN_SECONDS = 20.0
"""So often it is asked whether its loop still turns …"""
ANSWER_SECONDS = 10.0
"""… and so long it may take to answer."""
CLOSE_SECONDS = 2.0
MIN_CHARS, USUAL_CHARS, MOST_CHARS = 200, 2000, 100_000


class ForeignPlatform:
    """`gateway.platforms.contract.Platform` by a plugin's `ChatAdapter`."""

    dedupes_sends = False

    def __init__(
        self,
        given: PluginPlatform,
        settings: Mapping[str, Any],
        calls: PluginCalls,
        loops: PluginLoops,
        clock: Clock,
    ) -> None:
        self._given = given
        self._settings = dict(settings)
        self._calls = calls
        self._loops = loops
        self._clock = clock
        self._callee = Callee(given.plugin, f"platform {given.name}")
        self._adapter: ChatAdapter | None = None
        self._max_chars = USUAL_CHARS

    @property
    def name(self) -> str:
        return self._given.name

    @property
    def bot_id(self) -> str | None:
        return self._given.name

    async def run(self, intake: Intake, report: Report) -> None:
        adapter = await self._made()
        loop = self._loops.of(self._given.plugin)
        door = Door(self._given.name, intake, asyncio.get_running_loop(), self._clock)
        running = self._submit(_run(adapter, door))
        waiting = asyncio.wrap_future(running)
        try:
            while not waiting.done():
                turns = await self._turns(loop)
                if not turns:
                    report(PlatformState.DEGRADED, "its plugin blocks its own event loop")
                elif door.state is not None:
                    report(*door.state)
                changed = asyncio.ensure_future(door.changed.wait())
                try:
                    await _first_of(waiting, changed, self._clock, SIGN_SECONDS)
                finally:
                    changed.cancel()
                    door.changed.clear()
            waiting.result()
        except asyncio.CancelledError:
            raise
        except WrongSettings as exc:
            raise PlatformConfigError(_words(exc)) from exc
        except Exception as exc:
            self._callee.failed(exc)
            raise PlatformUnavailable(f"its plugin failed ({_words(exc)})") from exc
        finally:
            running.cancel()
            waiting.cancel()
        raise PlatformUnavailable("its plugin has ended it")

    async def _made(self) -> ChatAdapter:
        """The adapter, made once, on a thread."""
        if self._adapter is None:
            factory, settings = self._given.adapter_factory, self._settings
            try:
                adapter, chars = await self._calls.one(
                    self._callee, lambda: factory(dict(settings)), MAKING_SECONDS, then=_looked_at
                )
            except CallFailed as exc:
                cause = exc.__cause__
                if isinstance(cause, WrongSettings):
                    raise PlatformConfigError(_words(cause)) from exc
                raise PlatformUnavailable(str(exc)) from exc
            self._adapter, self._max_chars = adapter, chars
        return self._adapter

    async def _turns(self, loop: asyncio.AbstractEventLoop) -> bool:
        answer = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
        return await wait_all((asyncio.wrap_future(answer),), self._clock, ANSWER_SECONDS)

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        pieces = split_markdown(draft.text, self._max_chars - _REPEAT_CHARS) or [texts.NOTHING_SAID]
        return [PartDraft({"text": piece}) for piece in pieces]

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        adapter = self._adapter
        if adapter is None:
            raise SendUnavailable(f"{self.name} is not running")
        text = str(part.payload["text"])
        if repeat:
            text = _REPEAT + text
        sending = self._submit(_send(adapter, address.chat_id, text, address.thread_id))
        waiting = asyncio.wrap_future(sending)
        try:
            if not await wait_all((waiting,), self._clock, SEND_SECONDS):
                raise SendUnknown(f"{self.name} has not answered for {SEND_SECONDS:g} s")
            return waiting.result()
        except NotSent as exc:
            raise SendUnavailable(_words(exc)) from exc
        except NeverSendable as exc:
            raise SendRefused(_words(exc)) from exc
        except (SendUnknown, asyncio.CancelledError):
            raise
        except Exception as exc:
            self._callee.failed(exc)
            raise SendUnknown(f"{self.name}: {_words(exc)}") from exc
        finally:
            sending.cancel()

    def preview_kind(self, address: Address) -> PreviewKind:
        return "none"

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return PreviewBounds(limit=self._max_chars, calls=1, seconds=60.0)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        raise EditRefused("no previews here")

    async def take_buttons(self, address: Address, message_id: str) -> None:
        raise EditRefused("no buttons here")

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        raise FetchRefused("files are not taken here")

    async def typing(self, address: Address) -> None:
        """Nobody sees it here."""

    async def close(self) -> None:
        adapter, self._adapter = self._adapter, None
        close = getattr(adapter, "close", None)
        if not callable(close):
            return
        closing = self._submit(_close(close))
        if not await wait_all((asyncio.wrap_future(closing),), self._clock, CLOSE_SECONDS):
            closing.cancel()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._loops.submit(self._given.plugin, work)


async def _first_of(
    one: asyncio.Future[Any], other: asyncio.Future[Any], clock: Clock, seconds: float
) -> None:
    """Until either is done, or the time is over."""
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({one, other, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


def _looked_at(adapter: Any) -> tuple[ChatAdapter, int]:
    """On the plugin's thread: has it what an adapter has?"""
    for name in ("run", "send"):
        if not callable(getattr(adapter, name, None)):
            raise TypeError(f"its factory made no adapter: {type(adapter).__name__} has no {name}")
    chars = getattr(adapter, "max_chars", USUAL_CHARS)
    return adapter, min(max(int(chars), MIN_CHARS), MOST_CHARS)


async def _run(adapter: ChatAdapter, door: Door) -> None:
    await adapter.run(door)  # called there as well: nobody knows what it does before it waits


async def _send(adapter: ChatAdapter, chat_id: str, text: str, thread_id: str | None) -> str:
    return str(await adapter.send(chat_id, text, thread_id) or "")[:MAX_ID_CHARS]


async def _close(close: Callable[[], Any]) -> None:
    given = close()
    if asyncio.iscoroutine(given):
        await given


def _words(exc: BaseException) -> str:
    said = " ".join(str(exc).split())[:200]
    return said or type(exc).__name__
