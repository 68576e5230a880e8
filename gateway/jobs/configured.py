"""Owns the jobs of config.yaml as jobs: where each belongs, by what is known of its platform."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agent.jobs.nouns import Action, JobPlace
from agent.mail import Address
from agent.ports import Clock
from agent.sessions import key_in, session_key
from agent.store_ports import Store
from gateway.config.models import Config
from gateway.config.sections.jobs import ConfiguredJob, JobTarget
from gateway.intake.access import PlatformPolicy
from gateway.jobs.house import House
from gateway.jobs.keeping import Wanted, keep
from gateway.platforms.console import convert as console

log = logging.getLogger(__name__)

NOBODY = "jobs"
"""Who asks in a chat for which no person is named: allowed only where everybody is."""

BotOf = Callable[[str], str | None]
"""The id of a platform's bot; None: not known (yet)."""
PolicyOf = Callable[[str], PlatformPolicy | None]
"""Who may talk on a platform, and how groups work there; None: it is off."""


class NamedJobs:
    """Lets the store hold what is named: in the configuration in force, and by the house."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        house: House,
        *,
        config: Callable[[], Config],
        zone: Callable[[], str],
        bot_of: BotOf,
        policy_of: PolicyOf,
    ) -> None:
        self._store = store
        self._clock = clock
        self._house = house
        self._config = config
        self._zone = zone
        self._bot_of = bot_of
        self._policy_of = policy_of
        self._told: set[str] = set()

    async def keep(self) -> bool:
        """False: the bot of a platform is not known yet, so something is left to do."""
        config, zone, now = self._config(), self._zone(), self._clock.now()
        found, unplaced = wanted(config.jobs, zone, self._bot_of, self._policy_of)
        here = [await self._of_today(one) for one in found]
        await keep(self._store, "config", here, now, known={job.name for job in unplaced})
        await keep(self._store, "house", self._house.wanted(config, zone), now, known=set())
        off = {job.name for job in unplaced if self._policy_of(job.to.platform) is None}
        for name in sorted(off - self._told):
            log.warning("a job waits: its platform is switched off", extra={"job": name})
        self._told = off
        return len(off) == len(unplaced)

    async def _of_today(self, one: Wanted) -> Wanted:
        """In the chat's id of today, whatever the configuration calls it."""
        to = one.place.address
        moved = await self._store.moved_chats(to.platform, to.bot_id)
        if to.chat_id not in moved:
            return one
        chat = moved[to.chat_id]
        key = key_in(one.place.session_key, chat)
        address = replace(to, chat_id=chat, thread_id=None)
        return replace(one, place=replace(one.place, session_key=key, address=address))


def wanted(
    jobs: Sequence[ConfiguredJob],
    zone: str,
    bot_of: BotOf,
    policy_of: PolicyOf,
) -> tuple[list[Wanted], list[ConfiguredJob]]:
    """Those whose place is known, and the others."""
    found: list[Wanted] = []
    unplaced: list[ConfiguredJob] = []
    for job in jobs:
        place = place_of(job.to, bot_of, policy_of)
        if place is None:
            unplaced.append(job)
            continue
        action = Action("text", job.text) if job.text else Action("prompt", job.prompt or "")
        found.append(Wanted(job.name, place, job.schedule(zone), action))
    return found, unplaced


def place_of(to: JobTarget, bot_of: BotOf, policy_of: PolicyOf) -> JobPlace | None:
    """Where a target is; None: its bot is not known (yet)."""
    if to.platform == console.PLATFORM:
        return _place(to.platform, console.BOT_ID, console.CHAT_ID, None, console.USER_ID, True)
    bot_id = bot_of(to.platform)
    if bot_id is None:
        return None
    chat = to.chat or to.user or ""
    direct = to.direct or chat == to.user
    if to.platform == "telegram" and not chat.startswith("-"):
        direct = True  # a private chat has its person's number
    user = to.user or (chat if direct else None)
    policy = policy_of(to.platform)
    own = direct or policy is None or policy.group_sessions_per_user
    return _place(to.platform, bot_id, chat, to.thread, user, direct, shared=not own)


def _place(
    platform: str,
    bot_id: str,
    chat: str,
    thread: str | None,
    user: str | None,
    direct: bool,
    *,
    shared: bool = False,
) -> JobPlace:
    sender: dict[str, Any] = {
        "chat_kind": "direct" if direct else "group",
        "sender_id": user or NOBODY,
        "sender_name": "",
    }
    # Without a person it is nobody's own conversation.
    if not direct and (shared or user is None):
        sender["shared"] = True
    key = session_key(platform, bot_id, chat, thread, None if "shared" in sender else user)
    address = Address(platform, bot_id, chat, thread)
    return JobPlace(key, f"{platform}:{user or NOBODY}", address, sender)
