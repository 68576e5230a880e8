"""Owns what a stranger hears: nothing, or, with pairing on, a code to be approved on the server."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from agent.mail import Address
from agent.pairings import (
    CODE_LENGTH,
    CODE_LETTERS,
    VALID_SECONDS,
    PairingRequest,
    Pairings,
    digest_of,
)
from agent.ports import Clock
from gateway import texts
from gateway.intake.gate import Gate
from gateway.intake.wording import shown_name
from gateway.platforms.contract import InboundMessage
from gateway.tasks import finish

log = logging.getLogger(__name__)

SALT_BYTES = 16

Say = Callable[[Address, str], None]
"""Send this now or never, and do not wait for it."""


def draw_code() -> str:
    """A code that nobody can guess."""
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))


class PairingDesk:
    """Hands out codes. The request is all that is kept: neither the message nor the code is."""

    def __init__(
        self,
        gate: Gate,
        pairings: Pairings,
        say: Say,
        clock: Clock,
        draw: Callable[[], str] = draw_code,
    ) -> None:
        self._gate = gate
        self._pairings = pairings
        self._say = say
        self._clock = clock
        self._draw = draw

    async def knock(self, message: InboundMessage) -> None:
        """Somebody who was refused has written. Says a code at most; mostly it says nothing.

        Raises:
            StoreUnavailable: not stored, nothing was said.
        """
        policy = self._gate.policy(message.platform)
        if policy is None or not policy.pairing or not _is_person_alone(message):
            return
        code, salt, now = self._draw(), secrets.token_bytes(SALT_BYTES), self._clock.now()
        request = PairingRequest(
            message.platform,
            message.sender_id.strip(),
            shown_name(message.sender_name),
            salt,
            digest_of(salt, code),
            asked_at=now,
            expires_at=now + VALID_SECONDS,
        )
        if not await finish(self._pairings.ask_pairing(request)):
            log.debug("no code given", extra={"platform": message.platform})
            return
        log.info(
            "somebody asks to be let in: `posthouse pair list` shows it",
            extra={"platform": message.platform, "user_id": request.user_id},
        )
        address = Address(message.platform, message.bot_id, message.chat_id, message.thread_id)
        self._say(address, texts.pairing_code(code, VALID_SECONDS))


def _is_person_alone(message: InboundMessage) -> bool:
    """A person in a direct chat: in a group everybody could read the code, and bots can not."""
    return (
        message.chat_kind == "direct"
        and message.sender_id.strip() not in ("", message.bot_id)
        and not message.sender_is_bot
    )
