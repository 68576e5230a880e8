"""Owns names and paths inside a workspace: what they may be, and what is said of them (pure)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import Literal

from agent.errors import ToolError

MAX_DEPTH = 32
MAX_NAME_BYTES = 255
_PERSON = re.compile(r"([a-z]{1,16}):([0-9a-z_]{1,64})")
UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.part")

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What stood at a path, so that a change since can be told."""

    kind: Kind
    size_bytes: int
    identity: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder."""

    name: str
    kind: Kind
    size_bytes: int


def folder_name(place: str) -> str:
    """What the workspace of a person or a group is called: no two share one."""
    person = _PERSON.fullmatch(place)
    if person is not None:
        return f"{person[1]}-{person[2]}"
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()
    return f"group.{digest[:32]}"


def parts_of(path: str) -> tuple[str, ...]:
    """The names along a path inside a workspace; none: the workspace itself.

    Raises:
        ToolError: it can not be one; the text says why.
    """
    if path.startswith("/"):
        raise ToolError("give a path inside the workspace, without a / in front")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    for part in parts:
        if part == "..":
            raise ToolError("a path can not hold ..; it starts in the workspace")
        if any(ch < " " or ch == "\x7f" for ch in part):
            raise ToolError("a name can not hold line breaks or other control characters")
        try:
            size = len(part.encode("utf-8"))
        except UnicodeEncodeError:
            raise ToolError("a name has to be valid text") from None
        if size > MAX_NAME_BYTES:
            raise ToolError(f"a name can have {MAX_NAME_BYTES} bytes, and one of these has {size}")
        if UNFINISHED.fullmatch(part):
            raise ToolError("such names are my own, for files that are not finished")
    if len(parts) > MAX_DEPTH:
        raise ToolError(f"folders can be {MAX_DEPTH} deep")
    return parts


def named(path: str) -> tuple[str, ...]:
    """The names along a path that leads to something in a workspace.

    Raises:
        ToolError: it can not be one, or it is the workspace itself.
    """
    parts = parts_of(path)
    if not parts:
        raise ToolError("give the path of something in the workspace")
    return parts


def shown_name(name: str) -> str:
    """A name as it stands in a folder, on one line, also if no path can hold it."""
    plain = name.isprintable() and '"' not in name and name == name.strip()
    return name if plain else json.dumps(name)


_WORDS = {
    errno.ENOENT: "there is nothing at that path; list the folder",
    errno.ENOTDIR: "a part of that path is no folder (links are not followed)",
    errno.ELOOP: "that is a link, and links are not followed",
    errno.ENXIO: "that is no ordinary file",
    errno.EEXIST: "there is something of that name already",
    errno.ENOTEMPTY: "the folder is not empty; delete what is in it first",
    errno.ENAMETOOLONG: "that name is too long",
    errno.ENOSPC: "the disk is full",
    errno.EACCES: "that may not be opened",
    errno.EPERM: "that may not be opened",
    errno.EINVAL: "that can not be done with this path",
}


def in_words(exc: OSError) -> str:
    """What went wrong; without a path of this machine in it."""
    return _WORDS.get(exc.errno or 0, f"that did not work ({os.strerror(exc.errno or 0)})")
