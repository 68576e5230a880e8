"""Owns the operator's side of pairing: list, approve, revoke, asked through the control socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from agent.errors import PosthouseError
from agent.pairings import Paired, PairingRequest, Pairings, is_valid, locked_until
from agent.ports import Clock
from gateway.control import send_line

log = logging.getLogger(__name__)

Answer = dict[str, Any]
"""JSON: what was asked for, or ``{"error": …}`` in words."""


class PairingOffice:
    """Answers requests ``{"action": "list" | "approve" | "revoke", …}``."""

    def __init__(
        self,
        pairings: Pairings,
        clock: Clock,
        *,
        pairing_on: Callable[[], Collection[str]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the parts.

        ``pairing_on``: the platforms where a code lets anybody in, now.
        ``changed``: told whenever somebody may have been let in or shut out.
        """
        self._pairings = pairings
        self._clock = clock
        self._pairing_on = pairing_on
        self._changed = changed

    async def serve(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request of the command line, at the daemon's control socket."""
        await send_line(writer, await self.answer(request))

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Never fails: what goes wrong is said in words."""
        try:
            match request:
                case {"action": "list"}:
                    return await self._list()
                case {"action": "approve", "code": str(code)}:
                    return await self._approve(code)
                case {"action": "revoke", "platform": str(platform), "user_id": str(user_id)}:
                    return await self._revoke(platform, user_id)
                case _:
                    return {"error": "this request is not known; is it of another version?"}
        except PosthouseError as exc:
            return {"error": str(exc)}

    async def _list(self) -> Answer:
        book, now = await self._pairings.pairings(), self._clock.now()
        return {
            "requests": [_request(r) for r in book.requests if is_valid(r, now)],
            "paired": [self._person(person) for person in book.paired],
            "locked_until": locked_until(book.failures, now),
        }

    async def _approve(self, code: str) -> Answer:
        try:
            approval = await self._pairings.approve_pairing(code)
        finally:  # also if nobody knows whether it happened
            self._changed()
        who = approval.person
        where = {} if who is None else {"platform": who.platform, "user_id": who.user_id}
        log.info("a pairing code was given", extra={"outcome": approval.outcome, **where})
        return {
            "outcome": approval.outcome,
            "person": None if approval.person is None else self._person(approval.person),
            "locked_until": approval.locked_until,
        }

    async def _revoke(self, platform: str, user_id: str) -> Answer:
        try:
            revoked = await self._pairings.revoke_pairing(platform, user_id)
        finally:
            self._changed()
        if revoked:
            log.info("a pairing was taken back", extra={"platform": platform, "user_id": user_id})
        return {"revoked": revoked}

    def _person(self, person: Paired) -> Answer:
        return {
            "platform": person.platform,
            "user_id": person.user_id,
            "shown_name": person.shown_name,
            "name": person.shown_name,  # as it was called at first
            "approved_at": person.approved_at,
            "in_force": person.platform in self._pairing_on(),
        }


def _request(request: PairingRequest) -> Answer:
    return {
        "platform": request.platform,
        "user_id": request.user_id,
        "shown_name": request.shown_name,
        "name": request.shown_name,
        "asked_at": request.asked_at,
        "expires_at": request.expires_at,
    }
