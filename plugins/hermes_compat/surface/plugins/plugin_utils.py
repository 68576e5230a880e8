"""Owns values that are made once for a process (`plugins.plugin_utils`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

__all__ = ["SingletonSlot", "lazy_singleton"]

T = TypeVar("T")


class SingletonSlot(Generic[T]):
    """A place for one value: whoever comes first makes it, everybody gets it."""

    __slots__ = ("_lock", "_made")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[T] | None = None

    def get(self, factory: Callable[[], T]) -> T:
        """The value; made by ``factory`` if there is none. If that raises, none is kept."""
        made = self._made
        if made is None:
            with self._lock:
                made = self._made
                if made is None:
                    made = self._made = (factory(),)
        return made[0]

    def peek(self) -> T | None:
        """The value, or None; makes nothing."""
        made = self._made
        return made[0] if made is not None else None

    def reset(self) -> None:
        """Forget it."""
        with self._lock:
            self._made = None


def lazy_singleton(factory: Callable[[], T]) -> Callable[[], T]:
    """A function that makes its value once; its ``reset()`` forgets it."""
    slot: SingletonSlot[T] = SingletonSlot()

    def get() -> T:
        return slot.get(factory)

    get.__doc__ = factory.__doc__
    cast(Any, get).reset = slot.reset
    return get
