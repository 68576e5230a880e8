"""Owns what else is held of a person, in SQL: mail, notes, files, jobs, names."""

from __future__ import annotations

import json
from collections.abc import Collection

from storage import sessions
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.inbox import DEDUPE_SECONDS

_ANSWERS = (
    "SELECT id FROM outbox WHERE conversation_id IN (SELECT value FROM json_each(?2))"
    " UNION SELECT o.id FROM outbox o JOIN turns t ON t.id = o.turn_id WHERE t.owner = ?1"
    # What a command said: in their direct chats, and below their messages elsewhere.
    " UNION SELECT o.id FROM outbox o WHERE (o.platform, o.bot_id, o.chat_id) IN"
    "  (SELECT platform, bot_id, chat_id FROM inbox WHERE owner = ?1"
    "   AND payload ->> '$.chat_kind' = 'direct')"
    " UNION SELECT o.id FROM outbox o WHERE EXISTS (SELECT 1 FROM inbox i"
    "  WHERE i.platform = o.platform AND i.bot_id = o.bot_id AND i.chat_id = o.chat_id"
    "  AND i.message_id = o.reply_to_message_id AND i.owner = ?1)"
    # What a job of theirs said somewhere, by its words.
    " UNION SELECT o.id FROM jobs j JOIN outbox o ON o.platform = j.platform"
    "  AND o.bot_id = j.bot_id AND o.chat_id = j.chat_id AND instr(o.text, j.text) > 0"
    "  WHERE j.owner = ?1 AND j.action = 'text' AND j.text <> '' AND j.origin IN ('person', 'tool')"
)
_JOBS = "owner = ? AND origin IN ('person', 'tool')"
"""Those that the operator has set up for somebody stay."""
_TITLED = (
    "SELECT 1 FROM conversations c WHERE c.id = ?2 AND (c.owner = ?1 OR EXISTS ("
    "SELECT 1 FROM inbox i WHERE i.owner = ?1 AND i.session_key = c.session_key"
    " AND i.kind = 'command' AND i.text LIKE '/title%'))"
)


def counts(db: sessions.Reader, owner: str) -> tuple[int, int, int, int]:
    """Notes, files, jobs and mail."""
    queries = (
        "SELECT count(*) FROM notes WHERE owner = ?1 OR place = ?1",
        "SELECT count(*) FROM attachments WHERE owner = ?1",
        f"SELECT count(*) FROM jobs WHERE {_JOBS} AND state IN ('active', 'paused')",
        "SELECT count(*) FROM inbox WHERE owner = ?1 AND text <> ''"
        " AND text NOT LIKE '/forget% me%'",
    )
    notes, files, jobs, mail = (int(db.execute(query, (owner,)).fetchone()[0]) for query in queries)
    return notes, files, jobs, mail


def clear_outbox(tx: Transaction, owner: str, own: Collection[str]) -> None:
    """Answers to them lose their words; those that are still owed are not sent any more."""
    found = [row[0] for row in tx.execute(_ANSWERS, (owner, json.dumps(list(own))))]
    ids = (json.dumps(found),)
    tx.execute(
        "UPDATE outbox_parts SET payload = '{}', error = NULL,"
        " state = CASE WHEN state IN ('sent', 'failed') THEN state ELSE 'failed' END"
        " WHERE outbox_id IN (SELECT value FROM json_each(?))",
        ids,
    )
    faultpoint("erase.parts")
    tx.execute(
        "UPDATE outbox SET text = '', extras = '{}', error = NULL, reply_to_message_id = NULL,"
        " state = CASE WHEN state IN ('sent', 'failed') THEN state ELSE 'failed' END"
        " WHERE id IN (SELECT value FROM json_each(?))",
        ids,
    )
    faultpoint("erase.outbox")


