"""Owns what can be said of config.yaml's jobs before one is due: which of them can not run (pure).

Nothing of it is an error: a plugin may bring the platform, a code may let somebody in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.jobs import schedules
from gateway.config.sections.jobs import ConfiguredJob, JobTarget
from gateway.intake.access import PlatformPolicy, decide
from gateway.jobs.configured import place_of
from gateway.platforms.contract import InboundMessage

_ANY_BOT = "0"
_OFF = "{platform} is off here, so it waits until that is on"
_NEVER = "{time} has passed: it does not run (any more)"
_NOT_LISTED = "user {user} may not use the bot there: not in {lists}"
_BY_CODE = "; it runs once a code has let them in (`posthouse pair list`)"
_ANYBODY = (
    "it names no user, so it runs only where everybody may use the bot: {chat} is not in {lists}"
)
_CHATS = {"telegram": "allow_chats", "discord": "allow_channels"}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One job that can not run as things stand."""

    index: int
    """In the list of the file."""
    key: Literal["at", "to"]
    """What is wrong of it."""
    name: str
    text: str

    def __str__(self) -> str:
        return f"jobs: {self.name}: {self.text}"


def doubts_about(
    jobs: Sequence[ConfiguredJob],
    *,
    now: float,
    zone: str,
    off: Collection[str],
    policies: Mapping[str, PlatformPolicy],
) -> Iterator[Doubt]:
    """At most one for each.

    ``off``: platforms that are known to be off; ``policies``: of those of which it is known who may
    talk there.
    """
    for index, job in enumerate(jobs):
        schedule = job.schedule(zone)
        if job.at is not None and schedules.next_due(schedule, now, now) is None:
            time = f"{schedule.spec.replace('T', ' ')} ({schedule.zone})"
            yield Doubt(index, "at", job.name, _NEVER.format(time=time))
        elif job.to.platform in off:
            yield Doubt(index, "to", job.name, _OFF.format(platform=job.to.platform))
        elif (policy := policies.get(job.to.platform)) and (why := _why_not(job.to, policy)):
            yield Doubt(index, "to", job.name, why)


def _why_not(to: JobTarget, policy: PlatformPolicy) -> str:
    """By the lists of the file alone; "": it may run, or a role decides that only counts there."""
    place = place_of(to, lambda platform: _ANY_BOT, lambda platform: policy)
    assert place is not None  # its bot is known
    direct = place.sender["chat_kind"] == "direct"
    asked = InboundMessage(
        platform=to.platform,
        bot_id=_ANY_BOT,
        chat_id=place.address.chat_id,
        chat_kind="direct" if direct else "group",
        message_id="",
        sender_id=str(place.sender["sender_id"]),
        sender_name="",
        text="",
        sent_at=0.0,
    )
    by_role = bool(policy.access.allow_roles) and not direct and to.user is not None
    # Of a thread the channel may be listed, and nobody says here which one that is.
    a_thread = to.platform == "discord" and not direct and bool(policy.access.allow_chats)
    if by_role or a_thread or decide(asked, policy.access).allowed:
        return ""
    chats = f"{to.platform}.{_CHATS.get(to.platform, 'allow_chats')}"
    if to.user is None and not direct:
        return _ANYBODY.format(chat=place.address.chat_id, lists=chats)
    lists = f"{to.platform}.allow_from" + ("" if direct else f", its chat not in {chats}")
    told = _NOT_LISTED.format(user=place.sender["sender_id"], lists=lists)
    return told + (_BY_CODE if policy.pairing else "")
