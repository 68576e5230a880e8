"""Owns which letters bytes of the web are: by their mark, their label, or their look (pure)."""

from __future__ import annotations

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_.:-]{1,40})""", re.IGNORECASE
)
_LOOKED_AT_BYTES = 4096
PIECE_BYTES = 64 * 1024
_OF_ONE_BYTE = re.compile(r"cp(?:125|866|874)|iso8859|koi8|mac-")
_MEANT = {
    # What browsers read these labels as: more letters than the standard has, never fewer.
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_TAKEN = re.compile(
    r"utf-8|utf-16(?:-[lb]e)?|cp(?:125\d|866|874|932|949)|iso8859-\d+|koi8-[ru]|mac-(?:roman|cyrillic)"
    r"|gb18030|big5hkscs|euc_jp|iso2022_jp"
)
"""Nothing else that Python knows by such a name: some of it unpacks, some of it is no text."""


def codec_named(label: str) -> str | None:
    """The codec that a label of the web means; None: nobody knows, or it is none of letters."""
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name
    except (LookupError, ValueError):  # ValueError: a byte of zero in it
        return None
    name = _MEANT.get(name, name)
    return name if _TAKEN.fullmatch(name) else None


def web_text(data: bytes, label: str = "", *, markup: bool = False) -> str:
    """The text of these bytes; what can not be read in it is replaced.

    ``label``: what the server calls the letters. ``markup``: it is HTML, which may say so itself.
    """
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    named = codec_named(label) if label else None
    if named is None and markup and (said := _META.search(data[:_LOOKED_AT_BYTES])):
        named = codec_named(said[1].decode("ascii"))
        if named is not None and named.startswith("utf-16"):
            named = "utf-8"  # it could not be read as ASCII otherwise
    if named is not None:
        return in_pieces(data, named)
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = 0 if text.isascii() else sum(not ch.isascii() for ch in text) - wrong
    # A letter that is cut or damaged does not make a page another one.
    return text if wrong == 0 or right >= wrong else in_pieces(data, "cp1252")


def in_pieces(data: bytes, codec: str) -> str:
    """In pieces where a letter is a byte: wrong ones are slow there, and other threads wait."""
    if not _OF_ONE_BYTE.match(codec):
        return data.decode(codec, "replace")
    pieces = range(0, len(data), PIECE_BYTES)
    return "".join(data[at : at + PIECE_BYTES].decode(codec, "replace") for at in pieces)
