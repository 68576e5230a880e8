"""Owns the benches of search: how often it is right, how long it takes, and its index stage.

The twin of the index stage asks the same index for the same word with bare SQL: match, bm25, the
best sixty, the text of the first ten.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.clock import RandomIds, SystemClock
from agent.messages import Draft, Message
from agent.sessions import SearchScope, SessionPrefix, TurnOpening, session_key
from storage.search.lookup import find_candidates, read_candidates, search
from storage.search.question import read_question
from storage.search.reach import reach_of
from storage.search.snippet import snippet
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.bench.measure import Result, percentile
from tests.bench.store import messages as mixed_messages
from tests.fakes.question_words import LANGUAGES
from tests.fakes.questions import KINDS, Asked, conversation, shares

ROUNDS = 15
SMALL, LARGE = 3_800, 200_000
FACTS = 240
P50_SMALL_MS, P50_LARGE_MS = 12.0, 70.0


async def _fill(store: SqlStore, name: str, messages: list[Message]) -> tuple[str, list[int]]:
    """One conversation with these; its id and the rows'."""
    key = session_key("bench", "1", name, None, "1")
    said = Draft({"role": "user", "content": "go"})
    opening = TurnOpening(key, "bench:1", (), said, SessionPrefix("bench", "m", "s"))
    ticket = await store.begin_turn(opening)
    ids: list[int] = []
    for start in range(0, len(messages), 500):
        drafts = [Draft(m) for m in messages[start : start + 500]]
        ids += [r.id for r in (await store.append(ticket, ticket.session_id, drafts)).rows]
    await store.finish_turn(ticket, ticket.session_id, "done")
    return ticket.conversation_id, ids


async def _made(path: Path, asked: Asked, others: int) -> tuple[str, list[int]]:
    """A database with this conversation among so many other messages of the same person."""
    store = await open_store(path, clock=SystemClock(), ids=RandomIds())
    try:
        for number, start in enumerate(range(0, others, 5_000)):
            await _fill(
                store, f"other {number}", mixed_messages(min(5_000, others - start), number)
            )
        return await _fill(store, "asked", asked.messages)
    finally:
        await store.close()


def _ask(db: sqlite3.Connection, asked: Asked, scope: SearchScope, ids: list[int]) -> list[float]:
    """Print how often each kind is right; gives back the times in milliseconds."""
    ranks: dict[str, list[int | None]] = {kind: [] for kind in KINDS}
    times = []
    for question in asked.questions:
        begin = time.perf_counter()
        hits = [hit.message_id for hit in search(db, question.text, scope, 10)]
        times.append((time.perf_counter() - begin) * 1000)
        right = ids[question.right]
        ranks[question.kind].append(hits.index(right) if right in hits else None)
    for kind, found in [*ranks.items(), ("all", [r for of in ranks.values() for r in of])]:
        if found:
            first, three, ten = shares(found)
            print(f"    {kind:<9} {first:.2f} / {three:.2f} / {ten:.2f}", file=sys.stderr)
    return times


def _quality(folder: Path, language: str) -> Result:
    asked = conversation(language, messages=SMALL, facts=FACTS)
    path = folder / f"{language}.db"
    conversation_id, ids = asyncio.run(_made(path, asked, 0))
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    print(f"  {language}: first / first three / first ten", file=sys.stderr)
    times = _ask(db, asked, SearchScope(conversation_id=conversation_id), ids)
    db.close()
    return _times(f"recall {language}, {SMALL} messages", times, P50_SMALL_MS)


def _times(name: str, times: list[float], budget_ms: float) -> Result:
    note = f"p99 {percentile(times, 99):.1f} ms"
    middle = percentile(times, 50)
    return Result(name, "ms", [middle], [budget_ms], at_most=1.0, note=note)


# --- the index stage ----------------------------------------------------------------------------


def _stage(db: sqlite3.Connection, word: str) -> None:
    question = read_question(word)
    reach = reach_of(db, SearchScope())
    found, _ = find_candidates(db, question, reach)
    best = sorted(found, key=found.__getitem__, reverse=True)[:10]
    for candidate in read_candidates(db, {i: found[i] for i in best}, reach):
        snippet(candidate.text, [t.needle for t in question.terms])


def _twin(db: sqlite3.Connection, word: str) -> None:
    query = "SELECT rowid FROM message_index WHERE message_index MATCH ? ORDER BY rank LIMIT 60"
    for (row_id,) in db.execute(query, (f'"{word}"',)).fetchall()[:10]:
        (text,) = db.execute("SELECT content FROM messages WHERE id = ?", (row_id,)).fetchone()
        at = max(0, text.find(word) - 50)
        text[at : at + 200]


def _ms(
    work: Callable[[sqlite3.Connection, str], None], db: sqlite3.Connection, word: str
) -> float:
    begin = time.perf_counter()
    work(db, word)
    return (time.perf_counter() - begin) * 1000


def _compare(db: sqlite3.Connection, name: str, word: str, budget: float) -> Result:
    _stage(db, word)
    _twin(db, word)
    ours, limit = [], []
    for _ in range(ROUNDS):
        ours.append(_ms(_stage, db, word))
        limit.append(_ms(_twin, db, word))
    return Result(name, "ms", ours, limit, at_most=budget)


def _large(folder: Path) -> list[Result]:
    asked = conversation("en", messages=SMALL, facts=FACTS)
    path = folder / "large.db"
    conversation_id, ids = asyncio.run(_made(path, asked, LARGE - SMALL))
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    print(f"  {LARGE} messages: first / first three / first ten", file=sys.stderr)
    own = _ask(db, asked, SearchScope(conversation_id=conversation_id), ids)
    everything = _ask(db, asked, SearchScope(owner="bench:1"), ids)
    results = [
        _times(f"recall in one of {LARGE}", own, P50_LARGE_MS),
        _times(f"recall in all {LARGE}", everything, P50_LARGE_MS),
        _compare(db, "3g index stage, CJK 2 chars", "压缩", 11.0),
        _compare(db, "3g index stage, EN rare", "observatory", 11.0),
        _compare(db, "3h index stage, EN common", "schedule", 1.25),
    ]
    db.close()
    return results


def run() -> list[Result]:
    """Quality and time at 4,000 messages in three languages; time and index stage at 200,000."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:
        folder = Path(name)
        return [*(_quality(folder, language) for language in LANGUAGES), *_large(folder)]
