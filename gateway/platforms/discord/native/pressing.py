"""Owns the way of an interaction: judged, acknowledged within 3 s, said like a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway import texts
from gateway.commands.menu import MenuEntry
from gateway.platforms.contract import (
    InboundMessage,
    Intake,
    SendError,
    SendFlood,
    SendRefused,
)
from gateway.platforms.discord.convert import PLATFORM, Facts
from gateway.platforms.discord.native.hooks import (
    ACKNOWLEDGED_ALREADY,
    COMPLETIONS,
    DEFERRED_MESSAGE,
    DEFERRED_UPDATE,
    MESSAGE,
    Hooks,
    KeyGone,
)
from gateway.platforms.discord.native.pressed import Key, Pressed, read_pressed
from gateway.platforms.discord.out.parcels import Parcel
from gateway.platforms.discord.source import pause_seconds
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

ACK_SECONDS = 2.8
"""Discord gives three, from where it has sent the interaction."""
RETRY_SECONDS = 0.1
MAX_REFUSALS = 20
"""So many strangers are told at one time that they may not; more get no answer."""
STOP_SECONDS = 3.0


class Presses:
    """Interactions of one connection. What one of them says keeps its place in its channel."""

    def __init__(
        self,
        hooks: Hooks,
        menu: tuple[MenuEntry, ...],
        convert: Callable[[Facts], InboundMessage | None],
        intake: Intake,
        store_is: Callable[[bool], None],
        clock: Clock,
    ) -> None:
        """``store_is`` is told whether the store takes messages."""
        self._hooks = hooks
        self._menu = {entry.name: entry for entry in menu}
        self._convert = convert
        self._intake = intake
        self._store_is = store_is
        self._clock = clock
        self._tasks = TaskOwner(clock)
        self._newest: dict[int, asyncio.Future[None]] = {}
        """By channel: done once the newest interaction in it has been said."""
        self._unsaid: dict[int, Key] = {}
        """Not taken by the store yet, by the id of the interaction."""
        self._refusals = 0

    def pressed(self, payload: object) -> None:
        """One interaction. Never waits and never raises: the socket is read on behind it."""
        try:
            self._take(payload)
        except Exception:  # one that breaks something must not end the connection
            log.exception("interaction could not be taken")

    async def stop(self) -> None:
        """What is acknowledged gets a moment to be stored; else it is told that it was not."""
        if await self._tasks.wait(STOP_SECONDS):
            return
        unsaid = list(self._unsaid.values())
        await self._tasks.cancel(1.0)
        for key in unsaid:
            self._tasks.spawn(self._close(replace(key, quiet=True), texts.NOT_TAKEN), name="unsaid")
        if not await self._tasks.wait(STOP_SECONDS):
            await self._tasks.cancel(1.0)

    def _take(self, payload: object) -> None:
        try:
            pressed = read_pressed(payload)
        except ValueError as exc:
            log.warning("interaction could not be read", extra={"reason": str(exc)})
            return
        message = self._convert(pressed.facts)
        if message is not None:  # the bot's own menu and its own buttons: nobody else is meant
            message = replace(message, addressed=True)
        if not pressed.facts.is_person or (message is None and pressed.name):
            return
        # Also what is no command is judged: strangers are told nothing but that.
        judged = message or self._convert(replace(pressed.facts, text="?"))
        admitted = judged is not None and self._admits(pressed, judged)
        if admitted is False:
            self._refuse(pressed, message if pressed.name else None)
            return
        entry = self._menu.get(pressed.name) or MenuEntry(pressed.name, "", quiet=True)
        key = replace(
            pressed.key,
            # Whoever may turn out to be a stranger is answered where nobody else sees it.
            quiet=pressed.among_others and (entry.quiet or admitted is None),
            private=pressed.among_others and entry.private,
        )
        if message is None or not pressed.name:
            kind = COMPLETIONS if pressed.kind == "completion" else MESSAGE
            key = replace(key, quiet=True)
            text = texts.MENU_OUTDATED if admitted else texts.NOT_LET_IN
            self._tasks.spawn(self._acknowledge(key, kind, text), name="interaction")
            return
        self._serve(pressed, key, message, asks_again=entry.asks_again)

    def _admits(self, pressed: Pressed, message: InboundMessage) -> bool | None:
        return self._intake.admits(message) if pressed.bot_is_there else False

    def _refuse(self, pressed: Pressed, message: InboundMessage | None) -> None:
        if self._refusals >= MAX_REFUSALS:
            return
        self._refusals += 1
        self._tasks.spawn(self._say_no(pressed, message), name="interaction refused")

    async def _say_no(self, pressed: Pressed, message: InboundMessage | None) -> None:
        key = replace(pressed.key, quiet=True)
        kind = COMPLETIONS if pressed.kind == "completion" else MESSAGE
        try:
            await self._acknowledge(key, kind, texts.NOT_LET_IN)
            if message is not None and not pressed.among_others and pressed.bot_is_there:
                await self._intake.receive(message)  # knocks, as any word to the bot alone
        except StoreUnavailable:
            log.info("a stranger has knocked in vain", extra={"platform": PLATFORM})
        finally:
            self._refusals -= 1

    def _serve(
        self, pressed: Pressed, key: Key, message: InboundMessage, *, asks_again: bool
    ) -> None:
        channel_id = pressed.facts.channel_id
        before = self._newest.get(channel_id)
        said: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._newest[channel_id] = said

        if key.is_press:
            sign = self._acknowledge(key, DEFERRED_UPDATE)
        elif asks_again:  # its answer comes as any other, also after 15 minutes
            sign = self._acknowledge(key, MESSAGE, texts.ASKING_AGAIN)
        else:
            sign = self._acknowledge(key, DEFERRED_MESSAGE)
        self._hooks.expect(key, self._tasks.spawn(sign, name="interaction acknowledged"))
        self._unsaid[key.interaction_id] = key

        async def serve() -> None:
            try:
                if before is not None:
                    await asyncio.wait({before})
                await self._say(key, replace(message, interaction=None if asks_again else str(key)))
            finally:
                self._unsaid.pop(key.interaction_id, None)
                said.set_result(None)
                if self._newest.get(channel_id) is said:
                    del self._newest[channel_id]

        self._tasks.spawn(serve(), name="interaction")

    async def _acknowledge(self, key: Key, kind: int, text: str = "") -> None:
        """As often as its three seconds allow; what fails is logged, and the answer finds its way.

        It waits for nothing, least of all for the store.
        """
        deadline = self._clock.monotonic() + ACK_SECONDS
        tries = 0
        while (left := deadline - self._clock.monotonic()) > 0:
            tries += 1
            try:
                await self._hooks.acknowledge(key, kind, text, timeout_seconds=left)
                return
            except KeyGone as exc:
                if exc.code == ACKNOWLEDGED_ALREADY and tries > 1:
                    return  # by a try of which nobody heard
                told = {"code": exc.code, "interaction_id": key.interaction_id}
                log.warning("interaction could not be acknowledged", extra=told)
                return
            except SendRefused as exc:
                log.error("interaction could not be acknowledged", extra={"error": str(exc)})
                return
            except SendError as exc:
                pause = exc.retry_after_seconds if isinstance(exc, SendFlood) else RETRY_SECONDS
                log.warning("interaction is not acknowledged yet", extra={"error": str(exc)})
                if pause >= deadline - self._clock.monotonic():
                    return
                await self._clock.sleep(pause)

    async def _say(self, key: Key, message: InboundMessage) -> None:
        failures = 0
        while True:
            try:
                taken = await self._intake.receive(message)
            except StoreUnavailable:
                failures += 1
                self._store_is(False)
                await self._clock.sleep(pause_seconds(failures))
                continue
            except Exception:
                log.exception("interaction could not be said", extra={"id": message.message_id})
                taken, text = False, texts.COMMAND_FAILED
            else:
                text = texts.NOT_LET_IN
                self._store_is(True)
            break
        if not taken and message.interaction is not None:
            await self._close(replace(key, quiet=True), text)

    async def _close(self, key: Key, text: str) -> None:
        """What was acknowledged comes to nothing: say so there."""
        try:
            if key.is_press:
                await self._hooks.follow_up(key, Parcel(text))
            else:
                await self._hooks.fill_in(key, Parcel(text))
        except (KeyGone, SendError) as exc:
            log.warning("interaction could not be closed", extra={"error": str(exc)})
