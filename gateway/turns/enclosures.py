"""Owns the files on a turn's messages: fetched and kept within bounds of bytes and time.

Runs before the turn begins, so a crash on the way leaves the rows as they were; the same file
fetched again is kept once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.attachments import Attachments, StoredFile, picture_part
from agent.errors import StoreUnavailable
from agent.mail import InboxItem
from agent.media.kinds import CONVERTED_TYPES, SHOWN_TYPES, media_type_of
from agent.media.pictures import PictureMaker, PictureUnfit
from agent.media.transcription import Transcriber
from agent.messages import Part
from agent.ports import Clock
from gateway import texts
from gateway.intake.records import attachments_of
from gateway.platforms.contract import (
    VOICE,
    Attachment,
    FetchError,
    FetchRefused,
    FetchUnavailable,
    Platform,
)
from gateway.tasks import spawn, wait_all
from gateway.turns.enclosed import (
    NOTHING,
    Enclosed,
    line_of,
    plain,
    safe_file_name,
    text_part,
    what_it_is,
)
from gateway.turns.hearing import Hearing

log = logging.getLogger(__name__)

Got = TypeVar("Got")


@dataclass(frozen=True, slots=True)
class EnclosureLimits:
    """What one turn takes in."""

    file_bytes: int = 20_000_000
    turn_bytes: int = 60_000_000
    """Of all its files together, in the order of their messages."""
    files: int = 50
    seconds: float = 90.0
    """For all of them; what is not there by then is left out."""
    at_once: int = 3
    at_once_of_all: int = 6
    """Of all turns together: each may hold a whole file in memory."""
    pauses_seconds: tuple[float, ...] = (1.0, 4.0)
    """Before a file is tried again that can not be had just now."""


def has_enclosures(items: Sequence[InboxItem]) -> bool:
    """Is there anything to take at all?"""
    return any(item.record.payload.get("attachments") for item in items)


class Enclosures:
    """Takes in the files of messages; one for the daemon."""

    def __init__(
        self,
        platforms: Mapping[str, Platform],
        attachments: Attachments,
        clock: Clock,
        *,
        pictures: PictureMaker | None = None,
        transcriber: Transcriber | None = None,
        limits: EnclosureLimits | None = None,
    ) -> None:
        """``platforms``: by name; looked at when a file is fetched.

        ``transcriber``: hears voice messages; None: nobody does, and they are files.
        """
        self._platforms = platforms
        self._attachments = attachments
        self._clock = clock
        self._pictures = pictures or PictureMaker()
        self._hearing = Hearing(transcriber, clock)
        self._limits = limits or EnclosureLimits()
        self._slots = asyncio.Semaphore(self._limits.at_once_of_all)

    async def take(self, items: Sequence[InboxItem]) -> Enclosed:
        """Fetch and keep every file on these messages, and say what came of each.

        Never raises for a file: where one can not be had, a line says so. Cancelled, it ends at
        once; what was kept by then is found again the next time.
        """
        wanted = [
            (item, attachment) for item in items for attachment in attachments_of(item.record)
        ]
        if not wanted:
            return NOTHING
        budget = _Budget(self._limits.turn_bytes)
        own_slots = asyncio.Semaphore(self._limits.at_once)
        deadline = self._clock.monotonic() + self._limits.seconds
        tasks = [
            spawn(
                self._one(item, attachment, number, budget, own_slots, deadline),
                name=f"attachment {number} of inbox row {item.id}",
            )
            for number, (item, attachment) in enumerate(wanted)
        ]
        try:
            await wait_all(tasks, self._clock, self._limits.seconds)
        finally:
            for task in tasks:
                task.cancel()
        taken = [
            _outcome(task, attachment) for task, (_, attachment) in zip(tasks, wanted, strict=True)
        ]
        log.info(
            "files taken in",
            extra={
                "files": len(taken),
                "left_out": sum(bool(each.missing) for each in taken),
                "bytes": sum(each.size_bytes for each in taken),
            },
        )
        notices = [
            _notice(attachment, each)
            for (_, attachment), each in zip(wanted, taken, strict=True)
            if each.missing
        ]
        return Enclosed(
            tuple(part for each in taken for part in each.parts),
            (texts.files_left_out(notices),) if notices else (),
        )

    def left_out(self, items: Sequence[InboxItem]) -> Enclosed:
        """What there is to say of files that nobody waited for."""
        taken = [
            _left_out(attachment, texts.FILE_NOT_WAITED_FOR)
            for item in items
            for attachment in attachments_of(item.record)
        ]
        return Enclosed(tuple(part for each in taken for part in each.parts))

    async def _one(
        self,
        item: InboxItem,
        attachment: Attachment,
        number: int,
        budget: _Budget,
        own_slots: asyncio.Semaphore,
        deadline: float,
    ) -> _Taken:
        limit = self._limits.file_bytes
        if number >= self._limits.files:
            return _left_out(attachment, texts.FILES_TOO_MANY)
        if attachment.size_bytes is not None and attachment.size_bytes > limit:
            return _left_out(attachment, texts.file_too_large(limit))
        async with own_slots, self._slots:
            if not budget.has(attachment.size_bytes or 1):
                return _left_out(attachment, texts.FILES_TOO_LARGE)
            try:
                data = await self._fetched(item, attachment, limit, deadline)
            except FetchError as error:
                return _left_out(attachment, plain(str(error)))
            budget.left_bytes -= len(data)
            try:
                return await self._kept(item, attachment, data, deadline)
            except StoreUnavailable:
                log.warning("a file could not be kept", exc_info=True)
                return _left_out(attachment, texts.FILE_NOT_STORED)

    async def _fetched(
        self, item: InboxItem, attachment: Attachment, limit: int, deadline: float
    ) -> bytes:
        platform = self._platforms.get(item.record.address.platform)
        if platform is None:
            raise FetchUnavailable(texts.FILE_NOT_NOW)
        data = await self._patiently(
            lambda: platform.fetch(attachment, limit), FetchUnavailable, deadline
        )
        if len(data) > limit:
            raise FetchRefused(texts.file_too_large(limit))
        return data

    async def _kept(
        self, item: InboxItem, attachment: Attachment, data: bytes, deadline: float
    ) -> _Taken:
        media_type = media_type_of(data)
        original = await self._keep(data, item, attachment, media_type, deadline)
        if media_type not in SHOWN_TYPES + CONVERTED_TYPES:
            return await self._told(attachment, original, data, deadline)
        try:
            shown = await self._pictures.fit(data)
        except PictureUnfit as error:
            line = line_of(attachment, original, f"can not be shown: {error}")
            return _Taken((text_part(line),), len(data))
        copy = original
        if shown.data is not data:
            copy = await self._keep(shown.data, item, attachment, shown.media_type, deadline)
        line = line_of(attachment, original, f"{shown.original_width} x {shown.original_height}")
        return _Taken((text_part(line), picture_part(copy.name, copy.size_bytes)), len(data))

    async def _told(
        self, attachment: Attachment, original: StoredFile, data: bytes, deadline: float
    ) -> _Taken:
        """What is no picture: a line, and below that of a voice message its words."""
        if original.media_type.startswith("audio/") and attachment.label == VOICE:
            heard = await self._hearing.heard(data, original.media_type, deadline)
            text = "\n".join(
                filter(None, (line_of(attachment, original, heard.remark), heard.line))
            )
        else:
            is_picture = original.media_type.startswith("image/")
            text = line_of(attachment, original, "can not be shown" if is_picture else "")
        return _Taken((text_part(text),), len(data))

    async def _keep(
        self,
        data: bytes,
        item: InboxItem,
        attachment: Attachment,
        media_type: str,
        deadline: float,
    ) -> StoredFile:
        name = safe_file_name(attachment.file_name)
        return await self._patiently(
            lambda: self._attachments.keep(
                data, owner=item.record.owner, file_name=name, media_type=media_type
            ),
            StoreUnavailable,
            deadline,
        )

    async def _patiently(
        self, attempt: Callable[[], Awaitable[Got]], passing: type[Exception], deadline: float
    ) -> Got:
        """Try again, after a pause, what failed by a trouble that may pass before the deadline."""
        for pause_seconds in self._limits.pauses_seconds:
            try:
                return await attempt()
            except passing:
                if self._clock.monotonic() + pause_seconds >= deadline:
                    raise
                await self._clock.sleep(pause_seconds)
        return await attempt()


@dataclass(slots=True)
class _Budget:
    """What a turn may still take in."""

    left_bytes: int

    def has(self, wanted_bytes: int) -> bool:
        """Of those under way nobody knows the size: together they may go beyond it once."""
        return wanted_bytes <= self.left_bytes


@dataclass(frozen=True, slots=True)
class _Taken:
    """What became of one file."""

    parts: tuple[Part, ...]
    size_bytes: int = 0
    missing: str = ""
    """Why it was left out, for the person; "": it was not."""


def _outcome(task: asyncio.Task[_Taken], attachment: Attachment) -> _Taken:
    if not task.done() or task.cancelled():
        return _left_out(attachment, texts.FILE_TOO_SLOW)
    if task.exception() is not None:  # logged by its owner
        return _left_out(attachment, texts.FILE_NOT_NOW)
    return task.result()


def _left_out(attachment: Attachment, why: str) -> _Taken:
    return _Taken((text_part(line_of(attachment, None, f"left out: {why}")),), missing=why)


def _notice(attachment: Attachment, taken: _Taken) -> str:
    name = safe_file_name(attachment.file_name)
    return texts.file_left_out(name or what_it_is(attachment), taken.missing)
