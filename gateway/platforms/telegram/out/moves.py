"""Owns which id a chat has today: a group that became a supergroup got another one."""

from __future__ import annotations

import logging
import re

from agent.errors import StoreUnavailable
from agent.mail import Address
from gateway.platforms.contract import Intake, SendRefused
from gateway.platforms.telegram.convert import PLATFORM

log = logging.getLogger(__name__)

_GROUP = re.compile(r"-[0-9]{1,16}")


class Moves:
    """The chats of one bot that moved."""

    def __init__(self) -> None:
        self._moved: dict[str, str] = {}
        self._untold: dict[str, str] = {}
        """Moves that the intake has not been told of."""
        self._intake: Intake | None = None
        self._bot_id = ""

    def today(self, address: Address) -> str:
        """The chat's id of today."""
        chat_id = address.chat_id
        for _ in range(3):
            chat_id = self._moved.get(chat_id, chat_id)
        return chat_id

    async def follow(self, old_chat_id: str, new_chat_id: str) -> None:
        """Told by a send; the notices in the chats may come later, or never."""
        if old_chat_id == new_chat_id or not _GROUP.fullmatch(new_chat_id):
            raise SendRefused("the chat is said to have moved to where no chat can be")
        log.info("chat moved", extra={"old": old_chat_id, "new": new_chat_id})
        self._moved[old_chat_id] = self._untold[old_chat_id] = new_chat_id
        await self._tell()

    async def load(self, intake: Intake, bot_id: str) -> None:
        """At a start: those of before, and whom to tell of new ones."""
        self._intake, self._bot_id = intake, bot_id
        await self._tell()
        try:
            self._moved.update(await intake.moved_chats(PLATFORM, bot_id))
        except StoreUnavailable:
            # Each is learned again by the first send.
            log.warning("moved chats not known", extra={"platform": PLATFORM})

    async def _tell(self) -> None:
        """All else that leads to the chat has to follow; what can not be told now is told later."""
        if self._intake is None:
            return
        for old, new in list(self._untold.items()):
            try:
                await self._intake.moved(PLATFORM, self._bot_id, old, new)
            except StoreUnavailable:
                log.warning("a move could not be stored", extra={"platform": PLATFORM})
                return
            self._untold.pop(old, None)
