"""Owns the rules on images: media types, sizes in bytes and pixels, many-image requests."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator

from tests.fakes.anthropic_server.errors import broken
from tests.fakes.anthropic_server.units import Json

MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_PIXELS = 8000
MANY_MAX_PIXELS = 2000
MANY = 20
MAX_IMAGES = 100
MAX_BYTES = 5 * 1024 * 1024

Size = tuple[int, int]


def images_in(body: Json) -> Iterator[tuple[str, Json]]:
    """Every image with its path, also those inside tool results."""
    for i, message in enumerate(body["messages"]):
        if isinstance(message["content"], list):
            yield from _images(f"messages.{i}.content", message["content"])


def _images(path: str, blocks: list[Json]) -> Iterator[tuple[str, Json]]:
    for j, block in enumerate(blocks):
        if block.get("type") == "image":
            yield f"{path}.{j}.image.source", block
        elif block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield from _images(f"{path}.{j}.tool_result.content", block["content"])


def check_images(body: Json) -> None:
    """Rule 28."""
    found = list(images_in(body))
    if len(found) > MAX_IMAGES:
        raise broken("28", f"Too much media: 0 document pages + {len(found)} images > {MAX_IMAGES}")
    many = len(found) > MANY
    for path, block in found:
        _check_image(path, block, many)


def _check_image(path: str, block: Json, many: bool) -> None:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url", "file"):
        raise broken("28", f"{path}: Input should be one of 'base64', 'url', 'file'")
    if source["type"] != "base64":
        return
    path = f"{path}.base64"
    if source.get("media_type") not in MEDIA_TYPES:
        options = ", ".join(f"'{t}'" for t in MEDIA_TYPES)
        raise broken("28", f"{path}.media_type: Input should be {options}")
    data = _decode(path, source)
    if len(data) > MAX_BYTES:
        raise broken(
            "28", f"{path}: image exceeds 5 MB maximum: {len(data)} bytes > {MAX_BYTES} bytes"
        )
    kind, size = sniff(data)
    if kind is None or size is None:
        raise broken("28", "Could not process image")
    if kind != source["media_type"]:
        raise broken(
            "28",
            f"{path}.data: Image does not match the provided media type {source['media_type']}",
        )
    _check_pixels(path, size, many)


def _decode(path: str, source: Json) -> bytes:
    try:
        return base64.b64decode(str(source.get("data", "")), validate=True)
    except ValueError:
        raise broken("28", f"{path}.data: invalid base64 data") from None


def _check_pixels(path: str, size: Size, many: bool) -> None:
    limit = MANY_MAX_PIXELS if many else MAX_PIXELS
    if max(size) > limit:
        note = " for many-image requests" if many else ""
        raise broken(
            "28",
            f"{path}.data: At least one of the image dimensions exceed max allowed size{note}:"
            f" {limit} pixels",
        )


def sniff(data: bytes) -> tuple[str | None, Size | None]:
    """Media type and pixel size from the first bytes."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png", struct.unpack(">II", data[16:24])
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return "image/gif", struct.unpack("<HH", data[6:10])
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "image/webp", _webp_size(data)
        if data.startswith(b"\xff\xd8"):
            return "image/jpeg", _jpeg_size(data)
    except (struct.error, IndexError):
        pass
    return None, None


def _webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> Size | None:
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        # Frame headers, except the three markers in the range that are none.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None
