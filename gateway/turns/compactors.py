"""Owns the compactors of the conversations that were busy lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agent.ports import Compactor

MAX_COMPACTORS = 128


class CompactorCache:
    """One compactor per conversation; the longest unused goes when there are too many.

    What a compactor has to remember is stored with its session, so a new one goes on where the old
    one was.
    """

    def __init__(
        self, factory: Callable[[str], Compactor], *, max_compactors: int = MAX_COMPACTORS
    ) -> None:
        self._factory = factory
        self._max = max_compactors
        self._by_conversation: OrderedDict[str, Compactor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_conversation)

    def get(self, conversation_id: str) -> Compactor:
        """The conversation's compactor, made if it is missing."""
        compactor = self._by_conversation.get(conversation_id)
        if compactor is None:
            compactor = self._by_conversation[conversation_id] = self._factory(conversation_id)
        self._by_conversation.move_to_end(conversation_id)
        while len(self._by_conversation) > self._max:
            self._by_conversation.popitem(last=False)
        return compactor

    def clear(self) -> None:
        """Make every compactor anew at its next use: the window has changed."""
        self._by_conversation.clear()

    def forget(self, conversation_id: str) -> None:
        """The conversation is over."""
        self._by_conversation.pop(conversation_id, None)
