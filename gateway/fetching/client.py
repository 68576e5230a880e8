"""Owns one request to one checked address (aiohttp). Heavy: imported with the first page."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from agent.tools.web import WebPage, WebRefusal
from gateway.fetching.addresses import address_of
from gateway.fetching.answers import MOVED, refusal_words
from gateway.fetching.targets import Target
from gateway.fetching.unpacking import Unpacker

MAX_BYTES = 10_000_000
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 15.0
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,30}/[a-z0-9.+-]{1,80}")
_LABEL_CHARS = 40
_NOT_READ = ("audio/", "video/", "font/")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moved:
    """It is somewhere else."""

    location: str


class _Pinned(AbstractResolver):
    """Knows the addresses that were checked, and asks nobody."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


class _UncheckedAddress(OSError):
    """Somebody wants to connect elsewhere; never seen, and it stays so."""


def _sockets(addresses: Sequence[str]) -> aiohttp.SocketFactoryType:
    """Sockets for these addresses only: whatever the library makes of a URL, it goes there."""
    checked = {address_of(address) for address in addresses}

    def made(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, proto, _, where = info
        if address_of(str(where[0])) not in checked:
            raise _UncheckedAddress("an address that was not checked")
        return socket.socket(family, kind, proto)

    return made


async def ask(target: Target, addresses: Sequence[str], *, user_agent: str) -> WebPage | Moved:
    """One GET, with nothing of ours in it: no cookies, no proxies or passwords of the environment.

    Raises:
        WebRefusal: no page came of it.
    """
    connector = aiohttp.TCPConnector(
        resolver=_Pinned(addresses),
        socket_factory=_sockets(addresses),
        use_dns_cache=False,
        force_close=True,
        limit=1,
    )
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
                ),
                headers={
                    "User-Agent": user_agent,
                    "Accept": "text/html, text/markdown, text/plain, application/json, "
                    "application/pdf, image/*;q=0.8, */*;q=0.5",
                    "Accept-Encoding": "gzip, deflate",
                },
            ) as session,
            session.get(target.url, allow_redirects=False) as response,
        ):
            return await _read(target, response)
    except aiohttp.ClientConnectorCertificateError as exc:
        raise _no_trust(target, exc.certificate_error) from exc
    except aiohttp.ClientSSLError as exc:
        raise WebRefusal(f"no encrypted connection with {target.host} can be had") from exc
    except aiohttp.ClientConnectorError as exc:
        raise WebRefusal(f"{target.host} does not take connections on port {target.port}") from exc
    except TimeoutError as exc:  # aiohttp's own are such
        raise WebRefusal(f"{target.host} does not answer in time; try again later") from exc
    except aiohttp.ClientPayloadError as exc:
        raise WebRefusal("the page ended before its end; try again") from exc
    except (aiohttp.ClientError, ValueError) as exc:  # ValueError: headers that are none
        log.debug("an answer that is none", extra={"error": type(exc).__name__})
        raise WebRefusal(f"{target.host} gives an answer that can not be understood") from exc
    except OSError as exc:
        raise WebRefusal(f"the connection to {target.host} broke; try again") from exc


async def _read(target: Target, response: aiohttp.ClientResponse) -> WebPage | Moved:
    if response.status in MOVED and (location := response.headers.get("Location")):
        return Moved(location)
    if words := refusal_words(response.status):
        raise WebRefusal(words)
    media_type, label = _kind(response)
    if media_type.startswith(_NOT_READ):
        raise WebRefusal(f"that is {media_type}, which can not be read")
    unpacker = Unpacker(response.headers.get("Content-Encoding", ""), MAX_BYTES)
    async for piece in response.content.iter_any():
        unpacker.take(piece)
        if unpacker.over:
            break
        await asyncio.sleep(0)  # a fast server must not have the loop for itself
    unpacker.finish()
    return WebPage(str(target.url), media_type, label, unpacker.data, unpacker.full)


def _kind(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """Media type and label of the letters, as the server says; "" each: it does not."""
    if "Content-Type" not in response.headers:
        return "", ""
    try:
        media_type, label = response.content_type.lower(), response.charset or ""
    except ValueError:  # nonsense
        return "", ""
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else "", label[:_LABEL_CHARS]


def _no_trust(target: Target, error: Exception) -> WebRefusal:
    reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else ""
    said = f": {reason}" if reason else ""
    return WebRefusal(f"the certificate of {target.host} is not to be trusted{said}")
