"""Owns what goes out to Discord by one login: messages, the search for earlier ones, typing."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.platforms.contract import SendFlood, SendUnavailable, SendUnknown
from gateway.platforms.discord.asking import shown
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.looking import Looked
from gateway.platforms.discord.out.parcels import Parcel
from gateway.platforms.discord.out.previews import reference_to
from gateway.platforms.discord.out.refusals import Refusal, edit_error, send_error
from gateway.platforms.discord.reading import id_of
from gateway.platforms.discord.source import PAGE_MESSAGES

if TYPE_CHECKING:
    import discord

T = TypeVar("T")

SEARCHED_PAGES = 10
TEXT_SECONDS = 40.0
"""For a message without files: the SDK waits for rate limits for up to 30 s."""
PAST_SECONDS = 15.0


class Sending:
    """Whatever the SDK raises becomes an error of ours."""

    def __init__(
        self,
        bot: discord.Client,
        sdk: Any,
        *,
        direct: Direct,
        is_open: Callable[[], bool],
        timeout_seconds: float,
    ) -> None:
        """``timeout_seconds``: the SDK's own retries and waits for rate limits included.

        ``direct``: for what must not wait for another message to the same channel.
        """
        self._bot = bot
        self._sdk = sdk
        self._direct = direct
        self._is_open = is_open
        self._timeout_seconds = timeout_seconds
        self._at_work: Counter[int] = Counter()
        """By channel: messages that the SDK has under way. It sends them one after another."""

    @property
    def own_id(self) -> int:
        """Of the bot."""
        user = self._bot.user
        assert user is not None
        return user.id

    async def send(self, channel_id: int, parcel: Parcel, nonce: str, reply_to: int | None) -> str:
        """Send one message and give back its id; Discord shows a nonce once, for some minutes.

        Raises:
            SendError: the matching class.
            NoSuchReference: it would be accepted without the reference.
        """
        body = parcel.body() | {"nonce": nonce, "enforce_nonce": True}
        if reply_to is not None:
            body["message_reference"] = reference_to(channel_id, reply_to)

        if self._at_work[channel_id] > 0:
            return await self._past_the_other(channel_id, parcel, body)

        async def call() -> str:
            params = self._params(parcel, body)
            return _id_in(await self._bot.http.send_message(channel_id, params=params))

        self._at_work[channel_id] += 1
        try:
            return await self._mapped(call, send_error, text=not parcel.files)
        finally:
            self._at_work[channel_id] -= 1
            if not self._at_work[channel_id]:
                del self._at_work[channel_id]

    async def _past_the_other(self, channel_id: int, parcel: Parcel, body: dict[str, Any]) -> str:
        if not self._is_open():
            raise SendUnavailable("discord: not logged in")
        try:
            answer = await self._direct.call(
                "POST",
                f"/channels/{channel_id}/messages",
                body,
                parcel,
                signed=True,
                timeout_seconds=self._timeout_seconds if parcel.files else PAST_SECONDS,
            )
        except Refusal as exc:
            raise send_error(exc.status, exc.code, str(exc)) from exc
        try:
            return _id_in(answer)
        except (AttributeError, ValueError) as exc:
            raise SendUnknown(shown(exc)) from exc

    async def edit(self, channel_id: int, message_id: int, parcel: Parcel) -> str:
        """Let a message of ours say this; said again it changes nothing. Its id.

        Raises:
            EditRefused: it is gone, or can not be changed.
            SendError: the matching class.
        """

        async def call() -> str:
            params = self._params(parcel, parcel.body())
            return _id_in(await self._bot.http.edit_message(channel_id, message_id, params=params))

        return await self._mapped(call, edit_error)

    def _params(self, parcel: Parcel, body: dict[str, Any]) -> Any:
        discord = self._sdk
        make = discord.http.MultipartParameters
        if not parcel.files:
            return make(payload=body, multipart=None, files=None)
        # Each as the SDK's own kind: it winds them back when it tries again.
        files = [discord.File(io.BytesIO(file.data), filename=file.name) for file in parcel.files]
        form = parcel.form(body, [file.fp for file in files])
        return make(payload=None, multipart=form, files=files)

    async def find_own(self, channel_id: int, looked: Looked, after: int | None) -> str | None:
        """The message that an earlier send of this part made, if it is there.

        Recognised by its nonce. The history does not always tell it; then the first part of an
        answer is the one with its content that answers the same message, and a further part the
        first one with its content behind the part before it (``after``), so that two parts with
        the same words are not taken for each other.

        Raises:
            SendError: nothing could be read.
        """

        async def call() -> str | None:
            bare: str | None = None
            for message in await self._messages(channel_id, after):
                match looked.match(message):
                    case "sure":
                        return str(message["id"])
                    case "answer" if after is not None:
                        return str(message["id"])
                    case "bare" if after is not None:
                        bare = bare or str(message["id"])
            # Sent without the reference because the question was gone already?
            reply_to = looked.reply_to
            if bare and reply_to is not None and await self._is_there(channel_id, reply_to):
                return None
            return bare

        return await self._mapped(call, send_error)

    async def _messages(self, channel_id: int, after: int | None) -> list[dict[str, Any]]:
        """What follows upon a message, oldest first; without one: the newest."""
        found: list[dict[str, Any]] = []
        for _ in range(SEARCHED_PAGES):
            page: Any = await self._bot.http.logs_from(channel_id, PAGE_MESSAGES, after=after)
            messages = [m for m in page if isinstance(m, dict) and id_of(m.get("id"))]
            messages.sort(key=lambda message: int(message["id"]))
            found += messages
            if after is None or len(page) < PAGE_MESSAGES or not messages:
                break
            after = int(messages[-1]["id"])
        return found

    async def _is_there(self, channel_id: int, message_id: int) -> bool:
        try:
            await self._bot.http.get_message(channel_id, message_id)
        except self._sdk.NotFound:
            return False
        return True

    async def typing(self, channel_id: int) -> None:
        """Show the typing sign; raises as `send` does."""

        async def call() -> None:
            await self._bot.get_partial_messageable(channel_id).typing()

        await self._mapped(call, send_error)

    async def _mapped(
        self,
        call: Callable[[], Awaitable[T]],
        refused: Callable[[int, int, str], Exception],
        *,
        text: bool = False,
    ) -> T:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        if not self._is_open():
            raise SendUnavailable("discord: not logged in")
        discord = self._sdk
        seconds = min(self._timeout_seconds, TEXT_SECONDS) if text else self._timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await call()
        except discord.RateLimited as exc:
            raise SendFlood(exc.retry_after) from exc
        except discord.HTTPException as exc:
            raise refused(exc.status, exc.code, shown(exc)) from exc
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise SendUnavailable(shown(exc)) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise SendUnknown(shown(exc)) from exc
        except RuntimeError as exc:
            if "closed" not in str(exc).lower():
                raise
            raise SendUnavailable("discord: the connection is closed") from exc
        except (LookupError, TypeError, ValueError, AttributeError) as exc:
            # An answer that the SDK can not read: something happened, nobody knows what.
            raise SendUnknown(shown(exc)) from exc


def _id_in(message: Any) -> str:
    id_ = id_of(message.get("id"))
    if id_ is None:
        raise ValueError("discord's answer names no message")
    return str(id_)
