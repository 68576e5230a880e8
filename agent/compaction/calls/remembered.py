"""Owns what is remembered of texts that were read before: a bounded memo of a pure function.

Not the texts themselves: a daemon that lives for months would hold them all. A text is known by its
length and its hash (64 bits, keyed anew in each process: nobody outside can make two that fall
together, and by chance it is one pair in 10^19).
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

LIMIT_BYTES = 6 * 1024 * 1024
LARGEST_SHARE = 8
"""A result that would take more than this part of the room is not remembered."""

Value = TypeVar("Value", bound=str | tuple[str, ...])
_HASH_BITS = 64


class Remembered(Generic[Value]):
    """A function of a text alone, whose newest results stay in memory; for any thread.

    What was not used for longest goes first. Nothing of it is ever written anywhere: what was made
    of a text that is erased from the store leaves here with `clear`.
    """

    def __init__(self, function: Callable[[str], Value], *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Remember results of a pure function.

        Args:
            function: Called without a lock, so for one text perhaps twice at the same time.
            limit_bytes: Of all results together. One that is the text itself takes next to nothing.
        """
        self._function = function
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Value | None] = OrderedDict()
        """None: the result is the text itself."""
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What is taken at the moment."""
        return self._size_bytes

    def clear(self) -> None:
        """Remember nothing any more: something was erased that may be among it."""
        with self._lock:
            self._known.clear()
            self._size_bytes = 0

    def __call__(self, text: str) -> Value:
        # One number for both: a pair of them would take twice the room.
        key = len(text) << _HASH_BITS | hash(text) & ((1 << _HASH_BITS) - 1)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                known = self._known[key]
                return text if known is None else known  # type: ignore[return-value]
        value = self._function(text)
        kept = None if value is text or value == text else value
        size = _size_bytes(kept)
        if size * LARGEST_SHARE <= self._limit_bytes:
            with self._lock:
                self._keep(key, kept, size)
        return value

    def _keep(self, key: int, value: Value | None, size: int) -> None:
        if key in self._known:  # another thread was first
            return
        self._known[key] = value
        self._size_bytes += size
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= _size_bytes(self._known.popitem(last=False)[1])


_ENTRY_BYTES = 120
"""What the memo itself takes for one text."""


def _size_bytes(value: str | tuple[str, ...] | None) -> int:
    if not value:
        return _ENTRY_BYTES
    if isinstance(value, str):
        return _ENTRY_BYTES + sys.getsizeof(value)
    return _ENTRY_BYTES + sys.getsizeof(value) + sum(map(sys.getsizeof, value))
