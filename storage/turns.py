"""Owns turns in SQL: the two atomic steps, and the rows in between."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from agent.errors import SessionEnded, StaleTurn
from agent.mail import OutboxDraft, OutboxItem
from agent.messages import Draft, Row, tool_call_ids
from agent.ports import Usage
from agent.sessions import (
    Conversation,
    Session,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)
from agent.store_ports import Appended
from storage import changes, inbox, ledger, previews, rows, sessions
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.outbox import owe_all
from storage.places import key_of_today, today_in
from storage.repair import DELIBERATE_ENDS, plan_repair

_log = logging.getLogger(__name__)

# Two statements by ids are faster than one that looks all of it up and gives it back.
_WHERE_IT_ENDS = (
    "SELECT s.last_seq, s.serial, t.owner FROM turns t"
    " JOIN conversations c ON c.id = t.conversation_id JOIN sessions s ON s.id = c.tip_session_id"
    " WHERE t.id = ? AND t.state = 'running' AND s.id = ? AND s.ended_at IS NULL"
)
_TAKE_PLACES = (
    "UPDATE sessions SET message_count = message_count + ?1, last_seq = last_seq + ?1"
    " WHERE serial = ?2"
)
OPEN_STATES = "('running', 'interrupted', 'crashed')"


# --- first step ---------------------------------------------------------------------------------


def begin_turn(tx: Transaction, opening: TurnOpening) -> TurnTicket:
    opening = opening_today(tx, opening)
    claimed = claimed_turn(tx, opening.inbox_ids)
    if claimed is not None:
        return claimed
    tip = _live_tip(tx, opening)
    faultpoint("begin_turn.tip")
    return begin(tx, tip, opening, opening.message)


def opening_today(tx: Transaction, opening: TurnOpening) -> TurnOpening:
    """As it is meant, if its chat has moved meanwhile."""
    return replace(opening, session_key=key_of_today(opening.session_key, today_in(tx)))


def begin(
    tx: Transaction,
    tip: Session,
    opening: TurnOpening,
    message: Draft,
    steered: Sequence[Draft] = (),
) -> TurnTicket:
    """Begin a turn in this live tip with this message, and what had come into it once."""
    _answer_open_calls(tx, tip.id)
    faultpoint("begin_turn.stubs")
    row, *further = changes.append_rows(tx, tip.id, (message, *steered))
    faultpoint("begin_turn.message")
    mark_steered(tx, [each.id for each in further])
    faultpoint("begin_turn.steered")
    turn_id = opening.turn_id or tx.new_id("t")
    tx.execute(
        "INSERT INTO turns (id, conversation_id, session_id, session_key, owner, user_row_id,"
        " state, started_at) VALUES (?, ?, ?, ?, ?, ?, 'running', ?)",
        (
            turn_id, tip.conversation_id, tip.id, opening.session_key, opening.owner, row.id,
            tx.now,
        ),
    )  # fmt: skip
    faultpoint("begin_turn.turn")
    inbox.claim(tx, opening.inbox_ids, turn_id)
    faultpoint("begin_turn.claimed")
    return TurnTicket(turn_id, tip.conversation_id, tip.id, row.id)


def claimed_turn(tx: Transaction, inbox_ids: Sequence[int]) -> TurnTicket | None:
    """The turn that has claimed one of these rows and is not over, made the running one again.

    Raises:
        StaleTurn: every one of these inbox rows was answered before.
    """
    for inbox_id in inbox_ids:
        row = tx.execute(
            "SELECT t.id, t.conversation_id, t.session_id, t.user_row_id FROM inbox i"
            f" JOIN turns t ON t.id = i.turn_id WHERE i.id = ? AND t.state IN {OPEN_STATES}",
            (inbox_id,),
        ).fetchone()
        if row is not None:
            set_running(tx, row[0])
            return TurnTicket(*row)
    if inbox_ids and inbox.all_answered(tx, inbox_ids):
        raise StaleTurn("these messages were answered before")
    return None


def require_rest(tx: Transaction, conversation_id: str, *, but_of_key: str = "") -> None:
    """Refuse while a turn of the conversation is not over (``but_of_key``: other than this key's).

    Raises:
        StaleTurn: one is running, or waits to be resumed.
    """
    query = (
        "SELECT id FROM turns WHERE conversation_id = ? AND session_key <> ?"
        f" AND state IN {OPEN_STATES} LIMIT 1"
    )
    found = tx.execute(query, (conversation_id, but_of_key)).fetchone()
    if found is not None:
        raise StaleTurn(f"{found[0]} is not over")


def _live_tip(tx: Transaction, opening: TurnOpening) -> Session:
    """Where the key's conversation goes on; it is started, or its tip reopened, if need be."""
    conversation = sessions.conversation_for_key(tx, opening.session_key)
    if conversation is not None:
        tip = healed_tip(tx, conversation)
        if tip.ended_at is None:
            return tip
        _log.info("conversation had ended, starting another", extra={"session_id": tip.id})
    return sessions.new_conversation(tx, opening.session_key, opening.owner, opening.prefix)


def healed_tip(tx: Transaction, conversation: Conversation) -> Session:
    """Where a conversation goes on; live, unless somebody ended it on purpose."""
    tip = sessions.session(tx, conversation.tip_session_id)
    if tip.ended_at is None:
        return tip
    newest = sessions.tip(tx, tip.id)
    if newest.id != tip.id:
        _log.warning("tip moved on to its successor", extra={"session_id": newest.id})
        sessions.move_tip(tx, conversation.id, newest.id)
    if newest.ended_at is None or newest.end_reason in DELIBERATE_ENDS:
        return newest
    _log.warning("reopened a session without successor", extra={"session_id": newest.id})
    sessions.reopen(tx, newest.id)
    return sessions.session(tx, newest.id)


def _answer_open_calls(tx: Transaction, session_id: str) -> None:
    """A result that a crash swallowed would make every later request invalid."""
    end = rows.end_of_list(tx, session_id)
    if not end or not tool_call_ids(end[0].message):
        return
    repair = plan_repair(end)
    if repair is not None and repair.is_append:
        changes.append_rows(tx, session_id, repair.stubs)


# --- in between ---------------------------------------------------------------------------------


def append(
    tx: Transaction,
    ticket: TurnTicket,
    session_id: str,
    messages: Sequence[Draft],
    *,
    anchor_usage: Usage | None = None,
) -> Appended:
    return Appended(tuple(_store(tx, ticket, session_id, messages, anchor_usage)))


def _store(
    tx: Transaction,
    ticket: TurnTicket,
    session_id: str,
    messages: Sequence[Draft],
    usage: Usage | None,
) -> list[Row]:
    found = tx.execute(_WHERE_IT_ENDS, (ticket.turn_id, session_id)).fetchone()
    if found is None:
        _require_running(tx, ticket)
        raise SessionEnded(session_id)
    seq, serial, owner = found
    tx.execute(_TAKE_PLACES, (len(messages), serial))
    faultpoint("append.counted")
    stored = []
    for draft in messages:
        seq += 1
        stored.append(rows.insert(tx, session_id, seq, draft))
        faultpoint("append.message")
    # A usage of zero says nothing; the last real measurement is worth more.
    if stored and usage is not None and usage.prompt_tokens > 0:
        tx.execute(
            "UPDATE sessions SET anchor_prompt_tokens = ?, anchor_output_tokens = ?,"
            " anchor_row_id = ? WHERE id = ?",
            (usage.prompt_tokens, usage.output_tokens, stored[0].id, session_id),
        )
        faultpoint("append.anchored")
    if usage is not None and usage.prompt_tokens + usage.output_tokens > 0:
        ledger.enter_answer(tx, serial, owner, usage)
        faultpoint("append.entered")
    return stored


def _require_running(tx: Transaction, ticket: TurnTicket) -> None:
    query = "SELECT 1 FROM turns WHERE id = ? AND state = 'running'"
    if tx.execute(query, (ticket.turn_id,)).fetchone() is None:
        raise StaleTurn(ticket.turn_id)


def steer(
    tx: Transaction,
    ticket: TurnTicket,
    session_id: str,
    inbox_ids: Sequence[int],
    message: Draft,
) -> Appended | None:
    _require_running(tx, ticket)
    if not inbox.all_waiting(tx, inbox_ids) or _is_calling(tx, session_id):
        return None
    (row,) = _store(tx, ticket, session_id, (message,), None)
    faultpoint("steer.message")
    mark_steered(tx, (row.id,))
    faultpoint("steer.marked")
    inbox.claim(tx, inbox_ids, ticket.turn_id)
    faultpoint("steer.claimed")
    return Appended((row,))


def mark_steered(tx: Transaction, row_ids: Sequence[int]) -> None:
    """These words of a person begin no turn: they came into one."""
    tx.executemany("INSERT INTO steered (row_id) VALUES (?)", [(row_id,) for row_id in row_ids])


def _is_calling(tx: Transaction, session_id: str) -> bool:
    """Does the list end in calls that are not answered? Words between them would break it."""
    return plan_repair(rows.end_of_list(tx, session_id)) is not None


# --- second step --------------------------------------------------------------------------------


def finish_turn(
    tx: Transaction,
    ticket: TurnTicket,
    session_id: str,
    outcome: TurnOutcome,
    *,
    final: Draft | None = None,
    anchor_usage: Usage | None = None,
    outbox: Sequence[OutboxDraft] = (),
) -> tuple[OutboxItem, ...]:
    _require_running(tx, ticket)
    if final is not None:
        _store(tx, ticket, session_id, (final,), anchor_usage)
        faultpoint("finish_turn.final")
    outbox = previews.replaced(tx, ticket.turn_id, outbox)
    items = owe_all(tx, outbox, ticket.conversation_id, ticket.turn_id)
    faultpoint("finish_turn.owed")
    inbox.answer_turn(tx, ticket.turn_id)
    faultpoint("finish_turn.answered")
    end(tx, ticket.turn_id, outcome)
    faultpoint("finish_turn.over")
    return items


def interrupt_turn(tx: Transaction, ticket: TurnTicket) -> None:
    tx.execute(
        "UPDATE turns SET state = 'interrupted' WHERE id = ? AND state = 'running'",
        (ticket.turn_id,),
    )


def end(tx: Transaction, turn_id: str, outcome: TurnOutcome) -> None:
    """Let a turn be over."""
    tx.execute("UPDATE turns SET state = ?, ended_at = ? WHERE id = ?", (outcome, tx.now, turn_id))


def set_running(tx: Transaction, turn_id: str) -> bool:
    """Make a turn the running one again; False: it is over."""
    changed = tx.execute(
        f"UPDATE turns SET state = 'running' WHERE id = ? AND state IN {OPEN_STATES}", (turn_id,)
    )
    return changed.rowcount == 1
