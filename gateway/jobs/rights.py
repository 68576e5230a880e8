"""Owns whether a job may run for whoever has set it up: asked anew for each run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent.jobs.nouns import Job, record_for
from agent.mail import Address
from agent.ports import Clock
from gateway.intake.access import Ground, Verdict
from gateway.intake.gate import Gate
from gateway.intake.records import message_of
from gateway.jobs import job_text
from gateway.platforms.contract import ChatGone, InboundMessage

AGAIN_SECONDS = 60.0
"""How long a platform that did not answer is not asked again, by whichever job; nor about a chat
that is not seen, by those of that chat."""

RolesOf = Callable[[Address, str], Awaitable[frozenset[str] | None]]
"""`gateway.platforms.contract.KnowsRoles.roles_of`, of whichever platform the address is on."""


class RightsUnknown(Exception):
    """Nobody can tell at this moment."""


class Rights:
    """By the gate, as for whatever a person sends.

    A role is looked up: whoever has set the job up may have lost it since, and sends nothing now
    that would tell so.
    """

    def __init__(
        self,
        gate: Gate,
        roles_of: RolesOf,
        clock: Clock,
        bot_of: Callable[[str], str | None],
    ) -> None:
        """``bot_of``: which bot a platform has now; None: that is not known yet."""
        self._bot_of = bot_of
        self._gate = gate
        self._roles_of = roles_of
        self._clock = clock
        self._silent_until: dict[tuple[str | None, ...], float] = {}
        """By bot, and by chat."""

    def serves(self, platform: str) -> bool:
        """Is this platform on?"""
        return self._gate.policy(platform) is not None

    async def why_not(self, job: Job, now: float) -> str:
        """Why it may not run, in words; "": it may.

        Raises:
            RightsUnknown: it goes by a role, and the platform does not answer.
        """
        if job.origin == "house":
            return ""
        if not self.serves(job.place.address.platform):
            return job_text.PLATFORM_OFF
        if self._bot_of(job.place.address.platform) not in (None, job.place.address.bot_id):
            return job_text.OTHER_BOT
        asked, verdict = await self._as_stored(job, now)
        if verdict.ground is Ground.ROLE:
            roles = await self._roles(job.place.address, asked.sender_id)
            verdict = self._gate.decide(replace(asked, sender_role_ids=roles))
        if verdict.allowed:
            return ""
        return job_text.NOT_ALLOWED_BY_FILE if job.origin == "config" else job_text.NOT_ALLOWED

    async def is_heard(self, job: Job, now: float) -> bool:
        """Is there anybody at its place who may use the bot?

        Where its owner may by a role that counts, others have that role, too.
        """
        to = job.place.address
        if not self.serves(to.platform):
            return False
        if self._gate.allows_chat(to.platform, to.bot_id, to.chat_id):
            return True
        in_utc = replace(job.schedule, zone="UTC")  # its own zone may be what is wrong
        _, verdict = await self._as_stored(replace(job, schedule=in_utc), now)
        return verdict.allowed

    async def _as_stored(self, job: Job, now: float) -> tuple[InboundMessage, Verdict]:
        """With the roles of the day on which the job was made."""
        asked = message_of(record_for(job, now, now))
        return asked, await self._gate.decide_again(asked)

    async def _roles(self, address: Address, user_id: str) -> frozenset[str]:
        bot, now = (address.platform, address.bot_id), self._clock.monotonic()
        chat = (*bot, address.chat_id, address.thread_id)
        self._silent_until = {who: at for who, at in self._silent_until.items() if now < at}
        if not self._silent_until.keys().isdisjoint((bot, chat)):
            raise RightsUnknown
        try:
            roles = await self._roles_of(address, user_id)
        except ChatGone:
            self._silent_until[chat] = now + AGAIN_SECONDS
            raise RightsUnknown from None
        if roles is None:
            self._silent_until[bot] = now + AGAIN_SECONDS
            raise RightsUnknown
        return roles
