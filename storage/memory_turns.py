"""Owns turns in the in-memory store: begun, steered, finished, cut off, resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.brought import anew
from agent.errors import SessionEnded, StaleTurn
from agent.mail import Address, OutboxDraft, OutboxItem
from agent.messages import Draft, Row
from agent.ports import Clock, IdSource, Usage
from agent.sessions import (
    InterruptedTurn,
    LoadedSession,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
    UsageAnchor,
)
from agent.store_ports import Appended
from storage.codec import clean
from storage.extras import LEFT, in_place_of
from storage.memory_ledger import MemoryLedger
from storage.memory_lineages import MemoryLineages
from storage.memory_mailbox import MemoryMailbox
from storage.memory_records import OPEN_STATES, Segment, Turn, own
from storage.memory_tables import MemoryTables
from storage.places import address_of_today, key_of_today
from storage.recovery import address_of_key
from storage.repair import DELIBERATE_ENDS, plan_repair, repaired_in_memory
from storage.undoing import said_by_person


class MemoryTurns:
    """From an inbound message up to its final reply."""

    def __init__(
        self,
        tables: MemoryTables,
        lineages: MemoryLineages,
        ledger: MemoryLedger,
        mail: MemoryMailbox,
        clock: Clock,
        ids: IdSource,
        set_aside_notice: str,
    ) -> None:
        self._tables = tables
        self._lineages = lineages
        self._ledger = ledger
        self._mail = mail
        self._clock = clock
        self._ids = ids
        self._set_aside_notice = set_aside_notice

    def retry(self, opening: TurnOpening) -> TurnTicket | None:
        claimed = self._claimed_turn(opening)
        if claimed is not None:
            return claimed
        conversation = self._tables.conversation_for_key(opening.session_key)
        if conversation is None:
            return None
        self._tables.require_rest(conversation.id)
        tip = self._lineages.live_tip(opening.session_key)
        removed = () if tip is None else self._lineages.take_back(tip, 1)
        if tip is None or not removed:
            return None
        first, *steered = said_by_person(removed)
        return self._begin(tip, opening, anew(first, opening.brought), steered)

    def begin_turn(self, opening: TurnOpening) -> TurnTicket:
        claimed = self._claimed_turn(opening)
        if claimed is not None:
            return claimed
        tip = self._lineages.live_tip(opening.session_key) or self._tables.new_conversation(
            opening.session_key, opening.owner, opening.prefix
        )
        return self._begin(tip, opening, opening.message)

    def _claimed_turn(self, opening: TurnOpening) -> TurnTicket | None:
        for inbox_id in opening.inbox_ids:
            turn = self._tables.turns.get(self._mail.turn_of(inbox_id) or "")
            if turn is not None and turn.state in OPEN_STATES:
                turn.state = "running"
                return turn.ticket
        if opening.inbox_ids and self._mail.all_answered(opening.inbox_ids):
            raise StaleTurn("these messages were answered before")
        return None

    def _begin(
        self, tip: Segment, opening: TurnOpening, message: Draft, steered: Sequence[Draft] = ()
    ) -> TurnTicket:
        repair = plan_repair(_end_of_list(tip.rows))
        if repair is not None and repair.is_append:
            self._tables.append(tip, repair.stubs)
        row, *further = self._tables.append(tip, (message, *steered))
        self._tables.steered.update(each.id for each in further)
        turn_id = opening.turn_id or self._ids.new("t")
        ticket = TurnTicket(turn_id, tip.session.conversation_id, tip.session.id, row.id)
        key = key_of_today(opening.session_key, self._tables.today)
        self._tables.turns[ticket.turn_id] = Turn(ticket, key, opening.owner, self._clock.now())
        self._mail.claim(opening.inbox_ids, ticket.turn_id)
        return ticket

    def append(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        *,
        anchor_usage: Usage | None = None,
    ) -> Appended:
        self._running(ticket)
        return Appended(tuple(own(self._append_live(ticket, session_id, messages, anchor_usage))))

    def steer(
        self, ticket: TurnTicket, session_id: str, inbox_ids: Sequence[int], message: Draft
    ) -> Appended | None:
        self._running(ticket)
        segment = self._tables.segments.get(session_id)
        calling = segment is not None and plan_repair(_end_of_list(segment.rows)) is not None
        if calling or not self._mail.all_waiting(inbox_ids):
            return None
        (row,) = self._append_live(ticket, session_id, (message,), None)
        self._tables.steered.add(row.id)
        self._mail.claim(inbox_ids, ticket.turn_id)
        return Appended(tuple(own((row,))))

    def _running(self, ticket: TurnTicket) -> Turn:
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is None or turn.state != "running":
            raise StaleTurn(ticket.turn_id)
        return turn

    def _append_live(
        self,
        ticket: TurnTicket,
        session_id: str,
        messages: Sequence[Draft],
        usage: Usage | None,
    ) -> list[Row]:
        segment = self._tables.segments.get(session_id)
        if (
            segment is None
            or segment.session.conversation_id != ticket.conversation_id
            or not self._tables.is_live_tip(segment.session)
        ):
            raise SessionEnded(session_id)
        stored = self._tables.append(segment, messages)
        if stored and usage is not None and usage.prompt_tokens > 0:
            anchor = UsageAnchor(usage.prompt_tokens, usage.output_tokens, stored[0].id)
            segment.session = replace(segment.session, anchor=anchor)
        if usage is not None and usage.prompt_tokens + usage.output_tokens > 0:
            owner = self._tables.turns[ticket.turn_id].owner
            self._ledger.enter_answer(ticket.conversation_id, owner, usage)
        return stored

    def note_preview(self, ticket: TurnTicket, address: Address, message_id: str) -> bool:
        turn = self._running(ticket)
        if address_of_today(address, self._tables.today) != address:
            return False
        turn.preview = (replace(address, reply_to_message_id=None), clean(message_id))
        return True

    def preview_of(self, ticket: TurnTicket) -> str | None:
        place, message_id = self._preview(ticket)
        return None if place == LEFT else message_id

    def leave_preview(self, ticket: TurnTicket) -> None:
        turn = self._running(ticket)
        if turn.preview is not None:
            place, message_id = turn.preview
            turn.preview = (replace(place, platform=LEFT), message_id)

    def left_preview_of(self, ticket: TurnTicket) -> str | None:
        place, message_id = self._preview(ticket)
        return message_id if place == LEFT else None

    def _preview(self, ticket: TurnTicket) -> tuple[str | None, str | None]:
        """Its platform and its id."""
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is None or turn.preview is None:
            return None, None
        return turn.preview[0].platform, turn.preview[1]

    def _replaced(self, turn: Turn, drafts: Sequence[OutboxDraft]) -> Sequence[OutboxDraft]:
        """What a turn owes at its end, the first of it in its preview's place."""
        if turn.preview is None:
            return drafts
        place, message_id = turn.preview
        turn.preview = None
        return in_place_of(message_id, place, drafts, self._tables.today)

    def finish_turn(
        self,
        ticket: TurnTicket,
        session_id: str,
        outcome: TurnOutcome,
        *,
        final: Draft | None = None,
        anchor_usage: Usage | None = None,
        outbox: Sequence[OutboxDraft] = (),
    ) -> tuple[OutboxItem, ...]:
        turn = self._running(ticket)
        if final is not None:
            self._append_live(ticket, session_id, (final,), anchor_usage)
        owed = self._replaced(turn, outbox)
        items = self._mail.owe(owed, ticket.conversation_id, self._clock.now())
        self._mail.answer(self._mail.ids_of_turn(ticket.turn_id))
        turn.state = outcome
        return items

    def interrupt_turn(self, ticket: TurnTicket) -> None:
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is not None and turn.state == "running":
            turn.state = "interrupted"

    def recover_turns(self, *, crash_limit: int = 3) -> list[InterruptedTurn]:
        recovered = []
        for turn in self._tables.turns.values():
            if turn.state not in OPEN_STATES:
                continue
            if turn.state == "running":
                turn.crashes = 1 if self._progressed(turn) else turn.crashes + 1
                turn.crash_row_id = self._tables.newest_row_id
                turn.state = "crashed"
            orderly = turn.state == "interrupted"
            inbox_ids = self._mail.ids_of_turn(turn.ticket.turn_id)
            if not orderly and turn.crashes >= crash_limit:
                self._set_aside(turn, inbox_ids)
                continue
            recovered.append(
                InterruptedTurn(
                    turn.ticket,
                    turn.session_key,
                    turn.owner,
                    inbox_ids,
                    turn.started_at,
                    turn.crashes,
                    orderly,
                )
            )
        return recovered

    def results_of_turn(self, ticket: TurnTicket) -> list[Row]:
        steps = self._steps_since(ticket.conversation_id, ticket.user_row_id)
        results = (row for row in steps if row.message["role"] == "tool")
        return own(sorted(results, key=lambda row: row.id))

    def _progressed(self, turn: Turn) -> bool:
        mark = max(turn.crash_row_id, turn.ticket.user_row_id)
        return any(self._steps_since(turn.ticket.conversation_id, mark))

    def _steps_since(self, conversation_id: str, row_id: int) -> Iterator[Row]:
        """Copies, summaries and stubs are none."""
        return (
            row
            for segment in self._tables.segments.values()
            if segment.session.conversation_id == conversation_id
            for row in [*segment.rows, *segment.replaced, *segment.taken_back]
            if row.id > row_id
            and row.kind is None
            and row.origin_id is None
            and row.message["role"] in ("assistant", "tool")
        )

    def _set_aside(self, turn: Turn, inbox_ids: tuple[int, ...]) -> None:
        turn.state = "failed"
        self._mail.answer(inbox_ids)
        address = self._mail.address_of(inbox_ids) or address_of_key(turn.session_key)
        if address is not None:
            notice = OutboxDraft(address, self._set_aside_notice, "notice")
            owed = self._replaced(turn, (notice,))
            self._mail.owe(owed, turn.ticket.conversation_id, self._clock.now())

    def resume_turn(self, ticket: TurnTicket) -> LoadedSession:
        turn = self._tables.turns.get(ticket.turn_id)
        if turn is None or turn.state not in OPEN_STATES:
            raise StaleTurn(ticket.turn_id)
        turn.state = "running"
        tip = self._tables.tip_of(ticket.conversation_id)
        if tip.session.ended_at is not None and tip.session.end_reason not in DELIBERATE_ENDS:
            tip.session = replace(tip.session, ended_at=None, end_reason=None)
        return load(self._tables, tip, ticket)


def load(tables: MemoryTables, segment: Segment, ticket: TurnTicket | None) -> LoadedSession:
    """The list, repaired as the port says."""
    repair = plan_repair(segment.rows)
    session = segment.session
    others = any(
        turn.state == "running"
        and turn.ticket.conversation_id == session.conversation_id
        and (ticket is None or turn.ticket.turn_id != ticket.turn_id)
        for turn in tables.turns.values()
    )
    if repair is not None and (session.ended_at is not None or others):
        return LoadedSession(segment.session, tuple(own(repaired_in_memory(segment.rows, repair))))
    if repair is not None and repair.is_append:
        tables.append(segment, repair.stubs)
    elif repair is not None:
        tables.replace_list(segment, repair.entries)
    return LoadedSession(segment.session, tuple(own(segment.rows)))


def _end_of_list(rows: Sequence[Row]) -> Sequence[Row]:
    """The last row that is no tool result, and the results behind it."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place].message["role"] != "tool":
            return rows[place:]
    return ()
