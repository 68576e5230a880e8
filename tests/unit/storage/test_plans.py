"""No step of the daily road walks through a table that grows for ever."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from agent.attachments import StoredFile
from agent.jobs.nouns import Misses
from agent.ledger import LedgerScope, RequestEntry
from agent.lineages import UncompressRequest
from agent.mail import Cursor, OutboxDraft, PartDraft
from agent.messages import Keep
from agent.pairings import PairingRequest
from agent.ports import Usage
from agent.prepared import Prepared
from agent.sessions import (
    CompressionState,
    RewriteRequest,
    SearchScope,
    SplitRequest,
    TurnOpening,
)
from storage import (
    attachment_rows,
    changes,
    inbox,
    job_firing,
    job_runs,
    jobs,
    leases,
    ledger,
    lineages,
    moving,
    notes,
    outbox,
    pairings,
    recovery,
    search,
    sessions,
    taking_back,
    turns,
)
from storage import prepared as shelf
from storage.database import Transaction
from storage.migrate import migrate
from tests.contract.jobs_suite import DUE, firing
from tests.contract.jobs_suite import draft as job_draft
from tests.contract.store_suite import CHAT, KEY, OWNER, PREFIX, SUMMARY, inbound, said, user
from tests.fakes.clock import SequentialIds

Step = Callable[[Transaction], object]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, 0.0)
    yield connection
    connection.close()


def plans_of(connection: sqlite3.Connection, life: Step) -> dict[str, list[str]]:
    """Each statement that a piece of the store's life runs, with SQLite's plan for it."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    life(Transaction(connection, SequentialIds(), lambda _: 1))
    connection.set_trace_callback(None)
    return {
        sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
        for sql in dict.fromkeys(statements)
        if sql.startswith(("SELECT", "UPDATE", "DELETE", "INSERT", "WITH"))
    }


def a_life(tx: Transaction) -> None:
    receipt = inbox.accept(tx, inbound(1), Cursor("telegram", "7", "111", "1"))
    inbox.accept(tx, inbound(1), None)
    inbox.accept(tx, inbound(2, update_id="1001", received_at=9e9), None)
    inbox.revise(tx, inbound(2, text="changed", update_id="3000"))
    inbox.quarantine(tx, "telegram", "7", "9", "{", "unreadable")
    opening = TurnOpening(KEY, OWNER, (receipt.inbox_id,), user("hello"), PREFIX)
    ticket = turns.begin_turn(tx, opening)
    turns.begin_turn(tx, opening)
    turns.append(tx, ticket, ticket.session_id, [said("a")], anchor_usage=Usage(9, 9))
    (waiting,) = inbox.open_inbox(tx.execute("SELECT 1").connection)
    assert turns.steer(tx, ticket, ticket.session_id, (waiting.id,), user("and this")) is not None
    outbox.owe(tx, OutboxDraft(CHAT, "answer"), None)
    notes.remember_note(tx, KEY, OWNER, "likes tea")
    notes.remember_note(tx, KEY, OWNER, "likes coffee", replaces=1)
    for kind in ("text", "prompt"):
        job = jobs.add_job(tx, job_draft(kind=kind), most=50, most_each=20)
        for due in (DUE, DUE + 3600):
            gone = Misses(due, due, 1, "not running")
            assert job_firing.fire_job(tx, job.id, replace(firing(due), misses=gone)) is not None
    job_runs.settle_runs(tx)
    job_runs.void_runs(tx)
    jobs.set_job(tx, job.id, "paused", next_run_at=9.0)
    assert moving.move_chat(tx, "telegram", "7", "111", "112")
    assert notes.forget_note(tx, KEY, 1) is not None
    assert notes.notes(tx, KEY) == ()
    assert moving.move_chat(tx, "telegram", "7", "112", "111") is False
    attachment_rows.enter_file(tx, StoredFile("0" * 32, OWNER, "a", "image/png", 1, 0.0))
    ledger.enter_request(tx, RequestEntry("summary", "m", ticket.conversation_id))
    ledger.first_time(tx, OWNER, "warned")
    recovery.recover_turns(tx, 3, "set aside")
    loaded = recovery.resume_turn(tx, ticket)
    recovery.results_of_turn(tx.execute("SELECT 1").connection, ticket)
    draft = OutboxDraft(CHAT, "answer")
    (item,) = turns.finish_turn(
        tx, ticket, ticket.session_id, "done", final=said("b"), outbox=[draft]
    )
    (part,) = outbox.plan_parts(tx, item.id, [PartDraft({})])
    outbox.mark_part(tx, part.id, "sent", platform_message_id="55")
    outbox.fail_outbox(tx, outbox.owe(tx, draft, None).id, "no")
    inbox.answer_inbox(tx, [receipt.inbox_id], [])
    leases.acquire_lease(tx, ticket.conversation_id, "me", 60)
    newest = loaded.last_row_id
    kept = Prepared(ticket.session_id, 0, newest, (SUMMARY, Keep(newest)), 9)
    assert shelf.save_prepared(tx, kept)
    assert shelf.prepared(tx, ticket.session_id) is not None
    assert shelf.discard_prepared(tx, ticket.session_id)
    changes.rewrite(tx, RewriteRequest(ticket.session_id, 0, newest, (SUMMARY, Keep(newest))))
    assert changes.split(
        tx,
        SplitRequest(
            ticket.conversation_id, ticket.session_id, 1, newest, (SUMMARY,), CompressionState()
        ),
    ).applied
    sessions.start_conversation(tx, KEY, OWNER, PREFIX)


