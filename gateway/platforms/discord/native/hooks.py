"""Owns the answers to interactions: acknowledged in time, filled in, followed up."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.platforms.contract import SendUnknown
from gateway.platforms.discord.native.pressed import Key
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.parcels import EPHEMERAL, Parcel
from gateway.platforms.discord.out.refusals import Refusal, by_a_guard, send_error
from gateway.platforms.discord.reading import id_of

MESSAGE, DEFERRED_MESSAGE, DEFERRED_UPDATE, COMPLETIONS = 4, 5, 6, 8
"""Types of callbacks."""
ACKNOWLEDGED_ALREADY = 40060
_GONE_STATUSES = {401, 403, 404}
_GONE_CODES = {ACKNOWLEDGED_ALREADY, 50027}
"""… and a token that is invalid."""
_UPLOAD_SECONDS = 90.0
_USUAL_SECONDS = 20.0


class KeyGone(Exception):
    """Discord takes no answer to this interaction (any more)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Hooks:
    """Each call is one request; none is repeated here."""

    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self._signs: dict[int, asyncio.Task[None]] = {}
        """Interactions that are being acknowledged."""

    def expect(self, key: Key, sign: asyncio.Task[None]) -> None:
        """This acknowledges it: what is said to it waits for that."""
        self._signs[key.interaction_id] = sign
        sign.add_done_callback(lambda _: self._signs.pop(key.interaction_id, None))

    async def acknowledge(
        self, key: Key, kind: int, text: str = "", *, timeout_seconds: float
    ) -> None:
        """Say that the interaction is taken, in one of the ways above; Discord waits for 3 s.

        Raises:
            KeyGone: too late, or acknowledged already.
            SendError: the matching class.
        """
        data: dict[str, Any] = {}
        if kind == MESSAGE:
            data = Parcel(text).body(quiet=key.quiet)
        elif kind == DEFERRED_MESSAGE:
            data = {"flags": EPHEMERAL} if key.quiet else {}
        elif kind == COMPLETIONS:
            data = {"choices": []}
        body = {"type": kind, "data": data} if data else {"type": kind}
        path = f"/interactions/{key.interaction_id}/{key.token}/callback"
        await self._call("POST", path, body, None, timeout_seconds)

    async def fill_in(self, key: Key, parcel: Parcel) -> str:
        """Let the answer that was announced say this; said again it changes nothing. Its id.

        Raises:
            KeyGone: there is nothing to fill in (any more).
            SendError: the matching class.
        """
        body = parcel.body()
        body.setdefault("attachments", [])
        return await self._message(key, "PATCH", "/messages/@original", body, parcel)

    async def follow_up(self, key: Key, parcel: Parcel) -> str:
        """One more message; said again it stands there twice. Its id.

        Raises:
            KeyGone: nothing can follow it (any more).
            SendError: the matching class.
        """
        body = parcel.body(quiet=key.quiet)
        return await self._message(key, "POST", "?wait=true", body, parcel)

    async def _message(
        self, key: Key, method: str, path: str, body: dict[str, Any], parcel: Parcel
    ) -> str:
        seconds = _UPLOAD_SECONDS if parcel.files else _USUAL_SECONDS
        sign = self._signs.get(key.interaction_id)
        if sign is not None:
            await asyncio.wait({sign})
        answer = await self._call(method, f"{_hook(key)}{path}", body, parcel, seconds)
        id_ = id_of(answer.get("id")) if isinstance(answer, dict) else None
        if id_ is None:
            raise SendUnknown("discord's answer names no message")
        return str(id_)

    async def _call(
        self, method: str, path: str, body: Any, parcel: Parcel | None, seconds: float
    ) -> Any:
        try:
            return await self._direct.call(
                method, path, body, parcel, signed=False, timeout_seconds=seconds
            )
        except Refusal as exc:
            gone = exc.status in _GONE_STATUSES and not by_a_guard(exc.status, exc.code)
            if gone or exc.code in _GONE_CODES:
                raise KeyGone(exc.code, str(exc)) from None
            # It is what is said that is refused, and would be elsewhere.
            raise send_error(exc.status, exc.code, str(exc)) from None


def _hook(key: Key) -> str:
    return f"/webhooks/{key.application_id}/{key.token}"
