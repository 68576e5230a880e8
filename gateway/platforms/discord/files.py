"""Owns the files of Discord messages: how one is found again, and its way here within bounds."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway import texts
from gateway.platforms.contract import FetchRefused, FetchUnavailable

if TYPE_CHECKING:
    import aiohttp
    import yarl

CDN_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0
_CHUNK_BYTES = 64 * 1024
_GONE = (404, 410)
_REF = re.compile(r"(\d{1,20})/(\d{1,20})/(\d{1,20})(?: (\S*))?")
_PLAIN_URL = re.compile(r"https?://[!-~]{1,2000}")


class Expired(Exception):
    """This address leads nowhere any more; Discord gives out another one."""


class Withheld(Expired):
    """Refused: an old address, or somebody in front of the files who lets nothing through now."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """Where a file hangs. The address is only a hint: Discord lets it expire within a day."""

    channel_id: int
    message_id: int
    attachment_id: int
    url: str = ""

    def __str__(self) -> str:
        place = f"{self.channel_id}/{self.message_id}/{self.attachment_id}"
        return f"{place} {self.url}" if _PLAIN_URL.fullmatch(self.url) else place


def parse_ref(ref: str) -> FileRef:
    """The opposite of ``str``.

    Raises:
        FetchRefused: it is none.
    """
    match = _REF.fullmatch(ref)
    if match is None:
        raise FetchRefused(texts.FILE_GONE)
    channel_id, message_id, attachment_id = map(int, match.groups()[:3])
    return FileRef(channel_id, message_id, attachment_id, match[4] or "")


def address_in(message: Any, attachment_id: int) -> str | None:
    """The address of a file as a message (its payload) names it now; also of a forwarded one."""
    if not isinstance(message, dict):
        return None
    places = [message, *(s.get("message") for s in _dicts(message.get("message_snapshots")))]
    for place in places:
        for attachment in _dicts(place.get("attachments") if isinstance(place, dict) else None):
            if str(attachment.get("id")) == str(attachment_id):
                address = attachment.get("url")
                return address if isinstance(address, str) else None
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class Cdn:
    """Loads from Discord's own places only, whatever address a message names."""

    def __init__(self, api_base: str, *, timeout_seconds: float) -> None:
        """``api_base``: if it is not Discord's, files may come from its host as well."""
        import yarl  # noqa: PLC0415 - comes with the SDK

        api = yarl.URL(api_base)
        self._origins = {yarl.URL(f"https://{host}") for host in CDN_HOSTS}
        if api.host != "discord.com":
            self._origins.add(api.origin())
        self._timeout_seconds = timeout_seconds

    async def load(self, address: str, limit_bytes: int) -> bytes:
        """The bytes behind an address.

        Raises:
            Expired: there is nothing (any more); as `Withheld` perhaps only for now.
            FetchError: the matching class.
        """
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        url = self._checked(address)
        timeout = aiohttp.ClientTimeout(
            total=self._timeout_seconds, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        try:
            async with (
                # Of its own: the SDK's session knows the token. Packed answers could be small on
                # the way and huge here.
                aiohttp.ClientSession(
                    timeout=timeout,
                    auto_decompress=False,
                    headers={"Accept-Encoding": "identity"},
                    cookie_jar=aiohttp.DummyCookieJar(),
                ) as http,
                http.get(url, allow_redirects=False) as answer,
            ):
                return await _read(answer, limit_bytes)
        except TimeoutError:
            raise FetchUnavailable(texts.FILE_TOO_SLOW) from None
        except (aiohttp.ClientPayloadError, ConnectionError):
            raise FetchUnavailable(texts.FILE_INCOMPLETE) from None
        except (aiohttp.ClientError, OSError, ValueError):
            # Without its cause: that one knows the address, and its signature.
            raise FetchUnavailable(texts.FILE_NOT_NOW) from None

    def _checked(self, address: str) -> yarl.URL:
        import yarl  # noqa: PLC0415 - comes with the SDK

        if not _PLAIN_URL.fullmatch(address):
            raise Expired
        try:
            url = yarl.URL(address)
            if url.user is None and url.password is None and url.origin() in self._origins:
                return url
        except ValueError:
            pass
        raise FetchRefused(texts.FILE_ODD_PLACE)


async def _read(answer: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    if answer.status in _GONE:
        raise Expired
    if answer.status == 403:
        raise Withheld
    if 300 <= answer.status < 400:
        raise FetchRefused(texts.FILE_ODD_PLACE)
    if answer.status != 200 or answer.headers.get("Content-Encoding", "identity") != "identity":
        raise FetchUnavailable(texts.FILE_NOT_NOW)
    if (answer.content_length or 0) > limit_bytes:
        raise FetchRefused(texts.file_too_large(limit_bytes))
    data = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        if len(data) + len(chunk) > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        data += chunk
        await asyncio.sleep(0)
    return bytes(data)
