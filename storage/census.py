"""Owns the census in SQL: what waits, and what the day brought."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from agent.census import Census, RefusingChat
from agent.mail import NOT_AWAITED

MOST_TURNS = 20_000
MOST_SESSIONS = 5_000
MOST_ANSWERS = 500
"""Looked at, from the newest on: a number for a person's eyes must not take long."""
RECENT_SECONDS = 7 * 86_400.0


def census(connection: sqlite3.Connection, now: float, day_began_at: float) -> Census:
    """As of ``now``; the day began at that time."""
    inbox_new, inbox_oldest = connection.execute(
        "SELECT count(*), min(received_at) FROM inbox WHERE state = 'new'"
    ).fetchone()
    owed, owed_oldest, in_doubt = connection.execute(
        "SELECT count(*), min(created_at), coalesce(sum(state = 'unknown'), 0) FROM outbox"
        " WHERE state IN ('planned', 'sending', 'unknown')"
    ).fetchone()
    compressions, compressed_at = _compressions(connection, day_began_at)
    return Census(
        inbox_new=inbox_new,
        inbox_oldest_at=inbox_oldest,
        quarantined=_quarantined(connection),
        owed=owed,
        owed_oldest_at=owed_oldest,
        in_doubt=in_doubt,
        refusing=_refusing(connection, now),
        turns=_turns(connection, day_began_at),
        compressions=compressions,
        compressed_at=compressed_at,
        cooling_down=_cooling_down(connection, now),
    )


def _refusing(connection: sqlite3.Connection, now: float) -> tuple[RefusingChat, ...]:
    """By the newest answers: a chat that is owed no more is nobody's news."""
    newest = connection.execute(
        "SELECT platform, bot_id, chat_id, state, created_at, error FROM outbox"
        " ORDER BY id DESC LIMIT ?",
        (MOST_ANSWERS,),
    )
    found: dict[tuple[str, str, str], RefusingChat] = {}
    heard: set[tuple[str, str, str]] = set()
    for platform, bot_id, chat_id, state, created_at, error in newest:
        chat = (platform, bot_id, chat_id)
        if state == "sent" or now - created_at > RECENT_SECONDS:
            heard.add(chat)
        if chat in heard or state != "failed" or error == NOT_AWAITED:
            continue
        if chat not in found:
            found[chat] = RefusingChat(platform, chat_id, 0, created_at, error or "")
        one = found[chat]
        found[chat] = replace(one, answers=one.answers + 1, since=created_at)
    return tuple(sorted(found.values(), key=lambda one: -one.answers))


def _quarantined(connection: sqlite3.Connection) -> int:
    """Of the newest rows: there is no index on it, and old ones are nobody's news."""
    row = connection.execute(
        "SELECT count(*) FROM (SELECT state FROM inbox ORDER BY id DESC LIMIT 1000)"
        " WHERE state = 'quarantined'"
    ).fetchone()
    return int(row[0])


def _turns(connection: sqlite3.Connection, since: float) -> dict[str, int]:
    # In the order in which they were begun; the table's ids say nothing about time.
    newest = connection.execute(
        "SELECT state, started_at FROM turns ORDER BY rowid DESC LIMIT ?", (MOST_TURNS,)
    )
    found: Counter[str] = Counter()
    for state, started_at in newest:
        if started_at < since:
            break
        found[state] += 1
    return dict(found)


def _compressions(connection: sqlite3.Connection, since: float) -> tuple[int, float | None]:
    """As the ledger counts them: splits for that reason, and lists replaced inside a session.

    A continuation for another reason (another model, an undone compression) is none.
    """
    split, split_at = _counted_from(
        connection.execute(
            "SELECT child.started_at FROM (SELECT serial, parent_session_id, link, started_at"
            "  FROM sessions ORDER BY serial DESC LIMIT ?) child"
            " JOIN sessions parent ON parent.id = child.parent_session_id"
            " WHERE child.link = 'continuation' AND parent.end_reason = 'compression'"
            " ORDER BY child.serial DESC",
            (MOST_SESSIONS,),
        ),
        since,
    )
    inside, inside_at = _counted_from(
        # Of the newest sessions only: no index is on the time.
        connection.execute(
            "SELECT l.made_at FROM (SELECT id FROM sessions ORDER BY serial DESC LIMIT ?) s"
            " JOIN replaced_lists l ON l.session_id = s.id ORDER BY l.made_at DESC",
            (MOST_SESSIONS,),
        ),
        since,
    )
    return split + inside, max((at for at in (split_at, inside_at) if at is not None), default=None)


def _counted_from(times: Iterable[tuple[float]], since: float) -> tuple[int, float | None]:
    """How many of these, newest first, are not older; and the newest of all."""
    count, latest = 0, None
    for (at,) in times:
        latest = at if latest is None else latest
        if at < since:
            break
        count += 1
    return count, latest


def _cooling_down(connection: sqlite3.Connection, now: float) -> int:
    row = connection.execute(
        "SELECT count(*) FROM (SELECT ended_at, compression FROM sessions"
        " ORDER BY serial DESC LIMIT ?) WHERE ended_at IS NULL"
        " AND json_extract(compression, '$.cooldown_until') > ?",
        (MOST_SESSIONS, now),
    ).fetchone()
    return int(row[0])
