"""Owns which files a conversation names, and a file as an object of an export. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from agent.attachments import NAME, picture_name
from agent.exchange.records import Portable, PortableFile
from agent.messages import Content

HASH_CHARS = 32
_NAMED = re.compile(rf"^\[attached [^\n]*: attachment ({NAME.pattern})\]$", re.MULTILINE)
"""In the lines that are said of files (`gateway.turns.enclosed`)."""


def names_in(content: Content) -> Iterator[str]:
    """The files that a message's content names, pictures and others."""
    if isinstance(content, str):
        yield from (found[1] for found in _NAMED.finditer(content))
        return
    for part in content or ():
        if part.get("type") == "image_url":
            name = picture_name(part)
            if name is not None:
                yield name
        elif part.get("type") == "text":
            yield from names_in(str(part.get("text", "")))


def files_of(portable: Portable) -> list[str]:
    """The names of all files of a conversation, each once, in the order in which they came."""
    return list(
        dict.fromkeys(
            name
            for session in portable.sessions
            for message in session.messages
            for content in (message.content, message.wire_content)
            for name in names_in(content)
        )
    )


def file_object(file: PortableFile) -> dict[str, Any]:
    """As it is written."""
    data = None if file.data is None else base64.b64encode(file.data).decode("ascii")
    return {
        "type": "file",
        "name": file.name,
        "file_name": file.file_name,
        "media_type": file.media_type,
        "data": data,
    }


def read_file_object(value: dict[str, Any]) -> PortableFile:
    """The opposite.

    Raises:
        ValueError: it is none; the text goes on after "line 3 ".
    """
    name, data = value.get("name"), value.get("data")
    file_name, media_type = value.get("file_name"), value.get("media_type")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ValueError("is a file whose name is none of ours")
    if not isinstance(file_name, str) or not isinstance(media_type, str):
        raise ValueError("is a file without file_name or media_type")
    if data is None:
        return PortableFile(name, file_name, media_type, None)
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError) as exc:
        raise ValueError("is a file whose data is no base64") from exc
    if hashlib.sha256(content).hexdigest()[:HASH_CHARS] != name[:HASH_CHARS]:
        raise ValueError("is a file whose data does not fit its name")
    return PortableFile(name, file_name, media_type, content)
