"""Owns what is remembered of texts that were read before: a bounded memo of a pure function."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

LIMIT_BYTES = 16 * 1024 * 1024
LARGEST_SHARE = 8
"""A text that would take more than this part of the room is not remembered."""

Value = TypeVar("Value", bound=str | tuple[str, ...])


class Remembered(Generic[Value]):
    """A function of a text alone, whose newest results stay in memory; for any thread.

    What was not used for longest goes first. Nothing of it is ever written anywhere: a text that is
    erased from the store leaves here with the process, or earlier.
    """

    def __init__(self, function: Callable[[str], Value], *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Remember results of a pure function.

        Args:
            function: Called without a lock, so for one text perhaps twice at the same time.
            limit_bytes: Of texts and results together.
        """
        self._function = function
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Value] = OrderedDict()
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
        with self._lock:
            known = self._known.get(text)
            if known is not None:
                self._known.move_to_end(text)
                return known
        value = self._function(text)
        size = _size_bytes(text, value)
        if size * LARGEST_SHARE <= self._limit_bytes:
            with self._lock:
                self._keep(text, value, size)
        return value

    def _keep(self, text: str, value: Value, size: int) -> None:
        if text in self._known:  # another thread was first
            return
        self._known[text] = value
        self._size_bytes += size
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= _size_bytes(*self._known.popitem(last=False))


_ENTRY_BYTES = 200
"""What the memo itself takes for one text."""


def _size_bytes(text: str, value: str | tuple[str, ...]) -> int:
    size = _ENTRY_BYTES + sys.getsizeof(text)
    if isinstance(value, str):
        return size if value is text else size + sys.getsizeof(value)
    return size + sys.getsizeof(value) + sum(map(sys.getsizeof, value))
