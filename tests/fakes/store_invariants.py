"""Owns what must hold in every database, whatever happened to the process that wrote it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from storage.codec import ROW_COLUMNS, decode_row
from storage.rows import TAKEN_BACK
from storage.segment import indexable_text

# Each query must find nothing.
_FORBIDDEN = {
    "an active job that is never due": """
        SELECT id FROM jobs WHERE state = 'active' AND next_run_at IS NULL""",
    "a number of a job that its place has not given": """
        SELECT j.id FROM jobs j LEFT JOIN job_numbers n ON n.session_key = j.session_key
        WHERE n.last IS NULL OR j.number > n.last""",
    "two runs of one job at work": """
        SELECT job_id FROM job_runs WHERE state = 'claimed' GROUP BY job_id HAVING count(*) > 1""",
    "a session closed by a compression without exactly one continuation": """
        SELECT p.id FROM sessions p WHERE p.end_reason IN ('compression', 'switch', 'uncompress')
        AND (SELECT count(*) FROM sessions c
             WHERE c.parent_session_id = p.id AND c.link = 'continuation') <> 1""",
    "a live parent with a continuation": """
        SELECT p.id FROM sessions p JOIN sessions c
        ON c.parent_session_id = p.id AND c.link = 'continuation' WHERE p.ended_at IS NULL""",
    "a cycle of parents": """
        WITH RECURSIVE up (start, id) AS (
            SELECT id, parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL
            UNION SELECT up.start, s.parent_session_id FROM up JOIN sessions s ON s.id = up.id
            WHERE s.parent_session_id IS NOT NULL)
        SELECT start FROM up WHERE start = id""",
    "a child without messages": """
        SELECT s.id FROM sessions s WHERE s.parent_session_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)""",
    "a child of another conversation": """
        SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id
        WHERE c.link = 'continuation' AND c.conversation_id <> p.conversation_id""",
    "a route to a conversation whose tip is not live": """
        SELECT r.session_key FROM routes r JOIN conversations c ON c.id = r.conversation_id
        LEFT JOIN sessions s ON s.id = c.tip_session_id
        WHERE s.id IS NULL OR s.ended_at IS NOT NULL OR s.conversation_id <> c.id""",
    "a tip that is not the end of its lineage": """
        SELECT c.id FROM conversations c JOIN sessions s
        ON s.parent_session_id = c.tip_session_id AND s.link = 'continuation'""",
    "two live sessions of one conversation": """
        SELECT conversation_id FROM sessions WHERE ended_at IS NULL
        GROUP BY conversation_id HAVING count(*) > 1""",
    "an end without a reason's time, or a reason without an end": """
        SELECT id FROM sessions WHERE ended_at IS NULL AND end_reason IS NOT NULL""",
    "an end that nobody knows": """
        SELECT id FROM sessions WHERE end_reason NOT IN
        ('compression', 'reset', 'idle', 'daily', 'switch', 'uncompress')""",
    "two ways to one conversation": """
        SELECT conversation_id FROM routes GROUP BY conversation_id HAVING count(*) > 1""",
    "a route to a conversation that lives elsewhere": """
        SELECT r.session_key FROM routes r JOIN conversations c ON c.id = r.conversation_id
        WHERE c.session_key <> r.session_key""",
    "a conversation without a session that is its tip": """
        SELECT c.id FROM conversations c LEFT JOIN sessions s ON s.id = c.tip_session_id
        WHERE s.id IS NULL OR s.conversation_id <> c.id""",
    "a conversation with more than one root": """
        SELECT conversation_id FROM sessions WHERE link IS NOT 'continuation'
        GROUP BY conversation_id HAVING count(*) > 1""",
    "a fork that is not the root of its own conversation": """
        SELECT s.id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
        WHERE s.link = 'branch' AND p.conversation_id = s.conversation_id""",
    "an uncompress without anything to undo before it": """
        SELECT u.id FROM sessions u WHERE u.end_reason = 'uncompress'
        AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.conversation_id = u.conversation_id
                        AND c.end_reason = 'compression' AND c.serial < u.serial)
        AND NOT EXISTS (SELECT 1 FROM sessions c JOIN replaced_lists r ON r.session_id = c.id
                        WHERE c.conversation_id = u.conversation_id AND c.serial <= u.serial)""",
    "a child that carries what is not its own": """
        SELECT s.id FROM sessions s WHERE s.carried_row_id > 0 AND NOT EXISTS (
            SELECT 1 FROM messages m WHERE m.id = s.carried_row_id AND m.session_id = s.id)""",
    "a replaced list of a revision that never was, or with rows of others": """
        SELECT r.session_id FROM replaced_lists r JOIN sessions s ON s.id = r.session_id
        WHERE r.revision > s.revision OR EXISTS (
            SELECT 1 FROM json_each(r.row_ids) j LEFT JOIN messages m ON m.id = j.value
            WHERE m.session_id IS NOT r.session_id)""",
    "two active rows at one place": """
        SELECT session_id FROM messages WHERE active = 1
        GROUP BY session_id, seq HAVING count(*) > 1""",
    "a row both active and compacted": """
        SELECT id FROM messages WHERE active = 1 AND compacted = 1""",
    "a place above the highest given out": """
        SELECT m.id FROM messages m JOIN sessions s ON s.id = m.session_id
        WHERE m.seq > s.last_seq""",
    "a wrong message count": """
        SELECT s.id FROM sessions s WHERE s.message_count <> (
            SELECT count(*) FROM messages m WHERE m.session_id = s.id AND m.active = 1)""",
    "an origin that is a copy itself": """
        SELECT m.id FROM messages m JOIN messages o ON o.id = m.origin_id
        WHERE o.origin_id IS NOT NULL""",
    "an anchor at a row that is not active in its session": """
        SELECT s.id FROM sessions s WHERE s.anchor_row_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM messages m
            WHERE m.id = s.anchor_row_id AND m.session_id = s.id AND m.active = 1)""",
    "a prepared summary for another revision": """
        SELECT p.session_id FROM prepared p JOIN sessions s ON s.id = p.session_id
        WHERE p.revision <> s.revision OR s.ended_at IS NOT NULL""",
    "a prepared summary of rows that are not in the list": """
        SELECT p.session_id FROM prepared p JOIN json_each(p.payload, '$.entries') j
        WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = p.session_id
                          AND m.active = 1 AND m.id = p.covered_row_id)
        OR (j.type = 'integer' AND NOT EXISTS (
            SELECT 1 FROM messages m WHERE m.session_id = p.session_id
            AND m.active = 1 AND m.id = j.value))""",
    "one platform message for two parts": """
        SELECT p.platform_message_id FROM outbox_parts p JOIN outbox o ON o.id = p.outbox_id
        WHERE p.platform_message_id IS NOT NULL
        GROUP BY o.platform, o.bot_id, o.chat_id, p.platform_message_id HAVING count(*) > 1""",
    "a claimed message whose turn is over": """
        SELECT i.id FROM inbox i LEFT JOIN turns t ON t.id = i.turn_id WHERE i.state = 'claimed'
        AND (t.id IS NULL OR t.state NOT IN ('running', 'interrupted', 'crashed'))""",
    "a new message that belongs to a turn": """
        SELECT id FROM inbox WHERE state = 'new' AND turn_id IS NOT NULL""",
    "a turn that is over and has left a message of its own waiting": """
        SELECT i.id FROM inbox i JOIN turns t ON t.id = i.turn_id
        WHERE i.state <> 'answered' AND t.state IN ('done', 'failed', 'stopped')""",
    "a preview of a turn that is over": """
        SELECT p.turn_id FROM previews p JOIN turns t ON t.id = p.turn_id
        WHERE t.state NOT IN ('running', 'interrupted', 'crashed')""",
    "words in a turn that are none of a person, or no originals": """
        SELECT s.row_id FROM steered s JOIN messages m ON m.id = s.row_id
        WHERE m.role <> 'user' OR m.kind IS NOT NULL OR m.origin_id IS NOT NULL""",
    "a turn that begins with words that came into one": """
        SELECT t.id FROM turns t JOIN steered s ON s.row_id = t.user_row_id""",
    "a chat that has moved to itself, or to one that has moved": """
        SELECT a.old_chat_id FROM moved_chats a LEFT JOIN moved_chats b
        ON b.platform = a.platform AND b.bot_id = a.bot_id AND b.old_chat_id = a.new_chat_id
        WHERE b.old_chat_id IS NOT NULL OR a.old_chat_id = a.new_chat_id""",
    "a way to a chat that has moved": """
        WITH keys (session_key) AS (
            SELECT session_key FROM routes UNION SELECT session_key FROM conversations
            UNION SELECT session_key FROM jobs
            UNION SELECT session_key FROM inbox WHERE state IN ('new', 'claimed')
            UNION SELECT session_key FROM turns
                  WHERE state IN ('running', 'interrupted', 'crashed'))
        SELECT session_key FROM keys JOIN moved_chats m
        ON json_valid(session_key) AND m.platform = session_key ->> 0
        AND m.bot_id = session_key ->> 1 AND m.old_chat_id = session_key ->> 2""",
    "something in a chat that has moved": """
        WITH places (platform, bot_id, chat_id) AS (
            SELECT platform, bot_id, chat_id FROM inbox WHERE state IN ('new', 'claimed')
            UNION SELECT platform, bot_id, channel_id FROM cursors
            UNION SELECT platform, bot_id, chat_id FROM previews
            UNION SELECT platform, bot_id, chat_id FROM outbox
                  WHERE state IN ('planned', 'sending', 'unknown'))
        SELECT p.chat_id FROM places p JOIN moved_chats m ON m.platform = p.platform
        AND m.bot_id = p.bot_id AND m.old_chat_id = p.chat_id""",
    "a file without a name of its content": """
        SELECT name FROM attachments
        WHERE substr(name, 1, 32) GLOB '*[^0-9a-f]*' OR length(name) < 32 OR size_bytes < 0""",
    "an answer that does not follow its parts": """
        SELECT o.id FROM outbox o WHERE o.state = 'sent' AND EXISTS (
            SELECT 1 FROM outbox_parts p WHERE p.outbox_id = o.id AND p.state <> 'sent')""",
}


def check_invariants(path: Path | str, *, integrity: bool = True) -> None:
    """Fail with a list of what does not hold in this database.

    ``integrity``: look through the file's pages as well, which takes longer.
    """
    db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    try:
        broken = [
            f"{name}: {rows}"
            for name, sql in _FORBIDDEN.items()
            if (rows := db.execute(sql).fetchall())
        ]
        broken += _index_faults(db)
        whole = [("ok",)]
        if integrity and (verdict := db.execute("PRAGMA integrity_check").fetchall()) != whole:
            broken.append(f"integrity: {verdict}")
        if verdict := db.execute("PRAGMA foreign_key_check").fetchall():
            broken.append(f"foreign keys: {verdict}")
    finally:
        db.close()
    assert not broken, "\n".join(broken)


def _index_faults(db: sqlite3.Connection) -> list[str]:
    """The index holds the originals with text that nobody took back, and nothing else."""
    if db.execute("SELECT 1 FROM facts WHERE name = 'index_damaged'").fetchone():
        return []
    query = f"SELECT {ROW_COLUMNS} FROM messages WHERE NOT {TAKEN_BACK} ORDER BY id"
    rows = map(decode_row, db.execute(query))
    # While it is made anew, newest first, it holds nothing up to this message.
    found = db.execute("SELECT value FROM facts WHERE name = 'index_missing_upto'").fetchone()
    missing = 0 if found is None else int(found[0])
    expected = [
        row.id
        for row in rows
        if row.id > missing and indexable_text(row.message, row.kind, row.origin_id)
    ]
    indexed = [row[0] for row in db.execute("SELECT id FROM message_index_docsize ORDER BY id")]
    return [] if indexed == expected else [f"index holds {indexed}, not {expected}"]
