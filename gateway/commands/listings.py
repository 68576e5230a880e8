"""Owns which list of conversations each place was shown last: what a number means there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Listings:
    """Place → the ids that its list showed, in order; for as long as the process runs.

    Without it, a message that comes between a list and the choice would move every number by one.
    """

    def __init__(self, *, max_places: int = 1000) -> None:
        self._by_key: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._max = max_places

    def remember(self, session_key: str, conversation_ids: Sequence[str]) -> None:
        """This was shown there."""
        self._by_key[session_key] = tuple(conversation_ids)
        self._by_key.move_to_end(session_key)
        while len(self._by_key) > self._max:
            self._by_key.popitem(last=False)

    def of(self, session_key: str) -> tuple[str, ...]:
        """What was shown last; empty: nothing was."""
        return self._by_key.get(session_key, ())
