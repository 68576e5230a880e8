"""Owns what the provider takes as an image, and the notes that stand for the rest."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.attachments import picture_name, picture_url
from agent.media.kinds import SHOWN_TYPES, picture_size

Block = dict[str, Any]

MAX_SIDE_PIXELS = 8000
MANY_IMAGES = 20
MANY_MAX_SIDE_PIXELS = 2000
MAX_IMAGES = 100
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_ALL_IMAGES_CHARS = 24 * 1024 * 1024
"""Of base64 in one request: leaves room for the text under the limit of 32 MB."""
TOO_MUCH = "the request would be too large"
_HEADER_CHARS = 1 << 20
"""How much of an image is decoded to find its size (a JPEG may hold a thumbnail first)."""

_DATA_URI = re.compile(r"data:([a-z0-9.+/-]+)?(?:;[a-z0-9=.+-]+)*;base64,", re.IGNORECASE)


def image_block(part: Block) -> Block:
    """An ``image_url`` part as the wire has it; a text note where no image can be made of it.

    A kept picture must have got its bytes before (`agent.llm.pictures`); without them it is gone.
    """
    url = picture_url(part)
    if picture_name(part) is not None:
        return note("the file is gone")
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
        found = picture_size(raw)
        if found is not None or len(data) <= chars:
            known = found is not None and found.media_type in SHOWN_TYPES
            return (found.media_type, found.width, found.height) if found and known else None
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
    for count, (where, block) in enumerate(reversed(places), start=1):
        data = block["source"].get("data", "")
        room -= len(data)
        if room < 0 or count > MAX_IMAGES:
            _replace(where, block, note(TOO_MUCH))
        elif many and data:
            found = pixel_size(data)
            if found is None or max(found[1:]) > MANY_MAX_SIDE_PIXELS:
                _replace(where, block, note("too large among so many"))


def newest_that_fit(parts: Sequence[Mapping[str, Any]]) -> int | None:
    """How many of the newest pictures to go on with; None: one request can carry them all.

    Where it can not, half of the room is left free: if every further picture pushed an old one out,
    each request would begin with other bytes than the one before.

    Args:
        parts: The ``image_url`` parts of all pictures, in order.
    """
    chars = [base64_chars(part) for part in parts]
    keep = len(parts)
    if keep > MAX_IMAGES:
        keep = MAX_IMAGES // 2
    if sum(chars[-keep:]) > MAX_ALL_IMAGES_CHARS:
        room, most, keep = MAX_ALL_IMAGES_CHARS // 2, keep, 0
        for size in reversed(chars[-most:]):
            room -= size
            if room < 0:
                break
            keep += 1
    if keep > MANY_IMAGES and any(_large_among_many(part) for part in parts[-keep:]):
        keep = MANY_IMAGES // 2
    return None if keep == len(parts) else max(1, keep)


def base64_chars(part: Mapping[str, Any]) -> int:
    """How much of a request a picture takes; one of unknown size as much as it may."""
    url = picture_url(part)
    if url.startswith("data:"):
        return len(url)
    if picture_name(part) is None:
        return 0
    size = part["image_url"].get("size_bytes") if isinstance(part["image_url"], dict) else None
    if not isinstance(size, int) or not 0 <= size <= MAX_IMAGE_BYTES:
        size = MAX_IMAGE_BYTES
    return 4 * (size // 3 + 1)


def _large_among_many(part: Mapping[str, Any]) -> bool:
    """Kept pictures are none: their copies for a model are small enough for any company."""
    url = picture_url(part)
    head = _DATA_URI.match(url[:200])
    found = pixel_size(url[head.end() :]) if head else None
    return found is not None and max(found[1:]) > MANY_MAX_SIDE_PIXELS


def _replace(where: list[Block], old: Block, new: Block) -> None:
    for i, block in enumerate(where):
        if block is old:
            where[i] = new
            return