def clear_inbox(tx: Transaction, owner: str, upto_inbox_id: int) -> None:
    """What they sent goes; for a week an empty row stays, by which a repeat is known."""
    platform, _, user_id = owner.partition(":")
    tx.execute(
        "DELETE FROM inbox WHERE owner = ? AND id <= ? AND state = 'answered' AND received_at < ?"
        " AND id NOT IN (SELECT inbox_id FROM restarts_awaited)",
        (owner, upto_inbox_id, tx.now - DEDUPE_SECONDS),
    )
    tx.execute(
        "UPDATE inbox SET text = '', payload = '{}', reply_to_message_id = NULL, owner = '',"
        " session_key = '', state = 'answered' WHERE owner = ? AND id <= ?",
        (owner, upto_inbox_id),
    )
    faultpoint("erase.inbox")
    # Nobody could read whom it is from. Whoever it names, it was kept for the operator only.
    tx.execute(
        "UPDATE inbox SET text = '', reason = 'erased' WHERE state = 'quarantined'"
        " AND platform = ? AND instr(text || coalesce(reason, ''), ?) > 0 AND id <= ?",
        (platform, user_id, upto_inbox_id),
    )
    faultpoint("erase.quarantine")


def end_turns(tx: Transaction, owner: str) -> None:
    """None of theirs is taken up again, and none says whose it was."""
    open_ones = (
        "SELECT id FROM turns WHERE owner = ? AND state IN ('running', 'interrupted', 'crashed')"
    )
    tx.execute(f"DELETE FROM previews WHERE turn_id IN ({open_ones})", (owner,))
    tx.execute(
        f"UPDATE inbox SET state = 'answered' WHERE state = 'claimed' AND turn_id IN ({open_ones})",
        (owner,),
    )
    faultpoint("erase.open_turns")
    tx.execute(
        "UPDATE turns SET state = 'stopped', ended_at = ? WHERE owner = ?"
        " AND state IN ('running', 'interrupted', 'crashed')",
        (tx.now, owner),
    )
    tx.execute("UPDATE turns SET owner = '', session_key = '' WHERE owner = ?", (owner,))
    faultpoint("erase.turns")


def clear_title(tx: Transaction, owner: str, conversation_id: str) -> None:
    """A name that they may have given to a conversation of several."""
    if tx.execute(_TITLED, (owner, conversation_id)).fetchone() is not None:
        tx.execute("UPDATE sessions SET title = NULL WHERE conversation_id = ?", (conversation_id,))
    faultpoint("erase.title")


def clear_things(tx: Transaction, owner: str) -> tuple[str, ...]:
    """Notes, jobs, names and files; gives back which files nobody has any more."""
    tx.execute("DELETE FROM notes WHERE owner = ?1 OR place = ?1", (owner,))
    tx.execute("DELETE FROM note_numbers WHERE place = ?", (owner,))
    faultpoint("erase.notes")
    tx.execute(
        f"DELETE FROM job_runs WHERE job_id IN (SELECT id FROM jobs WHERE {_JOBS})", (owner,)
    )
    tx.execute(f"DELETE FROM jobs WHERE {_JOBS}", (owner,))
    faultpoint("erase.jobs")
    person = owner.partition(":")[::2]
    tx.execute("DELETE FROM pairing_requests WHERE platform = ? AND user_id = ?", person)
    tx.execute("UPDATE paired SET shown_name = '' WHERE platform = ? AND user_id = ?", person)
    faultpoint("erase.names")
    had = tx.execute("DELETE FROM attachments WHERE owner = ? RETURNING name", (owner,)).fetchall()
    faultpoint("erase.files")
    return unowned(tx, [row[0] for row in had])


def unowned(db: sessions.Reader, names: Collection[str]) -> tuple[str, ...]:
    """Those files of these that have no row."""
    query = (
        "SELECT DISTINCT value FROM json_each(?)"
        " WHERE value NOT IN (SELECT name FROM attachments) ORDER BY value"
    )
    return tuple(row[0] for row in db.execute(query, (json.dumps(list(names)),)))
