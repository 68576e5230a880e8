"""Owns what goes out to Discord by one login: messages, the search for earlier ones, typing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.platforms.contract import (
    ChatGone,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.discord.asking import shown
from gateway.platforms.discord.reading import id_of
from gateway.platforms.discord.source import PAGE_MESSAGES

if TYPE_CHECKING:
    import discord

T = TypeVar("T")

CLOUDFLARE_SECONDS = 60.0
SEARCHED_PAGES = 10
_UNKNOWN_CHANNEL = 10003
_UNKNOWN_MESSAGE, _INVALID_FORM = 10008, 50035


class NoSuchReference(Exception):
    """The message to answer is gone; nothing was sent."""


class Sending:
    """Whatever the SDK raises becomes an error of ours."""

    def __init__(
        self,
        bot: discord.Client,
        sdk: Any,
        *,
        is_open: Callable[[], bool],
        timeout_seconds: float,
    ) -> None:
        """``timeout_seconds``: the SDK's own retries and waits for rate limits included."""
        self._bot = bot
        self._sdk = sdk
        self._is_open = is_open
        self._timeout_seconds = timeout_seconds

    async def send(self, channel_id: int, content: str, nonce: str, reply_to: int | None) -> str:
        """Send one message and give back its id; Discord shows a nonce once, for some minutes.

        Raises:
            SendError: the matching class.
            NoSuchReference: it would be accepted without the reference.
        """
        discord = self._sdk
        reference: Any = None
        if reply_to is not None:
            reference = discord.MessageReference(
                message_id=reply_to, channel_id=channel_id, fail_if_not_exists=False
            )

        async def call() -> str:
            channel = self._bot.get_partial_messageable(channel_id)
            message = await channel.send(
                content,
                nonce=nonce,  # the SDK adds enforce_nonce to it
                reference=reference,
                allowed_mentions=discord.AllowedMentions.none(),
            )
            return str(message.id)

        return await self._mapped(call)

    async def find_own(
        self,
        channel_id: int,
        content: str,
        nonce: str,
        reply_to: int | None,
        before: int | None,
        *,
        first: bool,
    ) -> str | None:
        """The message that an earlier send of this part made, if it is there.

        Recognised by its nonce. The history does not always tell it; then the first part of an
        answer is the one with its content that answers the same message, and a further part the
        first one with its content behind the part before it (``before``), so that two parts with
        the same words are not taken for each other.

        Raises:
            SendError: nothing could be read.
        """

        async def call() -> str | None:
            looked_for = _Looked(self._own_id(), content, nonce, reply_to if first else None)
            after = before if before is not None else reply_to
            bare: str | None = None
            for message in await self._messages(channel_id, after):
                match looked_for.match(message):
                    case "nonce":
                        return str(message["id"])
                    case "answer" if after is not None:
                        return str(message["id"])
                    case "bare" if after is not None:
                        bare = bare or str(message["id"])
            # Sent without the reference because the question was gone already?
            if (
                bare
                and first
                and reply_to is not None
                and await self._is_there(channel_id, reply_to)
            ):
                return None
            return bare

        return await self._mapped(call)

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

    def _own_id(self) -> int:
        user = self._bot.user
        assert user is not None
        return user.id

    async def typing(self, channel_id: int) -> None:
        """Show the typing sign; raises as `send` does."""

        async def call() -> None:
            await self._bot.get_partial_messageable(channel_id).typing()

        await self._mapped(call)

    async def _mapped(self, call: Callable[[], Awaitable[T]]) -> T:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        if not self._is_open():
            raise SendUnavailable("discord: not logged in")
        discord = self._sdk
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await call()
        except discord.RateLimited as exc:
            raise SendFlood(exc.retry_after) from exc
        except discord.HTTPException as exc:
            raise _send_error(exc) from exc
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


class _Looked:
    """What an earlier send of a part looks like."""

    def __init__(self, own_id: int, content: str, nonce: str, reply_to: int | None) -> None:
        self._own_id = own_id
        self._content = content
        self._nonce = nonce
        self._reply_to = reply_to

    def match(self, message: dict[str, Any]) -> str | None:
        """Surely, as the answer that is looked for, or as one that says the same."""
        author = message.get("author")
        if not isinstance(author, dict) or id_of(author.get("id")) != self._own_id:
            return None
        nonce = message.get("nonce")
        if nonce is not None:
            return "nonce" if str(nonce) == self._nonce else None
        if message.get("content") != self._content:
            return None
        reference = message.get("message_reference")
        answered = id_of(reference.get("message_id")) if isinstance(reference, dict) else None
        if answered is None:
            return "bare"
        return "answer" if answered == self._reply_to else None


def _send_error(exc: discord.HTTPException) -> Exception:
    text = shown(exc)
    reference = exc.code == _UNKNOWN_MESSAGE or (
        exc.code == _INVALID_FORM and "message_reference" in exc.text.lower()
    )
    if reference:
        return NoSuchReference(text)
    if exc.status == 429:  # without the proof of coming from Discord itself
        return SendFlood(CLOUDFLARE_SECONDS)
    if exc.status == 401:
        return SendUnavailable(text)
    if exc.status >= 500 or exc.status == 408:
        return SendUnknown(text)
    if exc.status == 403 or exc.code == _UNKNOWN_CHANNEL:
        return ChatGone(text)
    return SendRefused(text)
