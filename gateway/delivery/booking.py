"""Owns what delivery writes down: an answer's plan, what becomes of its parts, what is given up."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from agent.errors import StoreUnavailable
from agent.mail import OutboxDraft, OutboxItem, OutboxPart, PartDraft, SendState
from agent.mail_ports import Mailbox
from gateway import texts
from gateway.delivery.rendering import rendered
from gateway.delivery.waiting import Waiting
from gateway.platforms.contract import Platform

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Booking:
    """As patient with the store as it takes.

    Each raises `waiting.Leaving` if the daemon stops first.
    """

    mailbox: Mailbox
    waiting: Waiting
    backoff: Callable[[int], float]

    async def plan(
        self, platform: Platform, item: OutboxItem, draft: OutboxDraft
    ) -> tuple[OutboxPart, ...]:
        """The parts of an answer, as they will be sent from now on."""
        plan = await _render(platform, item, draft)
        return await self._stored(lambda: self.mailbox.plan_parts(item.id, plan))

    async def mark(
        self,
        part: OutboxPart,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        """What is so from here on."""
        await self._stored(
            lambda: self.mailbox.mark_part(
                part.id, state, platform_message_id=platform_message_id, error=error
            )
        )

    async def give_up(self, item: OutboxItem, reason: str) -> None:
        """It will never be sent."""
        await self._stored(lambda: self.mailbox.fail_outbox(item.id, reason))

    async def _stored(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await call()
            except StoreUnavailable:
                failures += 1
                log.warning("store unavailable to delivery", extra={"failures": failures})
                await self.waiting.pause(self.backoff(failures))


async def _render(platform: Platform, item: OutboxItem, draft: OutboxDraft) -> list[PartDraft]:
    try:
        return await rendered(platform, draft)
    except Exception:  # the supervised border of a platform: say so rather than say nothing
        log.exception("answer could not be rendered", extra={"outbox_id": item.id})
        return platform.render(OutboxDraft(draft.address, texts.UNRENDERABLE))
