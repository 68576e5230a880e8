"""Owns what one message carries: a planned part's payload with its files → what Discord is sent."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agent.attachments import Attachments
from agent.errors import StoreUnavailable
from agent.messages import clean_text
from gateway import texts
from gateway.platforms.contract import UNREADABLE_TRIES, SendUnavailable
from gateway.platforms.discord.out.rows import rows_of
from gateway.platforms.file_names import safe_name

log = logging.getLogger(__name__)

MAX_FILES = 5
"""In one message; Discord takes twice as many, all of which are in memory at once."""
AT_ONCE = 2
"""So many messages with files are in memory at one time."""
MOST_BYTES = 25 << 20
"""Of one file, however much a server has paid for."""
DESCRIPTION_CHARS = 1_024
CONTENT_CHARS = 2_000
SUPPRESS_EMBEDS, EPHEMERAL = 1 << 2, 1 << 6


@dataclass(frozen=True, slots=True)
class Enclosed:
    """One file of a message."""

    name: str
    data: bytes
    media_type: str
    description: str = ""
    """What it is called, where Discord shows another name."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message as it goes out."""

    content: str
    rows: tuple[dict[str, Any], ...] = ()
    files: tuple[Enclosed, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """Of its files in bytes, by which they are recognised: Discord gives them other names."""
        return sorted(len(file.data) for file in self.files)

    def body(self, *, quiet: bool = False) -> dict[str, Any]:
        """The JSON of a message, new or changed. Nobody is ever pinged by it.

        Links are not unfolded: Discord would load each address that a model writes, and what
        stands in it, without anybody having pressed it.
        """
        body: dict[str, Any] = {
            "content": self.content,
            "components": list(self.rows),
            "allowed_mentions": {"parse": []},
            "flags": SUPPRESS_EMBEDS | (EPHEMERAL if quiet else 0),
        }
        if self.files:
            body["attachments"] = [
                {"id": n, "filename": file.name}
                | ({"description": file.description} if file.description else {})
                for n, file in enumerate(self.files)
            ]
        return body

    def without_files(self, why: str = texts.FILE_NOT_TAKEN) -> Parcel:
        """The same in words, where Discord does not take the files after all."""
        return self._without(self.files, why)

    def without_largest(self) -> Parcel:
        """The same without the largest file, in words instead."""
        largest = max(self.files, key=lambda file: len(file.data))
        return self._without((largest,), texts.FILE_NOT_TAKEN)

    def _without(self, left_out: Sequence[Enclosed], why: str) -> Parcel:
        lines = [texts.file_not_sent(file.name, why) for file in left_out]
        content = "\n".join([self.content, *lines]).strip()[:CONTENT_CHARS]
        left = tuple(f for f in self.files if not any(f is other for other in left_out))
        return Parcel(content, self.rows, left)

    def form(self, body: Mapping[str, Any], opened: Sequence[Any]) -> list[dict[str, Any]]:
        """The fields of a form that carries this body and the files (`aiohttp.FormData`).

        ``opened``: the files' contents, to be read from.
        """
        fields: list[dict[str, Any]] = [
            {
                "name": "payload_json",
                "value": json.dumps(body),
                "content_type": "application/json",
            }
        ]
        fields += [
            {
                "name": f"files[{n}]",
                "value": content,
                "filename": file.name,
                "content_type": file.media_type,
            }
            for n, (file, content) in enumerate(zip(self.files, opened, strict=True))
        ]
        return fields


class Packing:
    """Puts parcels together."""

    def __init__(self, attachments: Attachments | None) -> None:
        """``attachments``: where kept files lie."""
        self._attachments = attachments
        self._room = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def packed(
        self, payload: Mapping[str, Any], limit_bytes: int, attempts: int = 0
    ) -> AsyncIterator[Parcel]:
        """What a planned part says, while it goes out. What can not go with it is said in words.

        ``limit_bytes``: of one file. ``attempts``: at this part.

        Raises:
            SendUnavailable: the files can not be read now.
        """
        if not payload.get("files"):
            yield await self._pack(payload, limit_bytes, attempts)
            return
        async with self._room:
            yield await self._pack(payload, limit_bytes, attempts)

    async def _pack(self, payload: Mapping[str, Any], limit_bytes: int, attempts: int) -> Parcel:
        files: list[Enclosed] = []
        missing: list[str] = []
        for name in payload.get("files") or ():
            found = await self._kept(str(name), payload.get("owner"), limit_bytes, attempts)
            if isinstance(found, Enclosed):
                files.append(found)
            else:
                missing.append(found)
        document = payload.get("document")
        if document is not None:
            data = clean_text(str(document["text"])).encode()
            found = Enclosed(
                safe_name(str(document["name"]), ""), data, "text/plain; charset=utf-8"
            )
            files.append(found)
        content = str(payload.get("content") or "")
        if missing:
            content = "\n".join([content, *missing]).strip()[:CONTENT_CHARS]
        return Parcel(content, tuple(rows_of(payload.get("buttons") or ())), tuple(files))

    async def _kept(
        self, name: str, owner: str | None, limit_bytes: int, attempts: int
    ) -> Enclosed | str:
        """A kept file, or in words why it does not go out."""
        shown = ""
        if self._attachments is None:
            return texts.file_not_sent(shown, texts.FILE_NOT_KEPT)
        try:
            known = await self._attachments.find(name, owner=owner)
            if known is None:
                return texts.file_not_sent(shown, texts.FILE_NOT_KEPT)
            shown = safe_name(known.file_name, name)
            if known.size_bytes > limit_bytes:
                return texts.file_not_sent(
                    shown, texts.file_too_large_to_send(known.size_bytes, limit_bytes)
                )
            if not known.size_bytes:
                return texts.file_not_sent(shown, texts.FILE_EMPTY)
            data = await self._attachments.read(name)
            return Enclosed(shown, data, known.media_type, _description(known.file_name, shown))
        except LookupError:
            return texts.file_not_sent(shown, texts.FILE_NOT_KEPT)
        except StoreUnavailable as exc:
            if attempts < UNREADABLE_TRIES:
                raise SendUnavailable("a file can not be read now") from exc
            log.exception("a file to be sent can not be read", extra={"file": name})
            return texts.file_not_sent(shown, texts.FILE_UNREADABLE)


def _description(name: str, shown: str) -> str:
    """The name as people gave it, if Discord would show another one (it keeps plain ones)."""
    clean = clean_text(name).strip()
    return "" if clean == shown and shown.isascii() else clean[:DESCRIPTION_CHARS]
