"""Owns what one message carries: a planned part's payload with its files → what Discord is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.attachments import Attachments
from agent.errors import StoreUnavailable
from agent.messages import clean_text
from gateway import texts
from gateway.platforms.contract import SendUnavailable

MAX_FILES = 5
"""In one message; Discord takes twice as many, all of which are in memory at once."""
MAX_ROWS, ROW_BUTTONS = 5, 5
LABEL_CHARS, CUSTOM_ID_CHARS = 80, 100
FILE_NAME_CHARS = 100
CONTENT_CHARS = 2_000
SUPPRESS_EMBEDS, EPHEMERAL = 1 << 2, 1 << 6
_GREEN, _RED, _GREY = 3, 4, 2
_STYLES = {"/approve": _GREEN, "/deny": _RED}
_ODD_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


@dataclass(frozen=True, slots=True)
class Enclosed:
    """One file of a message."""

    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message as it goes out."""

    content: str
    rows: tuple[dict[str, Any], ...] = ()
    files: tuple[Enclosed, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """Of its files in bytes, by which they are recognised: Discord gives them other names."""
        return sorted(len(file.data) for file in self.files)

    def body(self, *, quiet: bool = False) -> dict[str, Any]:
        """The JSON of a message, new or changed. Nobody is ever pinged by it.

        Links are not unfolded: Discord would load each address that a model writes, and what
        stands in it, without anybody having pressed it.
        """
        body: dict[str, Any] = {
            "content": self.content,
            "components": list(self.rows),
            "allowed_mentions": {"parse": []},
            "flags": SUPPRESS_EMBEDS | (EPHEMERAL if quiet else 0),
        }
        if self.files:
            body["attachments"] = [
                {"id": n, "filename": file.name} for n, file in enumerate(self.files)
            ]
        return body

    def form(self, body: Mapping[str, Any], opened: Sequence[Any]) -> list[dict[str, Any]]:
        """The fields of a form that carries this body and the files (`aiohttp.FormData`).

        ``opened``: the files' contents, to be read from.
        """
        fields: list[dict[str, Any]] = [
            {
                "name": "payload_json",
                "value": json.dumps(body),
                "content_type": "application/json",
            }
        ]
        fields += [
            {
                "name": f"files[{n}]",
                "value": content,
                "filename": file.name,
                "content_type": file.media_type,
            }
            for n, (file, content) in enumerate(zip(self.files, opened, strict=True))
        ]
        return fields


class Packing:
    """Puts parcels together."""

    def __init__(self, attachments: Attachments | None, *, limit_bytes: int) -> None:
        """``attachments``: where kept files lie; ``limit_bytes``: of one file."""
        self._attachments = attachments
        self._limit_bytes = limit_bytes

    async def pack(self, payload: Mapping[str, Any]) -> Parcel:
        """What a planned part (`render`) says. What can not go out with it is said in words.

        Raises:
            SendUnavailable: the files can not be read now.
        """
        files: list[Enclosed] = []
        missing: list[str] = []
        for name in payload.get("files") or ():
            found = await self._kept(str(name))
            if isinstance(found, Enclosed):
                files.append(found)
            else:
                missing.append(found)
        document = payload.get("document")
        if document is not None:
            data = clean_text(str(document["text"])).encode()
            found = Enclosed(shown_name(str(document["name"])), data, "text/plain; charset=utf-8")
            files.append(found)
        content = str(payload.get("content") or "")
        if missing:
            content = "\n".join([content, *missing]).strip()[:CONTENT_CHARS]
        return Parcel(content, tuple(rows_of(payload.get("buttons") or ())), tuple(files))

    def without_files(self, parcel: Parcel) -> Parcel:
        """The same in words, where Discord does not take the files after all."""
        lines = [texts.file_not_sent(file.name, texts.FILE_NOT_TAKEN) for file in parcel.files]
        content = "\n".join([parcel.content, *lines]).strip()[:CONTENT_CHARS]
        return Parcel(content, parcel.rows)

    async def _kept(self, name: str) -> Enclosed | str:
        """A kept file, or in words why it does not go out."""
        if self._attachments is None:
            return texts.file_not_sent(name, texts.FILE_NOT_KEPT)
        try:
            known = await self._attachments.find(name)
            if known is None:
                return texts.file_not_sent(name, texts.FILE_NOT_KEPT)
            shown = shown_name(known.file_name or name)
            if known.size_bytes > self._limit_bytes:
                return texts.file_not_sent(
                    shown, texts.file_too_large_to_send(known.size_bytes, self._limit_bytes)
                )
            return Enclosed(shown, await self._attachments.read(name), known.media_type)
        except LookupError:
            return texts.file_not_sent(name, texts.FILE_NOT_KEPT)
        except StoreUnavailable as exc:
            raise SendUnavailable("a file can not be read now") from exc


def shown_name(name: str) -> str:
    """A file's name as Discord may show it: one line, no path, not too long, its ending kept."""
    plain = _ODD_IN_NAMES.sub("_", clean_text(name)).strip(". ") or "file"
    if len(plain) <= FILE_NAME_CHARS:
        return plain
    stem, dot, ending = plain.rpartition(".")
    if not dot or len(ending) > 10:
        return plain[:FILE_NAME_CHARS]
    return f"{stem[: FILE_NAME_CHARS - len(ending) - 1]}.{ending}"


def rows_of(buttons: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Buttons (label, command) as Discord's rows; pressing one says its command."""
    labels = {str(command): str(label) for label, command in buttons}
    made = [
        {
            "type": 2,
            "style": _STYLES.get(command.split(" ")[0], _GREY),
            "label": (clean_text(label).strip() or command)[:LABEL_CHARS],
            "custom_id": command,
        }
        for command, label in labels.items()
        if 0 < len(command) <= CUSTOM_ID_CHARS
    ][: MAX_ROWS * ROW_BUTTONS]
    return [
        {"type": 1, "components": made[start : start + ROW_BUTTONS]}
        for start in range(0, len(made), ROW_BUTTONS)
    ]
