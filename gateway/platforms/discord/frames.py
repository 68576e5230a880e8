"""Owns the frames of the gateway's socket: unpacked, read as JSON, or refused (pure)."""

from __future__ import annotations

import json
import zlib
from typing import Any

DISPATCH, HEARTBEAT, HELLO, HEARTBEAT_ACK = 0, 1, 10, 11
MAX_FRAME_BYTES = 64 << 20
_SYNC_FLUSH = b"\x00\x00\xff\xff"


class GarbageError(ValueError):
    """A frame that can not be understood: the stream behind it can not be trusted."""


class Inflater:
    """zlib-stream: one context for the connection, a sync flush behind each frame."""

    def __init__(self) -> None:
        self._context = zlib.decompressobj()
        self._waiting = bytearray()

    def feed(self, data: bytes) -> str | None:
        """The frame that is whole now; None: the rest of it is still to come.

        Raises:
            GarbageError: what came can not be unpacked, or is too large.
        """
        self._waiting += data
        if len(self._waiting) > MAX_FRAME_BYTES:
            raise GarbageError("the frame is too large")
        if not data.endswith(_SYNC_FLUSH):
            return None
        packed, self._waiting = bytes(self._waiting), bytearray()
        try:
            plain = self._context.decompress(packed, MAX_FRAME_BYTES)
            if self._context.unconsumed_tail:
                raise GarbageError("the frame is too large")
            return plain.decode()
        except (zlib.error, UnicodeDecodeError) as exc:
            raise GarbageError(str(exc)) from exc


def bounded(text: str) -> str:
    """A frame that came as text.

    Raises:
        GarbageError: it is too large.
    """
    if len(text) > MAX_FRAME_BYTES:
        raise GarbageError("the frame is too large")
    return text


def parsed(text: str) -> dict[str, Any]:
    """A frame of the gateway.

    Raises:
        GarbageError: it is none.
    """
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise GarbageError("it is no JSON") from exc
    if not isinstance(frame, dict):
        raise GarbageError("it is no object")
    return frame


def op_of(text: str) -> object:
    """What kind of frame it is; None: it is none."""
    try:
        frame = json.loads(text)
    except ValueError:
        return None
    return frame.get("op") if isinstance(frame, dict) else None
