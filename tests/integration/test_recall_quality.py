"""How often a typed question finds its message: floors with a margin, on conversations of our own.

`python -m tests.bench recall` measures the same at full length and prints the shares.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.messages import Draft
from agent.sessions import SearchScope, SessionPrefix, TurnOpening, session_key
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.question_words import LANGUAGES
from tests.fakes.questions import Kind, conversation, shares

FLOORS: dict[Kind, tuple[float, float, float]] = {
    "own": (0.60, 0.80, 0.94),
    "endings": (0.60, 0.85, 0.92),
    "short": (0.90, 0.95, 1.00),
    "next": (0.25, 0.50, 0.60),
    "changed": (0.75, 0.85, 0.92),
    "reworded": (0.30, 0.55, 0.80),
    "result": (0.35, 0.55, 0.75),
}
"""Right message first, among the first three, among the first ten."""


@pytest.mark.parametrize("language", sorted(LANGUAGES))
async def test_typed_questions_find_their_message(
    language: str, tmp_path: Path, clock: FakeClock
) -> None:
    asked = conversation(language, messages=1500, facts=112, seed=3)
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    try:
        opening = TurnOpening(
            session_key("t", "1", "1", None, "1"),
            "t:1",
            (),
            Draft({"role": "user", "content": "hello"}),
            SessionPrefix("t", "m", "s"),
        )
        ticket = await store.begin_turn(opening)
        drafts = [Draft(m) for m in asked.messages]
        stored = (await store.append(ticket, ticket.session_id, drafts)).rows
        scope = SearchScope(conversation_id=ticket.conversation_id)
        ranks: dict[Kind, list[int | None]] = {}
        for question in asked.questions:
            hits = [h.message_id for h in await store.search(question.text, scope, limit=10)]
            right = stored[question.right].id
            ranks.setdefault(question.kind, []).append(hits.index(right) if right in hits else None)
    finally:
        await store.close()
    below = {
        kind: reached
        for kind, floors in FLOORS.items()
        if kind in ranks
        for reached in [shares(ranks[kind])]
        if any(share < floor for share, floor in zip(reached, floors, strict=True))
    }
    assert below == {}
    first, three, ten = shares([rank for of_kind in ranks.values() for rank in of_kind])
    assert (first >= 0.55, three >= 0.72, ten >= 0.85) == (True, True, True), (first, three, ten)
