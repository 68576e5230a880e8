"""Owns messages that show an answer while it is written: sent once, then changed, then gone."""

from __future__ import annotations

from gateway.platforms.contract import SendRefused, SendUnknown
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.parcels import Parcel
from gateway.platforms.discord.out.refusals import (
    UNKNOWN_MESSAGE,
    NoSuchReference,
    Refusal,
    edit_error,
    send_error,
)
from gateway.platforms.discord.reading import id_of
from gateway.platforms.discord.render import nonce

_SECONDS = 8.0


class Previews:
    """Past the SDK, which would sleep through a flood: a preview that comes late is none."""

    def __init__(self, direct: Direct, nonce_scope: str) -> None:
        self._direct = direct
        self._nonce_scope = f"{nonce_scope}\0preview"

    async def begin(self, channel_id: int, text: str, draft_id: int, reply_to: int | None) -> str:
        """Show the first of it; the message's id. Said again within minutes, it is the same one.

        Raises:
            SendError: the matching class.
        """
        body = Parcel(text).body()
        body |= {"nonce": nonce(self._nonce_scope, draft_id), "enforce_nonce": True}
        if reply_to is not None:
            body["message_reference"] = reference_to(channel_id, reply_to)
        try:
            answer = await self._call("POST", f"/channels/{channel_id}/messages", body)
        except Refusal as exc:
            error = send_error(exc.status, exc.code, str(exc))
            raise SendRefused(str(exc)) if isinstance(error, NoSuchReference) else error from exc
        id_ = id_of(answer.get("id")) if isinstance(answer, dict) else None
        if id_ is None:
            raise SendUnknown("discord's answer names no message")
        return str(id_)

    async def change(self, channel_id: int, message_id: int, text: str) -> None:
        """Show more of it.

        Raises:
            EditRefused: the message is gone.
            SendError: the matching class.
        """
        path = f"/channels/{channel_id}/messages/{message_id}"
        try:
            await self._call("PATCH", path, Parcel(text).body())
        except Refusal as exc:
            raise edit_error(exc.status, exc.code, str(exc)) from exc

    async def remove(self, channel_id: int, message_id: int) -> None:
        """Take it away; gone already is as good.

        Raises:
            SendError: the matching class.
        """
        try:
            await self._call("DELETE", f"/channels/{channel_id}/messages/{message_id}", None)
        except Refusal as exc:
            if exc.code != UNKNOWN_MESSAGE:
                raise edit_error(exc.status, exc.code, str(exc)) from exc

    async def _call(self, method: str, path: str, body: object) -> object:
        return await self._direct.call(method, path, body, signed=True, timeout_seconds=_SECONDS)


def reference_to(channel_id: int, message_id: int) -> dict[str, object]:
    """What makes a message an answer to another one; that one may be gone."""
    return {
        "message_id": str(message_id),
        "channel_id": str(channel_id),
        "fail_if_not_exists": False,
    }
