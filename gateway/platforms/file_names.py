"""Owns how a file that goes out is called on the devices that it reaches (pure)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NAME_CHARS: Final = 100
_MAX_ENDING_CHARS: Final = 16
_UNSAFE: Final = re.compile(r'[\\/:*?"<>|]+')
_JOINER: Final = "\u200d"  # holds the parts of an emoji together


def safe_name(file_name: str, fallback: str) -> str:
    """A name that every device takes, with its ending whole.

    No direction marks and the like: they make ``exe.gpj`` look like a picture.
    """
    kept = "".join(c for c in file_name if unicodedata.category(c)[0] != "C" or c == _JOINER)
    name = _UNSAFE.sub("_", kept).strip(" .")
    stem, dot, ending = name.rpartition(".")
    if dot and len(ending) <= _MAX_ENDING_CHARS:
        name = f"{stem[: NAME_CHARS - len(ending) - 1]}.{ending}"
    return name[:NAME_CHARS] or fallback or "file"
