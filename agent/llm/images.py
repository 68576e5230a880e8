"""Owns what the provider takes as an image, and the notes that stand for the rest."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any

Block = dict[str, Any]

MAX_SIDE_PIXELS = 8000
MANY_IMAGES = 20
MANY_MAX_SIDE_PIXELS = 2000
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_ALL_IMAGES_CHARS = 24 * 1024 * 1024
"""Of base64 in one request: leaves room for the text under the limit of 32 MB."""
_HEADER_CHARS = 1 << 20
"""How much of an image is decoded to find its size (a JPEG may hold a thumbnail first)."""

_DATA_URI = re.compile(r"data:([a-z0-9.+/-]+)?(?:;[a-z0-9=.+-]+)*;base64,", re.IGNORECASE)


def image_block(part: Block) -> Block:
    """An ``image_url`` part as the wire has it; a text note where no image can be made of it."""
    source = part.get("image_url")
    url = source.get("url") if isinstance(source, dict) else source
    if not isinstance(url, str):
        return note("unreadable")
    if url.startswith(("http://", "https://")) and url.isascii():
        return {"type": "image", "source": {"type": "url", "url": url}}
    head = _DATA_URI.match(url[:200])
    if head is None:
        return note("unreadable")
    data = url[head.end() :]
    if not data.isascii() or len(data) % 4 or "\n" in data[:_HEADER_CHARS]:
        return note("unreadable")
    if len(data) * 3 // 4 > MAX_IMAGE_BYTES:
        return note("larger than 5 MB")
    found = pixel_size(data)
    if found is None:
        return note("unreadable")
    kind, width, height = found
    if max(width, height) > MAX_SIDE_PIXELS:
        return note(f"{width} x {height} pixels are too many")
    # The kind is what the bytes say: a wrong label would refuse the whole request.
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def note(why: str) -> Block:
    """What stands where an image can not."""
    return {"type": "text", "text": f"[image left out: {why}]"}


def pixel_size(data: str) -> tuple[str, int, int] | None:
    """(media type, width, height) from the first bytes of base64 data, or None."""
    for chars in (4096, _HEADER_CHARS):
        try:
            raw = base64.b64decode(data[: chars - chars % 4], validate=True)
        except (binascii.Error, ValueError):
            return None
        found = _png(raw) or _gif(raw) or _webp(raw) or _jpeg(raw)
        if found is not None or len(data) <= chars:
            return found
    return None


def _png(raw: bytes) -> tuple[str, int, int] | None:
    if raw[:8] != b"\x89PNG\r\n\x1a\n" or len(raw) < 24:
        return None
    width, height = struct.unpack(">II", raw[16:24])
    return "image/png", width, height


def _gif(raw: bytes) -> tuple[str, int, int] | None:
    if raw[:6] not in (b"GIF87a", b"GIF89a") or len(raw) < 10:
        return None
    width, height = struct.unpack("<HH", raw[6:10])
    return "image/gif", width, height


def _webp(raw: bytes) -> tuple[str, int, int] | None:
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP" or len(raw) < 30:
        return None
    if raw[12:16] == b"VP8X":
        width = 1 + int.from_bytes(raw[24:27], "little")
        return "image/webp", width, 1 + int.from_bytes(raw[27:30], "little")
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return "image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", raw[26:30])
    return "image/webp", width & 0x3FFF, height & 0x3FFF


def _jpeg(raw: bytes) -> tuple[str, int, int] | None:
    if raw[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(raw):
        if raw[at] != 0xFF:
            return None
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return "image/jpeg", width, height
        if marker in (0xFF, 0x01) or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None


def all_images(blocks: Iterable[Block]) -> list[tuple[list[Block] | None, Block]]:
    """Every image among blocks and inside tool results, as (the nested list it is in, image)."""
    found: list[tuple[list[Block] | None, Block]] = []
    for block in blocks:
        if block.get("type") == "image":
            found.append((None, block))
        elif block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            nested = block["content"]
            found.extend((nested, b) for b in nested if b.get("type") == "image")
    return found


def limit_images(contents: Sequence[list[Block]]) -> None:
    """Replace in place what one request can not carry: oldest first, the newest are kept.

    The lists must be the request's own; the blocks in them are not touched.
    """
    places = [
        (nested if nested is not None else content, block)
        for content in contents
        for nested, block in all_images(content)
    ]
    if not places:
        return
    room = MAX_ALL_IMAGES_CHARS
    many = len(places) > MANY_IMAGES
    for where, block in reversed(places):
        data = block["source"].get("data", "")
        room -= len(data)
        if room < 0:
            _replace(where, block, note("the request would be too large"))
        elif many and data:
            found = pixel_size(data)
            if found is None or max(found[1:]) > MANY_MAX_SIDE_PIXELS:
                _replace(where, block, note("too large among so many"))


def newest_that_fit(urls: Sequence[str]) -> int | None:
    """How many of the newest pictures to go on with; None: one request can carry them all.

    Where it can not, half of the room is left free: if every further picture pushed an old one out,
    each request would begin with other bytes than the one before.

    Args:
        urls: Of all pictures, in order.
    """
    chars = [len(url) if url.startswith("data:") else 0 for url in urls]
    keep = len(urls)
    if sum(chars) > MAX_ALL_IMAGES_CHARS:
        room, keep = MAX_ALL_IMAGES_CHARS // 2, 0
        for size in reversed(chars):
            room -= size
            if room < 0:
                break
            keep += 1
    if keep > MANY_IMAGES and any(_large_among_many(url) for url in urls[-keep:]):
        keep = MANY_IMAGES // 2
    return None if keep == len(urls) else max(1, keep)


def _large_among_many(url: str) -> bool:
    head = _DATA_URI.match(url[:200])
    found = pixel_size(url[head.end() :]) if head else None
    return found is not None and max(found[1:]) > MANY_MAX_SIDE_PIXELS


def _replace(where: list[Block], old: Block, new: Block) -> None:
    for i, block in enumerate(where):
        if block is old:
            where[i] = new
            return
