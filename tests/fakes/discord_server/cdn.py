"""The file server: addresses that are signed and expire, and the ways in which it misbehaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp import web


@dataclass
class File:
    channel_id: int
    id: int
    name: str
    data: bytes
    kind: str
    quirk: str | None = None
    """redirect, endless, hang, short, gone, packed or a status."""


@dataclass
class Cdn:
    """Every address carries the generation in which it was signed; only the newest one counts."""

    base: str = ""
    files: dict[int, File] = field(default_factory=dict)
    generation: int = 1
    asked: list[str] = field(default_factory=list)
    crashes: list[Exception] = field(default_factory=list)

    def url(self, attachment_id: int) -> str:
        file = self.files[attachment_id]
        # Discord makes the name safe for an address; the name itself stays as it is.
        name = quote(file.name.encode("utf-8", "replace").replace(b"/", b"_"), safe="._-")
        signature = f"ex={self.generation:08x}&is={self.generation:08x}&hm={file.id:064x}&"
        return f"{self.base}/attachments/{file.channel_id}/{file.id}/{name or '_'}?{signature}"

    def expire(self) -> None:
        self.generation += 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if "Authorization" in request.headers or "Cookie" in request.headers:
            self.crashes.append(AssertionError("the file server was told the token"))
        file = self.files.get(int(request.match_info["id"]))
        if file is None or request.query.get("ex") != f"{self.generation:08x}":
            return web.Response(status=404, text="This content is no longer available.")
        match file.quirk:
            case None:
                return web.Response(body=file.data, content_type=file.kind)
            case "redirect":
                return web.Response(status=302, headers={"Location": f"{self.base}/elsewhere"})
            case "gone":
                return web.Response(status=404)
            case "packed":
                headers = {"Content-Encoding": "gzip"}
                return web.Response(body=file.data, headers=headers)
            case "hang":
                await asyncio.sleep(3600)
            case "endless":
                return await self._endless(request)
            case "short":
                return await self._short(request, file)
        return web.Response(status=int(file.quirk or 500))

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(65536))

    async def _short(self, request: web.Request, file: File) -> web.StreamResponse:
        """Less than was promised, and then the connection is gone."""
        response = web.StreamResponse(headers={"Content-Length": str(len(file.data))})
        await response.prepare(request)
        await response.write(file.data[: len(file.data) // 2])
        assert request.transport is not None
        request.transport.abort()
        return response
