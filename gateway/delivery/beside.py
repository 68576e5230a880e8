"""Owns what is said and done beside an owed answer, without a row: at worst twice, or never."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agent.mail import Address, OutboxDraft, OutboxItem, OutboxPart
from agent.ports import Clock
from gateway import texts
from gateway.delivery.chats import Chats
from gateway.platforms.contract import (
    EditRefused,
    Platform,
    SendFlood,
    SendUnavailable,
    SendUnknown,
)

log = logging.getLogger(__name__)

PAUSES_SECONDS = (2.0, 15.0, 120.0)
REFUSED_IDS = 1 << 40
"""Sets what is said about a refused part apart from what else is said beside an answer."""


@dataclass(frozen=True, slots=True)
class Beside:
    """To one platform, within the budgets of its chats."""

    platform: Platform
    chats: Chats

    async def late(self, item: OutboxItem, note: str) -> None:
        """Ahead of a part that was planned while the answer was young: its text is fixed.

        Raises:
            SendError: not said; the answer does not go out without it.
        """
        with contextlib.suppress(SendUnknown):  # once is enough
            await self._say(OutboxDraft(item.draft.address, note, "notice"), -item.id)

    async def refused(self, item: OutboxItem, part: OutboxPart) -> bool:
        """In the place of a part that the platform does not take, or of its preview.

        False: not said, for the chat has to be silent first.
        """
        address, shown = item.draft.address, part.payload.get("edits")
        # Where an answer was announced, it is seen by whom that would have been.
        key = item.draft.interaction if part.n == 0 else None
        words = OutboxDraft(
            address, texts.PART_REFUSED, "notice", interaction=key, edits_message_id=shown
        )
        part_id = -item.id - REFUSED_IDS
        try:
            try:
                await self._say(words, part_id)
            except EditRefused:
                await self._say(replace(words, edits_message_id=None), part_id)
        except SendFlood as exc:
            self.chats.budget(address).silence(exc.retry_after_seconds)
            return False
        except Exception:  # the supervised border of a platform: the other parts still go out
            log.info("nobody was told", extra={"outbox_id": item.id}, exc_info=True)
        return True

    async def take_away_preview(self, item: OutboxItem) -> None:
        """Of an answer that goes out elsewhere; if it stays, that is no harm."""
        shown = item.draft.edits_message_id
        if shown is None:
            return
        try:
            self.chats.budget(item.draft.address).called()
            await self.platform.preview(item.draft.address, "", shown, item.id)
        except SendFlood as exc:
            self.chats.budget(item.draft.address).silence(exc.retry_after_seconds)
        except Exception:  # the supervised border of a platform: the answer itself still goes out
            log.info("a preview stays", extra={"outbox_id": item.id}, exc_info=True)

    async def take_buttons(self, address: Address, message_id: str, clock: Clock) -> None:
        """Off a message, once its chat takes that; if they stay, that is no harm."""
        await self._patiently(
            address, clock, lambda: self.platform.take_buttons(address, message_id)
        )

    async def put_down(self, address: Address, message_id: str, text: str, clock: Clock) -> None:
        """Let a preview stand with this text, without any take it away; if not, that is no harm."""
        key = 1  # of no use here: nothing is sent
        await self._patiently(
            address, clock, lambda: self.platform.preview(address, text, message_id, key)
        )

    async def _patiently(
        self, address: Address, clock: Clock, call: Callable[[], Awaitable[object]]
    ) -> None:
        budget = self.chats.budget(address)
        for pause_seconds in (*PAUSES_SECONDS, None):
            while (wait := budget.wait_seconds) > 0:
                await clock.sleep(wait)
            budget.called()
            try:
                await call()
                return
            except SendFlood as exc:
                budget.silence(exc.retry_after_seconds)
            except (SendUnavailable, SendUnknown):
                if pause_seconds is not None:
                    await clock.sleep(pause_seconds)
            except Exception:  # the supervised border of a platform: only an ornament
                log.info("a message stays as it was", exc_info=True)
                return

    async def _say(self, words: OutboxDraft, part_id: int) -> None:
        """No stored part has an id below zero."""
        for draft in self.platform.render(words):
            part = OutboxPart(part_id, part_id, 0, "sending", draft.payload)
            self.chats.budget(words.address).called()
            await self.platform.send(words.address, part)
