"""Owns whether anybody reads what a job says: one that comes again in a dead chat never ends."""

from __future__ import annotations

from typing import Protocol

from agent.jobs.nouns import Job
from agent.mail import Address


class Chats(Protocol):
    """What delivery knows of chats: `gateway.delivery.outbox.Delivery`."""

    def is_forsaken(self, address: Address) -> bool:
        """Has it taken nothing for a day?"""
        ...

    def heard(self, address: Address) -> None:
        """Forget that: it is tried anew."""
        ...


class Readers:
    """Of the chats that jobs talk in."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._given_up: set[str] = set()
        """Jobs that were paused for that."""

    def has(self, job: Job) -> bool:
        """Is it of use to let it run? Whoever resumes one that was given up wants it tried anew."""
        once = job.schedule.kind == "once" or job.origin == "house"
        if once or not self._chats.is_forsaken(job.place.address):
            return True
        if job.id not in self._given_up:
            return False
        self._given_up.discard(job.id)
        self._chats.heard(job.place.address)
        return True

    def give_up(self, job: Job) -> None:
        """It is paused. The others of its chat are judged by the same day, and not by one each."""
        self._given_up.add(job.id)
