"""Owns pairing in memory, for the in-memory store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent import pairings
from agent.pairings import Approval, Paired, PairingBook, PairingRequest
from storage.codec import clean


class MemoryPairings:
    """The counterpart of `storage.pairings`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._requests: dict[tuple[str, str], PairingRequest] = {}
        self._paired: dict[tuple[str, str], Paired] = {}
        self._failures: list[float] = []

    def ask(self, request: PairingRequest) -> bool:
        now = self._now()
        if not pairings.may_ask(request, self._requests.values(), now):
            return False
        for key, old in list(self._requests.items()):
            if not pairings.is_valid(old, now):
                del self._requests[key]
        kept = replace(request, shown_name=clean(request.shown_name))
        self._requests[request.platform, request.user_id] = kept
        return True

    def approve(self, code: str) -> Approval:
        now = self._now()
        until = pairings.locked_until(self._failures, now)
        if until is not None:
            return Approval("locked", locked_until=until)
        found = pairings.with_code(self._requests.values(), code, now)
        if found is None:
            self._failures = [*pairings.counted(self._failures, now), now]
            return Approval("wrong", locked_until=pairings.locked_until(self._failures, now))
        person = Paired(found.platform, found.user_id, found.shown_name, now)
        del self._requests[found.platform, found.user_id]
        self._paired[found.platform, found.user_id] = person
        self._failures = []
        return Approval("approved", person)

    def revoke(self, platform: str, user_id: str) -> bool:
        asked = self._requests.pop((platform, user_id), None)
        return self._paired.pop((platform, user_id), None) is not None or asked is not None

    def forget_person(self, platform: str, user_id: str) -> None:
        """Whoever was let in stays so, without a name."""
        self._requests.pop((platform, user_id), None)
        person = self._paired.get((platform, user_id))
        if person is not None:
            self._paired[platform, user_id] = replace(person, shown_name="")

    def book(self) -> PairingBook:
        requests = sorted(
            self._requests.values(), key=lambda r: (r.asked_at, r.platform, r.user_id)
        )
        people = sorted(self._paired.values(), key=lambda p: (p.platform, p.user_id))
        return PairingBook(tuple(requests), tuple(people), tuple(self._failures))
