"""Owns the download of a file from Telegram's file server: bounded in bytes and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from gateway import texts
from gateway.platforms.contract import FetchRefused, FetchUnavailable
from gateway.platforms.telegram.transport import tls_context

if TYPE_CHECKING:
    import httpx

_CONNECTIONS = 8


class FileServer:
    """One bot's files. ``base_url`` holds the token, so nothing of it may be shown."""

    def __init__(self, base_url: str, *, connect_seconds: float, silence_seconds: float) -> None:
        import httpx  # noqa: PLC0415 - comes with the SDK; see TelegramClient

        self._base_url = base_url
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            timeout=httpx.Timeout(silence_seconds, connect=connect_seconds, pool=None),
            # Packed answers could be small on the way and huge here.
            headers={"Accept-Encoding": "identity"},
            follow_redirects=False,
            verify=tls_context(),
        )

    async def load(self, path: str, limit_bytes: int, expected_bytes: int | None) -> bytes:
        """The file at a path that ``getFile`` gave. The caller bounds the time.

        Raises:
            FetchRefused: it is larger than allowed, or the path leads out of the bot's files.
            FetchUnavailable: it did not come, or not all of it.
        """
        import httpx  # noqa: PLC0415 - see __init__

        url = f"{self._base_url}/{safe_path(path)}"
        try:
            async with self._http.stream("GET", url) as answer:
                if answer.status_code != 200:
                    raise FetchUnavailable(texts.FILE_NOT_NOW)
                data = await _read(answer, limit_bytes)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError):
            # Without its cause: that one knows the address.
            raise FetchUnavailable(texts.FILE_NOT_NOW) from None
        if expected_bytes is not None and len(data) < expected_bytes:
            raise FetchUnavailable(texts.FILE_INCOMPLETE)
        return data

    async def close(self) -> None:
        """May be called twice."""
        await self._http.aclose()


async def _read(answer: httpx.Response, limit_bytes: int) -> bytes:
    declared = answer.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise FetchRefused(texts.file_too_large(limit_bytes))
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise FetchUnavailable(texts.FILE_NOT_NOW)
    data = bytearray()
    async for chunk in answer.aiter_raw():
        if len(data) + len(chunk) > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        data += chunk
    return bytes(data)


def safe_path(path: str) -> str:
    """A path of the file server, in the form that an address takes.

    Raises:
        FetchRefused: it does not stay below the bot's own files.
    """
    steps = path.split("/")
    if not all(steps) or any(step.strip(".") == "" or "\\" in step for step in steps):
        raise FetchRefused(texts.FILE_ODD_PLACE)
    try:
        # All that means something in an address (?, #, %, :) is only a character of a name here.
        return "/".join(quote(step, safe="") for step in steps)
    except UnicodeEncodeError:
        raise FetchRefused(texts.FILE_ODD_PLACE) from None
