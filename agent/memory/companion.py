"""Owns how notes ride along: once in a session, and again when they have changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from agent.brought import fenced, named, split
from agent.memory.notes import NAME, NO_NOTES, NoteStore, for_the_model
from agent.messages import Row
from agent.turn_companions import Boundary, History, TurnFacts

MANY = 1_000
"""Conversations of which it is known what they show."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a list shows; it holds within this revision, in which the list only grows."""

    session_id: str
    revision: int
    fence: str


class NotesCompanion:
    """`agent.turn_companions.TurnCompanion` for the notes of a place.

    What a conversation shows stands in its list, and nowhere else: so a compression that takes it
    out, an undo and a restart need no care. It is looked for once in a list.
    """

    name = NAME
    needs_session = False

    def __init__(self, store: NoteStore) -> None:
        self._store = store
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    async def before(self, facts: TurnFacts, history: History) -> str:
        """All notes, if the list does not show them as they are now."""
        if not facts.place:
            return ""
        text = for_the_model(await self._store.notes(facts.place), facts.place)
        shown = await self._shown(facts, history)
        text = text or (NO_NOTES if shown else "")
        if not text or shown == fenced(NAME, text):
            return ""
        self._seen.pop(facts.conversation_id, None)  # the list will show something else
        return text

    async def _shown(self, facts: TurnFacts, history: History) -> str:
        if facts.is_first_turn:
            return ""
        known = self._seen.pop(facts.conversation_id, None)
        if facts.is_retry:
            return newest_in(await history())
        at = (facts.session_id, facts.revision)
        if known is None or (known.session_id, known.revision) != at:
            known = _Seen(*at, newest_in(await history()))
        self._seen[facts.conversation_id] = known
        while len(self._seen) > MANY:
            self._seen.popitem(last=False)
        return known.fence

    async def after(
        self,
        facts: TurnFacts,
        answer: str,
        history: History,
        *,
        completed: bool,
        interrupted: bool,
    ) -> None:
        """Nothing: notes are written by tools and commands."""

    async def crossed(self, boundary: Boundary, history: History) -> None:
        """Nothing: another list shows what it shows."""


def newest_in(rows: Sequence[Row]) -> str:
    """The newest list of notes that these rows show; "": none."""
    for row in reversed(rows):
        if row.message["role"] == "user" and row.wire_content is not None:
            fence = named(split(row.wire_content)[0], NAME)
            if fence:
                return fence
    return ""
