"""Owns what kind of file some bytes are, whatever its sender calls it. Pure."""

from __future__ import annotations

import codecs
import struct
from dataclasses import dataclass

BINARY = "application/octet-stream"
PLAIN_TEXT = "text/plain"
PDF = "application/pdf"
SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The kinds of picture that a model takes as they are."""
CONVERTED_TYPES = ("image/bmp",)
"""The kinds that are made into one of those."""
LOOKED_AT_BYTES = 64 * 1024
"""Of the beginning, to tell text from the rest."""

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    # Pictures of which no size can be read: damaged ones.
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", PDF),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"#!AMR", "audio/amr"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-executable"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
)
_BRANDS = (  # of the family of MP4, by the first letters of the brand
    (b"heic", "image/heic"),
    (b"heix", "image/heic"),
    (b"mif1", "image/heif"),
    (b"avif", "image/avif"),
    (b"M4A", "audio/mp4"),
    (b"qt", "video/quicktime"),
)
_RIFF = {b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_MARKUP = (
    (b"<!doctype html", "text/html"),
    (b"<html", "text/html"),
    (b"<svg", "image/svg+xml"),
    (b"<?xml", "text/xml"),
    (b"{\\rtf", "text/rtf"),
)
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_BOMS_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\v\x1b\x08")


@dataclass(frozen=True, slots=True)
class PictureSize:
    """What the beginning of a picture says of it."""

    media_type: str
    width: int
    height: int


def media_type_of(data: bytes) -> str:
    """The media type by the bytes: a few dozen kinds that people send; else `BINARY`."""
    picture = picture_size(data)
    if picture is not None:
        return picture.media_type
    for beginning, found in _BEGINNINGS:
        # Words begin with letters as well.
        if data.startswith(beginning) and not (beginning.isalnum() and looks_like_text(data)):
            return found
    if data[:4] == b"RIFF" and data[8:12] in _RIFF:  # a text may begin so, too
        return _RIFF[data[8:12]]
    if data[4:8] == b"ftyp":
        return next((kind for brand, kind in _BRANDS if data[8:].startswith(brand)), "video/mp4")
    if not looks_like_text(data):
        return BINARY
    start = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return next((kind for begin, kind in _MARKUP if start.startswith(begin)), PLAIN_TEXT)


def looks_like_text(data: bytes) -> bool:
    """Would a person read this as text? Empty is text; a byte of zero is not, outside UTF-16."""
    head = data[:LOOKED_AT_BYTES]
    if head.startswith((*_BOMS, *_BOMS_16)):
        return True
    if b"\x00" in head:
        return utf_16_without_mark(head) is not None
    controls = sum(1 for byte in head.translate(None, _PRINTED) if byte not in _TEXT_CONTROLS)
    return controls * 100 <= len(head)


_PRINTED = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))


def utf_16_without_mark(head: bytes) -> str | None:
    """The codec of text in UTF-16 that does not say so itself: mostly Latin, so half are zeros."""
    pairs = len(head) // 2
    if pairs < 2:
        return None
    even, odd = head[0 : pairs * 2 : 2].count(0), head[1 : pairs * 2 : 2].count(0)
    if odd * 10 >= pairs * 7 and even * 50 <= pairs:
        return "utf-16-le"
    if even * 10 >= pairs * 7 and odd * 50 <= pairs:
        return "utf-16-be"
    return None


# --- pictures -----------------------------------------------------------------------------------


def picture_size(raw: bytes) -> PictureSize | None:
    """Kind and size of a picture from its first bytes; None: it is none, or they are too few."""
    return _png(raw) or _gif(raw) or _webp(raw) or _jpeg(raw) or _bmp(raw)


def _png(raw: bytes) -> PictureSize | None:
    if raw[:8] != b"\x89PNG\r\n\x1a\n" or len(raw) < 24:
        return None
    return PictureSize("image/png", *struct.unpack(">II", raw[16:24]))


def _gif(raw: bytes) -> PictureSize | None:
    if raw[:6] not in (b"GIF87a", b"GIF89a") or len(raw) < 10:
        return None
    return PictureSize("image/gif", *struct.unpack("<HH", raw[6:10]))


def _webp(raw: bytes) -> PictureSize | None:
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP" or len(raw) < 30:
        return None
    if raw[12:16] == b"VP8X":
        width = 1 + int.from_bytes(raw[24:27], "little")
        return PictureSize("image/webp", width, 1 + int.from_bytes(raw[27:30], "little"))
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return PictureSize("image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    width, height = struct.unpack("<HH", raw[26:30])
    return PictureSize("image/webp", width & 0x3FFF, height & 0x3FFF)


def _jpeg(raw: bytes) -> PictureSize | None:
    if raw[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(raw):
        if raw[at] != 0xFF:
            return None
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return PictureSize("image/jpeg", width, height)
        if marker in (0xFF, 0x01) or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None


_BMP_HEADS = (40, 52, 56, 64, 108, 124)


def _bmp(raw: bytes) -> PictureSize | None:
    if raw[:2] != b"BM" or len(raw) < 26:
        return None
    if int.from_bytes(raw[14:18], "little") not in _BMP_HEADS:  # a text may begin so, too
        return None
    width, height = struct.unpack("<ii", raw[18:26])
    return PictureSize("image/bmp", abs(width), abs(height))
