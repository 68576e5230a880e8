"""Owns taking the buttons off a message that is there."""

from __future__ import annotations

from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.refusals import Refusal, edit_error

_SECONDS = 8.0


class Buttons:
    """Of messages that are there."""

    def __init__(self, direct: Direct) -> None:
        self._direct = direct

    async def take(self, channel_id: int, message_id: int) -> None:
        """Leave a message of ours without its buttons, and as it is in all else.

        Raises:
            EditRefused: it is gone, or can not be changed.
            SendError: the matching class.
        """
        path = f"/channels/{channel_id}/messages/{message_id}"
        body = {"components": [], "allowed_mentions": {"parse": []}}
        try:
            await self._direct.call("PATCH", path, body, signed=True, timeout_seconds=_SECONDS)
        except Refusal as exc:
            raise edit_error(exc.status, exc.code, str(exc)) from exc
