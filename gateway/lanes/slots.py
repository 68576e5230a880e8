"""Owns how much is at work at once, over all conversations: first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

AT_ONCE = 500
"""Jobs of all lanes together. Each holds a conversation's list in memory and, mostly, a request to
the provider; a lane has one at a time, so whoever waits is never behind all that another chat has
in its queue."""


class Slots:
    """So many places; whoever finds none is woken when one has become theirs."""

    def __init__(self, count: int = AT_ONCE) -> None:
        self._free = count
        self._holders: set[int] = set()
        self._queue: OrderedDict[int, Callable[[], None]] = OrderedDict()

    def take(self, who: int, wake: Callable[[], None]) -> bool:
        """Is there a place for it now? If not, it is in the queue, and is woken to ask again."""
        if who in self._holders:
            return True
        if self._free > 0:  # then nobody is in the queue
            self._free -= 1
            self._holders.add(who)
            return True
        self._queue[who] = wake
        return False

    def give_back(self, who: int) -> None:
        """Let go of the place, or leave the queue."""
        self._queue.pop(who, None)
        if who not in self._holders:
            return
        self._holders.discard(who)
        if not self._queue:
            self._free += 1
            return
        following, wake = self._queue.popitem(last=False)
        self._holders.add(following)
        wake()
