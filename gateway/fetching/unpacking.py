"""Owns the unpacking of compressed bodies, never further than is wanted (pure)."""

from __future__ import annotations

import zlib

from agent.tools.web import WebRefusal


class Unpacker:
    """Takes pieces as they came, keeps what is in them, up to a number of bytes."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        """``encoding``: as the server says.

        Raises:
            WebRefusal: nobody asked for that one.
        """
        names = [name for part in encoding.split(",") if (name := part.strip().lower())]
        if len(names) > 1 or not set(names) <= {"identity", "gzip", "x-gzip", "deflate"}:
            raise WebRefusal("the page is packed in a way that was not asked for")
        self._packed = bool(names) and names != ["identity"]
        self._max_bytes = max_bytes
        self._unpacking: zlib._Decompress | None = None
        self._kept = bytearray()
        self.full = False
        """There was more than is wanted."""

    @property
    def over(self) -> bool:
        """Nothing that may still come is wanted: it is whole, or full."""
        return self.full or (self._unpacking is not None and self._unpacking.eof)

    @property
    def data(self) -> bytes:
        """What is there so far."""
        return bytes(self._kept)

    def take(self, piece: bytes) -> None:
        """The next piece.

        Raises:
            WebRefusal: it is damaged.
        """
        if self.over:  # the library would keep what follows behind the end
            return
        room = self._max_bytes - len(self._kept) + 1  # one more, to see that there is more
        self._kept += self._unpacked(piece, room) if self._packed else piece[:room]
        if len(self._kept) > self._max_bytes:
            del self._kept[self._max_bytes :]
            self.full = True

    def finish(self) -> None:
        """That was all.

        Raises:
            WebRefusal: something is missing at the end.
        """
        if self._unpacking is not None and not self._unpacking.eof and not self.full:
            raise WebRefusal("the page ended before its end; try again")

    def _unpacked(self, piece: bytes, room: int) -> bytes:
        if not piece:
            return b""
        if self._unpacking is None:
            # Some servers send "deflate" without the head that belongs to it.
            bare = piece[0] & 0x0F != 8 and piece[0] != 0x1F
            self._unpacking = zlib.decompressobj(-15 if bare else 47)
        try:
            return self._unpacking.decompress(piece, room)
        except zlib.error as exc:
            raise WebRefusal("the page came damaged; try again") from exc
