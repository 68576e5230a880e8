"""Owns the bytes of kept pictures in a request: loaded before the mapping, the same every time."""

from __future__ import annotations

import base64
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import cast

from agent.attachments import Attachments, picture_name
from agent.errors import StoreUnavailable
from agent.llm.images import MAX_ALL_IMAGES_CHARS, TOO_MUCH, base64_chars, note
from agent.messages import Message, Part

MAX_CACHED_CHARS = 48 * 1024 * 1024
"""Of base64: the pictures of two full requests."""
NOT_NOW = "the file can not be read now"

log = logging.getLogger(__name__)


class PictureLoader:
    """Puts the bytes of kept pictures where a message only names them; remembers the newest."""

    def __init__(self, attachments: Attachments, max_cached_chars: int = MAX_CACHED_CHARS) -> None:
        self._attachments = attachments
        self._max_cached_chars = max_cached_chars
        self._cached: OrderedDict[str, str] = OrderedDict()
        self._cached_chars = 0

    @property
    def cached_chars(self) -> int:
        return self._cached_chars

    def forget(self, names: Iterable[str]) -> None:
        """These files are erased."""
        for name in names:
            self._cached_chars -= len(self._cached.pop(name, ""))

    async def loaded(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with their pictures; the same object where none shows a kept one.

        What is gone stays as it is, and is told as gone by the mapping. What can not be read now,
        and what no request could carry, becomes a note: one picture never stops a conversation.
        """
        shown = [
            i
            for i, message in enumerate(messages)
            if isinstance(message["content"], list) and _shows_kept(message["content"])
        ]
        if not shown:
            return messages
        room = MAX_ALL_IMAGES_CHARS
        whole = list(messages)
        for i in reversed(shown):  # the newest first: they are what a request is to carry
            parts: list[Part] = []
            for part in reversed(cast("list[Part]", messages[i]["content"])):
                if part.get("type") == "image_url":
                    # What would be left out in the end is not loaded in the first place.
                    part = await self._with_bytes(part) if room > 0 else note(TOO_MUCH)
                    room -= base64_chars(part)
                parts.append(part)
            whole[i] = cast(Message, {**messages[i], "content": parts[::-1]})
        return whole

    async def _with_bytes(self, part: Part) -> Part:
        name = picture_name(part)
        if name is None:
            return part
        try:
            return {"type": "image_url", "image_url": {"url": await self._url(name)}}
        except LookupError:
            log.warning("A picture is gone", extra={"attachment": name})
            return part
        except StoreUnavailable:
            log.warning("A picture can not be read", extra={"attachment": name}, exc_info=True)
            return note(NOT_NOW)

    async def _url(self, name: str) -> str:
        url = self._cached.get(name)
        if url is not None:
            self._cached.move_to_end(name)
            return url
        try:
            data = await self._attachments.read(name)
        except StoreUnavailable:  # once more: another beginning of the request costs its cache
            data = await self._attachments.read(name)
        url = f"data:;base64,{base64.b64encode(data).decode('ascii')}"
        if name not in self._cached:  # somebody else may have been first, meanwhile
            self._cached[name] = url
            self._cached_chars += len(url)
            while self._cached_chars > self._max_cached_chars:
                _, old = self._cached.popitem(last=False)
                self._cached_chars -= len(old)
        return url


def _shows_kept(parts: Sequence[Part]) -> bool:
    return any(part.get("type") == "image_url" and picture_name(part) is not None for part in parts)
