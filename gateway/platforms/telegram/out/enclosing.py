"""Owns files on their way to Telegram: read when they are sent, few at once, in a form it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from agent.attachments import Attachments
from agent.errors import StoreUnavailable
from agent.media.kinds import picture_size
from agent.ports import Clock
from gateway import texts
from gateway.platforms.contract import UNREADABLE_TRIES, SendError, SendUnavailable
from gateway.platforms.file_names import safe_name
from gateway.platforms.telegram.failures import BadMarkup, ChatMoved, NoSuchMessage
from gateway.platforms.telegram.out.calls import MessageCalls, Upload
from gateway.tasks import spawn

log = logging.getLogger(__name__)

PHOTO_BYTES: Final = 10 * 1024 * 1024
FILE_BYTES: Final = 50 * 1024 * 1024
PHOTO_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
PHOTO_EDGES: Final = 10_000
"""Width and height together, in pixels."""
PHOTO_RATIO: Final = 20
AT_ONCE: Final = 2
"""So many files are held in memory."""
SHOW_AFTER_SECONDS: Final = 1.0
SHOW_EVERY_SECONDS: Final = 4.5


class Missing(Exception):
    """There is nothing to send; ``note`` says so to whoever waits for it."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


class Enclosing:
    """Turns payloads with a file into uploads."""

    def __init__(self, attachments: Attachments | None, clock: Clock) -> None:
        self._attachments = attachments
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def of(self, payload: Mapping[str, Any], attempts: int = 0) -> AsyncIterator[Upload]:
        """The payload's file, held for as long as the block runs. ``attempts``: at its part.

        Raises:
            Missing: it is gone, empty or too large.
            SendUnavailable: it can not be read now.
        """
        async with self._room:
            document = payload.get("document")
            if document is not None:
                name = safe_name(str(document["name"]), "")
                data = str(document["text"]).encode("utf-8", "replace")
                _check(name, len(data))
                yield Upload(name, data)
            else:
                yield await self._kept(str(payload["file"]), payload.get("owner"), attempts)

    async def _kept(self, name: str, owner: str | None, attempts: int) -> Upload:
        shown = ""
        try:
            known = None
            if self._attachments is not None:
                known = await self._attachments.find(name, owner=owner)
            if self._attachments is None or known is None:
                raise LookupError(name)
            shown = safe_name(known.file_name, name)
            _check(shown, known.size_bytes)
            data = await self._attachments.read(name)
        except LookupError:
            log.warning("a file to be sent is not there", extra={"file": name})
            raise Missing(texts.file_not_sent(shown, texts.FILE_NOT_KEPT)) from None
        except StoreUnavailable as exc:
            if attempts < UNREADABLE_TRIES:
                raise SendUnavailable("the file can not be read now") from exc
            log.exception("a file to be sent can not be read", extra={"file": name})
            raise Missing(texts.file_not_sent(shown, texts.FILE_UNREADABLE)) from exc
        _check(shown, len(data))
        return Upload(shown, data, as_photo=is_photo(data))

    @asynccontextmanager
    async def shown(
        self, calls: MessageCalls, chat_id: str, thread_id: str | None, upload: Upload
    ) -> AsyncIterator[None]:
        """Show that something is being uploaded, while the block runs."""
        task = spawn(self._show(calls, chat_id, thread_id, upload), name="upload shown")
        try:
            yield
        finally:
            task.cancel()

    async def _show(
        self, calls: MessageCalls, chat_id: str, thread_id: str | None, upload: Upload
    ) -> None:
        await self._clock.sleep(SHOW_AFTER_SECONDS)
        while True:
            try:
                await calls.action(
                    chat_id, thread_id, "upload_photo" if upload.as_photo else "upload_document"
                )
            except (SendError, ChatMoved, BadMarkup, NoSuchMessage):
                return  # an ornament
            await self._clock.sleep(SHOW_EVERY_SECONDS)


def _check(name: str, size_bytes: int) -> None:
    if size_bytes > FILE_BYTES:
        why = texts.file_too_large_to_send(size_bytes, FILE_BYTES)
        raise Missing(texts.file_not_sent(name, why))
    if size_bytes <= 0:  # Telegram takes no empty ones
        raise Missing(texts.file_not_sent(name, texts.FILE_EMPTY))


def is_photo(data: bytes) -> bool:
    """Does Telegram take this as a picture? Anything else is sent as it is (pure)."""
    size = picture_size(data)
    if size is None or size.media_type not in PHOTO_TYPES or len(data) > PHOTO_BYTES:
        return False
    short, long = sorted((size.width, size.height))
    return short > 0 and short + long <= PHOTO_EDGES and long <= PHOTO_RATIO * short
