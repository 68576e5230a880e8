"""Owns the files that people send: what is known of one, and the port of the place they lie in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

SCHEME = "attachment:"
"""Of the address by which a message names a stored picture: ``attachment:<name>``."""
NAME = re.compile(r"[0-9a-f]{32}(?:\.[a-z0-9]{1,8})?")
"""The first 128 bits of the content's SHA-256, and what kind of file it is."""


def picture_part(name: str, size_bytes: int) -> dict[str, Any]:
    """The part of a message that shows a kept picture; its size is for the limits of requests."""
    return {"type": "image_url", "image_url": {"url": SCHEME + name, "size_bytes": size_bytes}}


def picture_url(part: Mapping[str, Any]) -> str:
    """The address in an ``image_url`` part, of whatever scheme; "": there is none."""
    source = part.get("image_url")
    url = source.get("url") if isinstance(source, dict) else source
    return url if isinstance(url, str) else ""


def picture_name(part: Mapping[str, Any]) -> str | None:
    """The name of the kept picture that an ``image_url`` part shows; None: it shows no such one."""
    url = picture_url(part)
    name = url.removeprefix(SCHEME)
    return name if url != name and NAME.fullmatch(name) else None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is kept."""

    name: str
    """Whoever knows it may read it: it can not be guessed."""
    owner: str
    file_name: str
    """As its sender calls it; only ever shown."""
    media_type: str
    """By the bytes, not by what the sender says."""
    size_bytes: int
    created_at: float


class Attachments(Protocol):
    """The place where the files lie."""

    async def keep(self, data: bytes, *, owner: str, file_name: str, media_type: str) -> StoredFile:
        """Keep these bytes; on disk when this returns. The same bytes are kept once.

        Raises:
            StoreUnavailable: not kept.
        """
        ...

    async def find(self, name: str, *, owner: str | None = None) -> StoredFile | None:
        """What is known of a file; None: there is no such one.

        ``owner``: only if it was kept for them; None: for whomsoever it was kept first.
        """
        ...

    async def read(self, name: str) -> bytes:
        """The bytes.

        Raises:
            LookupError: there is no such file (any more).
            StoreUnavailable: it can not be read now.
        """
        ...
