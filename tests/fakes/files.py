"""Owns files as people send them, good and hostile, made of nothing but bytes."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

HTML = b"<!DOCTYPE html><html><script>alert(1)</script></html>"


@lru_cache
def png(width: int = 4, height: int = 3, shade: int = 200) -> bytes:
    """A grey picture; another shade makes another file."""
    row = b"\x00" + bytes([shade]) * width
    return png_of(width, height, zlib.compress(row * height))


def png_of(width: int, height: int, packed: bytes) -> bytes:
    """A picture whose head says one thing and whose body is whatever it is."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, body) for kind, body in ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@lru_cache
def photo(width: int, height: int, *, kind: str = "JPEG", orientation: int = 1) -> bytes:
    """A noisy picture as a camera writes it: it does not pack well."""
    from PIL import Image

    small = random.Random(width * height).randbytes(64 * 48 * 3)
    image = Image.frombytes("RGB", (64, 48), small).resize((width, height))
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    image.save(out, kind, exif=exif) if kind == "JPEG" else image.save(out, kind)
    return out.getvalue()


def pdf(pages: Sequence[str], *, packed: bytes | None = None) -> bytes:
    """A document with a line of text on each page; ``packed``: the last page's stream instead."""
    objects: list[bytes] = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", _FONT]
    kids: list[bytes] = []
    for n, words in enumerate(pages):
        stream = f"BT /F1 12 Tf 50 700 Td ({words}) Tj ET".encode("latin-1")
        how = b""
        if packed is not None and n == len(pages) - 1:
            stream, how = packed, b"/Filter /FlateDecode "
        objects.append(b"<< %s/Length %d >>\nstream\n%s\nendstream" % (how, len(stream), stream))
        objects.append(_PAGE % len(objects))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF"
    ) % (len(objects) + 1, table, len(objects) + 1, len(out))


_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
    b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
)


def locked_pdf(password: str) -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(pdf(["secret"]))))
    writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
