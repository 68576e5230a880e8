"""Owns in which message a turn is shown, as the store knows it, and the key of its next one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from agent.errors import StaleTurn, StoreError
from agent.mail import Address
from agent.ports import Clock
from agent.sessions import TurnTicket
from gateway.delivery.pace import PreviewSettings

log = logging.getLogger(__name__)


class PreviewNotes(Protocol):
    """Where it is kept which message shows a turn (`agent.store_ports.SessionStore`)."""

    async def note_preview(self, ticket: TurnTicket, address: Address, message_id: str) -> bool:
        """As the store says."""
        ...

    async def preview_of(self, ticket: TurnTicket) -> str | None:
        """As the store says."""
        ...

    async def leave_preview(self, ticket: TurnTicket) -> None:
        """As the store says."""
        ...

    async def left_preview_of(self, ticket: TurnTicket) -> str | None:
        """As the store says."""
        ...


class Noted(StrEnum):
    """Does the store have a message?"""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"


class PreviewPlace:
    """Of one turn; everything that is said of it is in the store first."""

    def __init__(
        self,
        notes: PreviewNotes,
        ticket: TurnTicket,
        address: Address,
        clock: Clock,
        settings: PreviewSettings,
    ) -> None:
        self.message_id: str | None = None
        self.key = ticket.user_row_id
        """By which a platform that dedupes sends knows the turn's next message."""
        self._notes = notes
        self._ticket = ticket
        self._address = address
        self._clock = clock
        self._settings = settings

    async def take_up(self) -> bool:
        """Go on in the message of before a restart; False: nobody knows whether there is one."""
        try:
            self.message_id = await self._notes.preview_of(self._ticket)
            left = await self._notes.left_preview_of(self._ticket)
        except StoreError:
            log.warning("the preview of before is not known", exc_info=True)
            return False
        if left is not None:
            self.key = key_below(self._ticket.user_row_id, left)
        return True

    async def note(self, message_id: str, is_given_up: Callable[[], bool]) -> Noted:
        """The turn is shown in this message now."""
        noted = Noted.NO
        for _ in range(self._settings.note_tries):
            if is_given_up():
                break
            try:
                known = await self._notes.note_preview(self._ticket, self._address, message_id)
            except StaleTurn:
                break
            except StoreError:
                log.warning("a preview could not be noted", exc_info=True)
                noted = Noted.MAYBE
                await self._clock.sleep(self._settings.note_pause_seconds)
                continue
            if not known:
                return Noted.NO
            self.message_id = message_id
            return Noted.YES
        return noted

    async def leave(self) -> bool:
        """What is shown next gets a message of its own; False: nobody knows whether it may."""
        left = self.message_id or ""
        for _ in range(self._settings.note_tries):
            try:
                await self._notes.leave_preview(self._ticket)
            except StaleTurn:
                return False
            except StoreError:
                log.warning("a preview could not be left", exc_info=True)
                await self._clock.sleep(self._settings.note_pause_seconds)
                continue
            self.message_id = None
            self.key = key_below(self._ticket.user_row_id, left)
            return True
        return False


def key_below(user_row_id: int, left: str) -> int:
    """The same after a restart, and another one than that of the message that was left (pure)."""
    digest = hashlib.blake2b(f"{user_row_id}\0{left}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) + 1
