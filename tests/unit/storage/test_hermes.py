"""Reading another program's database: lineages, copies, odd rows; nothing is written there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ImportRefused
from agent.sessions import SearchScope
from storage.files import read_portables
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

_SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, user_id TEXT, chat_id TEXT, thread_id TEXT,
  model TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL, ended_at REAL,
  end_reason TEXT, title TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT,
  content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL,
  active INTEGER DEFAULT 1, compacted INTEGER DEFAULT 0);
"""


class Database:
    """A `state.db` as that program leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path)
        self._db.executescript(_SCHEMA)

    def session(self, session_id: str, **values: Any) -> None:
        self._insert("sessions", {"id": session_id, "source": "telegram", "user_id": "7",
                                  "started_at": 100.0, **values})  # fmt: skip

    def message(self, session_id: str, role: str, content: Any, **values: Any) -> None:
        self._insert("messages", {"session_id": session_id, "role": role, "content": content,
                                  "timestamp": 100.0, **values})  # fmt: skip

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        self._db.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def done(self) -> Path:
        self._db.commit()
        self._db.close()
        return self.path


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(tmp_path / "own.db", clock=FakeClock(), ids=SequentialIds())
    yield opened
    await opened.close()


@pytest.fixture
def state(tmp_path: Path) -> Database:
    return Database(tmp_path / "state.db")


def _call(call_id: str) -> str:
    return json.dumps([{"id": call_id, "function": {"name": "terminal", "arguments": "{}"}}])


async def test_a_lineage_becomes_one_conversation_and_copies_are_folded(
    state: Database, store: SqlStore, tmp_path: Path
) -> None:
    state.session("20260101_000000_aa", ended_at=200.0, end_reason="compression", title="trip")
    state.session("20260101_000000_bb", parent_session_id="20260101_000000_aa", started_at=200.0)
    for session in ("20260101_000000_aa", "20260101_000000_bb"):
        if session.endswith("bb"):
            state.message(session, "user", "[CONTEXT COMPACTION — REFERENCE ONLY] went well")
        else:
            state.message(session, "user", "find the walrus")
        state.message(session, "assistant", "", tool_calls=_call("c1"))
        text = "a walrus" * 50 if session.endswith("aa") else "[terminal] shortened"
        state.message(session, "tool", text, tool_call_id="c1", tool_name="terminal")
        state.message(session, "assistant", "There it is.")
    state.message("20260101_000000_bb", "user", "thanks")

    (portable,) = read_portables(state.done())
    first, second = portable.sessions
    assert portable.owner == "telegram:7"
    assert [(m.kind, m.origin) for m in second.messages] == [
        ("summary", None), (None, 2), ("stub", 3), (None, 4), (None, None),
    ]  # fmt: skip
    assert (first.end_reason, second.ended_at) == ("compression", None)

    (taken,) = await store.take_in([portable])
    hits = await store.search("walrus", SearchScope(conversation_id=taken.conversation_id))
    assert sorted(hit.role for hit in hits) == ["tool", "user"]
    with pytest.raises(ImportRefused, match="here already"):
        await store.take_in(read_portables(state.path))
    await store.close()
    check_invariants(tmp_path / "own.db")


async def test_odd_rows_are_taken_as_far_as_they_make_sense(
    state: Database, store: SqlStore, tmp_path: Path
) -> None:
    state.session("s", user_id=None, source="cli", started_at="yesterday", end_reason="agent_close",
                  ended_at=5.0)  # fmt: skip
    state.message("s", "session_meta", "{}")
    state.message("s", "user", '\x00json:[{"type":"text","text":"hi"}]', timestamp=None)
    state.message("s", "user", "\x01json:{broken")
    state.message("s", "assistant", None, tool_calls="[{]")
    state.message("s", "assistant", "x", tool_calls=json.dumps(
        [{"function": {"name": "f", "arguments": {"a": 1}}}, {"function": 7}, None]))  # fmt: skip
    state.message("s", "tool", b"\xff\xfe", tool_call_id=None)
    state.message("s", "user", "undone", active=0, compacted=0)
    state.message("s", "user", "archived", active=0, compacted=1)

    (portable,) = read_portables(state.done())
    messages = portable.sessions[0].messages
    assert portable.owner == "console:local"
    assert messages[0].content == [{"type": "text", "text": "hi"}]
    assert messages[1].content == "{broken"
    assert messages[2].tool_calls == ()
    (call,) = messages[3].tool_calls
    assert call["function"]["arguments"] == '{"a": 1}'
    assert portable.sessions[0].ended_at is None

    (taken,) = await store.take_in([portable])
    loaded = await store.load(taken.tip_session_id)  # repaired: the result without its call goes
    assert "undone" not in [row.message["content"] for row in loaded.rows]
    found = await store.search("archived", SearchScope())
    assert [hit.snippet for hit in found] == ["archived"]
    assert await store.search("undone", SearchScope()) == []
    await store.close()
    check_invariants(tmp_path / "own.db")


def test_circles_and_siblings_lose_nothing(state: Database) -> None:
    state.session("a", parent_session_id="c", end_reason="compression")
    state.session("b", parent_session_id="a", end_reason="compression")
    state.session("c", parent_session_id="b", end_reason="compression")
    state.session("p", end_reason="compression", ended_at=5.0)
    state.session("q1", parent_session_id="p", ended_at=6.0, end_reason="idle")
    state.session("q2", parent_session_id="p")
    state.session("empty")
    for session in ("a", "b", "c", "p", "q1", "q2"):
        state.message(session, "user", f"said in {session}")

    found = read_portables(state.done())

    said = [str(m.content) for p in found for s in p.sessions for m in s.messages]
    assert sorted(said) == [f"said in {s}" for s in ("a", "b", "c", "p", "q1", "q2")]
    assert sorted(len(p.sessions) for p in found) == [1, 2, 3]
    assert len({p.conversation_id for p in found}) == len(found)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sessions (id TEXT)")
    with pytest.raises(ImportRefused, match=r"no state\.db of Hermes Agent"):
        read_portables(path)


async def test_a_database_of_our_own_is_refused_with_the_way_to_go(tmp_path: Path) -> None:
    """It was taken in: every conversation twice, as somebody else's."""
    path = tmp_path / "state.db"
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    await talk(store, said("swordfish"))
    with pytest.raises(ImportRefused, match=r"posthouse restore.*sessions export"):
        read_portables(path)
    await store.close()
    with pytest.raises(ImportRefused, match="posthouse's own"):
        read_portables(path)