def looking(tx: Transaction) -> None:
    a_life(tx)
    tx.write_index()  # a search looks at its index only if the newest message is in it
    connection = tx.execute("SELECT 1").connection
    jobs.due_jobs(connection, 9e9)
    jobs.next_job_at(connection)
    jobs.jobs_at(connection, KEY)
    jobs.job_at(connection, KEY, 1)
    job_runs.ran_between(connection, "job_1", 0.0, 9.0)
    job_runs.job_runs(connection, "job_1")
    jobs.place_of_turn(connection, "turn_1")
    inbox.open_inbox(connection)
    inbox.inbox_items(connection, [1])
    moving.moved_chats(connection, "telegram", "7")
    moving.knows_chat(connection, "telegram", "7", "115")
    attachment_rows.file_row(connection, "0" * 32)
    attachment_rows.file_row(connection, "0" * 32, OWNER)
    attachment_rows.known_files(connection, ["0" * 32])
    outbox.owed(connection)
    inbox.cursors(connection, "telegram", "7")
    pairings.ask_pairing(tx, PairingRequest("telegram", "222", "Eve", b"s", b"d", 0.0, 9.0))
    pairings.approve_pairing(tx, "wrong")
    pairings.revoke_pairing(tx, "telegram", "222")
    pairings.book(connection)
    conversation = sessions.conversation_for_key(tx, KEY)
    assert conversation is not None
    sessions.conversation(tx, conversation.id)
    sessions.lineage(tx, conversation.tip_session_id)
    sessions.tip(tx, conversation.tip_session_id)
    sessions.list_sessions(tx, conversation.id, 5)
    sessions.session_infos(tx, (conversation.tip_session_id,))
    changes.load(tx, conversation.tip_session_id, None)
    ledger.ledger_lines(connection, LedgerScope(0.0, 9.0))
    ledger.ledger_lines(connection, LedgerScope(0.0, 9.0, OWNER))
    ledger.ledger_lines(connection, LedgerScope(0.0, 9.0, None, conversation.id))
    ledger.compressions(connection, LedgerScope(0.0, 9.0, OWNER))
    ledger.compressions(connection, LedgerScope(0.0, 9.0, None, conversation.id))
    search.window(connection, 1, 5, 5)
    search.conversation_of_message(connection, 1)
    for scope in (
        SearchScope(),
        SearchScope(conversation_id=conversation.id),
        SearchScope(owner=OWNER),
    ):
        search.search(connection, "when was hello said?", scope, 5)
        search.search(connection, "when was hello said?", scope, 5, before_id=2)
        search.in_scope(connection, scope, 1)
        search.result_of_call(connection, scope, "call_1")
    search.all_rows(connection, conversation.tip_session_id)


def going_back(tx: Transaction) -> None:
    """A person's commands on whole conversations."""
    a_life(tx)
    opening = TurnOpening(KEY, OWNER, (), user("again"), PREFIX)
    ticket = turns.begin_turn(tx, opening)
    cid = ticket.conversation_id
    turns.append(tx, ticket, ticket.session_id, [said("a")])
    turns.finish_turn(tx, ticket, ticket.session_id, "done", final=said("b"))
    last = changes.load(tx, ticket.session_id, None)[0].last_row_id
    state = CompressionState(count=1)
    rewritten = RewriteRequest(ticket.session_id, 0, last, (SUMMARY, Keep(last)), state)
    assert changes.rewrite(tx, rewritten).applied
    last = changes.load(tx, ticket.session_id, None)[0].last_row_id
    wish = UncompressRequest(cid, ticket.session_id, 1, last, state)
    changed = lineages.uncompress(tx, wish)
    assert changed.applied
    assert taking_back.retry(tx, opening) is not None
    recovery.recover_turns(tx, 1, "set aside")
    assert taking_back.undo(tx, cid).removed
    again = turns.begin_turn(tx, opening)
    turns.finish_turn(tx, again, again.session_id, "done")
    lineages.set_title(tx, cid, "Trip")
    lineages.branch(tx, changed.tip.id, KEY, OWNER)
    lineages.resume(tx, "another key", cid)
    lineages.uncompressed(tx, changed.tip.id)
    lineages.conversations_of(tx, OWNER)
    lineages.conversations_at(tx, KEY)
    lineages.usage_totals(tx, cid)


@pytest.mark.parametrize("life", [looking, going_back])
def test_every_statement_finds_its_rows_by_an_index(
    connection: sqlite3.Connection, life: Step
) -> None:
    plans = plans_of(connection, life)
    assert len(plans) > 50
    growing = re.compile(
        r"SCAN (messages|m|sessions|s|inbox|i|outbox|outbox_parts|turns|t|c|requests|r|l"
        r"|conversations|routes|attachments|steered|jobs|job_runs)\b"
    )
    # A partial index holds only what is open at this moment: to walk through it is to use it.
    open_only = re.compile(r"USING INDEX (inbox_waiting|outbox_owed|turns_open|job_runs_open)$")
    walks = {
        sql: plan
        for sql, plan in plans.items()
        if any(growing.match(line) and not open_only.search(line) for line in plan)
    }
    assert walks == {}
