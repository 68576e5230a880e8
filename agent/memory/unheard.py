"""Owns the changes of notes that a provider could not be told of yet, because it was not awake."""

from __future__ import annotations

from collections import OrderedDict

from agent.memory.desk import Action
from agent.memory.notes import Note

MOST_CONVERSATIONS, MOST_CHANGES = 128, 50

Change = tuple[Action, Note]


class Unheard:
    """By conversation, in their order; bounded, and what is let go is counted."""

    def __init__(self) -> None:
        self._changes: OrderedDict[str, list[Change]] = OrderedDict()
        self.lost = 0

    def __len__(self) -> int:
        return sum(map(len, self._changes.values()))

    def keep(self, conversation_id: str, change: Change) -> None:
        """Until its provider wakes; one that belongs to no conversation is never heard of."""
        changes = self._changes.setdefault(conversation_id, []) if conversation_id else []
        if not conversation_id or len(changes) >= MOST_CHANGES:
            self.lost += 1
            return
        changes.append(change)
        while len(self._changes) > MOST_CONVERSATIONS:
            self.lost += len(self._changes.popitem(last=False)[1])

    def moved(self, old_id: str, new_id: str) -> None:
        """The conversation goes on under another id."""
        for change in self.take(old_id) if old_id != new_id else ():
            self.keep(new_id, change)

    def take(self, conversation_id: str) -> list[Change]:
        """They are told now."""
        return self._changes.pop(conversation_id, [])