def test_a_damaged_database_is_refused(state: Database) -> None:
    state.session("s")
    for _ in range(200):
        state.message("s", "user", "x" * 400)
    path = state.done()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\x5a" * (len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(ImportRefused, match="can not be read"):
        read_portables(path)


def test_reading_leaves_nothing_beside_the_file(state: Database) -> None:
    state.session("s")
    state.message("s", "user", "hello")
    path = state.done()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert len(read_portables(path)) == 1
    assert list(path.parent.iterdir()) == [path]


def test_what_is_only_in_the_log_is_read_too(state: Database) -> None:
    state.session("s")
    path = state.done()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', 'late')")
        db.commit()
        (portable,) = read_portables(path)
    assert [m.content for m in portable.sessions[0].messages] == ["late"]


def test_copies_among_many_messages_are_found_in_one_pass(state: Database) -> None:
    """Each new message was once compared with every older one: minutes for some thousands."""
    state.session("a", end_reason="compression", ended_at=2.0)
    state.session("b", parent_session_id="a")
    for session, first in (("a", 0), ("b", 2_990)):
        for number in range(first, first + 3_000):
            state.message(session, "user", f"number {number}")
    (portable,) = read_portables(state.done())
    copies = [m.origin for m in portable.sessions[1].messages if m.origin is not None]
    assert copies == list(range(2_991, 3_001))
