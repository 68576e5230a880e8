"""Owns taking turns back in SQL: undo and retry."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.brought import anew
from agent.errors import StaleTurn
from agent.lineages import Answering, Undone
from agent.messages import Row
from agent.sessions import Session, TurnOpening, TurnTicket
from storage import changes, inbox, rows, sessions, turns
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.turns import require_rest
from storage.undoing import has_summary, is_rest, said_by_person, turns_in, undo_start


def undo(
    tx: Transaction, conversation_id: str, turns: int = 1, *, answering: Answering | None = None
) -> Undone:
    tip = sessions.tip_of_conversation(tx, conversation_id)
    if answering is not None and inbox.all_answered(tx, (answering.inbox_id,)):
        raise StaleTurn("this command was answered before")
    require_rest(tx, conversation_id)
    active, steered = rows.active_rows(tx, tip.id), rows.steered(tx, tip.id)
    removed = _take_back(tx, tip, active, steered, turns) if tip.ended_at is None else ()
    left = active[: len(active) - len(removed)]
    undone = Undone(
        sessions.session(tx, tip.id),
        removed,
        has_summary(left),
        turns_in(removed, steered),
        is_rest(removed, steered),
    )
    if answering is None:
        return undone
    owed = inbox.answer_inbox(tx, (answering.inbox_id,), (answering.words(undone),))
    faultpoint("undo.answered")
    return replace(undone, owed=owed)


def _take_back(
    tx: Transaction, tip: Session, active: Sequence[Row], steered: set[int], count: int
) -> tuple[Row, ...]:
    start = undo_start(active, count, steered)
    if start is None:
        return ()
    removed = tuple(active[start:])
    rows.take_back(tx, tip.conversation_id, removed)
    faultpoint("undo.took_back")
    changes.new_revision(tx, tip.id, message_count=start, places=0)
    return removed


def retry(tx: Transaction, opening: TurnOpening) -> TurnTicket | None:
    opening = turns.opening_today(tx, opening)
    claimed = turns.claimed_turn(tx, opening.inbox_ids)
    if claimed is not None:
        return claimed
    conversation = sessions.conversation_for_key(tx, opening.session_key)
    if conversation is None:
        return None
    require_rest(tx, conversation.id)
    tip = turns.healed_tip(tx, conversation)
    if tip.ended_at is not None:
        return None
    active = rows.active_rows(tx, tip.id)
    removed = _take_back(tx, tip, active, rows.steered(tx, tip.id), 1)
    if not removed:
        return None
    faultpoint("retry.took_back")
    first, *further = said_by_person(removed)
    return turns.begin(tx, tip, opening, anew(first, opening.brought), further)
