"""Owns retention over the real store and the real folder: what goes, what a file needs to stay."""

from __future__ import annotations

from pathlib import Path

from agent.attachments import StoredFile, picture_part
from agent.ledger import LedgerScope
from agent.llm.background import in_daemon_thread
from agent.messages import Draft
from agent.ports import Usage
from agent.sessions import SearchScope, TurnOpening, session_key
from gateway.forgetting.retention import clear
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import OWNER, PREFIX
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

DAY = 86_400.0


async def talk(store: SqlStore, chat: str, text: str, *files: StoredFile) -> str:
    """A finished turn in a chat of its own; gives the conversation."""
    parts = [picture_part(file.name, file.size_bytes) for file in files]
    said = Draft({"role": "user", "content": [{"type": "text", "text": text}, *parts]})
    key = session_key("telegram", "7", chat, None, chat)
    ticket = await store.begin_turn(TurnOpening(key, OWNER, (), said, PREFIX))
    await store.append(
        ticket,
        ticket.session_id,
        (Draft({"role": "assistant", "content": f"re {text}"}),),
        anchor_usage=Usage(100, 10, model="m"),
    )
    await store.finish_turn(ticket, ticket.session_id, "done")
    return ticket.conversation_id


async def test_a_year_of_conversations(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    files = FolderAttachments(tmp_path / "attachments", store, clock, in_daemon_thread)

    async def keep(data: bytes) -> StoredFile:
        return await files.keep(data, owner=OWNER, file_name="a.png", media_type="image/png")

    both, old_only, never = [await keep(name) for name in (b"both", b"old", b"never named")]
    old = [await talk(store, str(n), f"zebra {n}", both, old_only) for n in range(12)]
    scope = LedgerScope(owner=OWNER)
    bills = await store.ledger_lines(scope)
    clock.jump(200 * DAY)
    still = await talk(store, "still", "lion", both)
    clock.jump(200 * DAY)
    fresh = await keep(b"fresh, and not named yet")
    await talk(store, "new", "the newest")
    said = await clear(store, _Quick(clock), clock.now() - 365 * DAY, files)
    assert said.startswith("12 conversations, 24 messages")
    assert said.endswith("2 files")
    assert [await store.conversation(one) for one in old] == [None] * 12
    assert await store.conversation(still) is not None
    left = {path.name for path in (tmp_path / "attachments").iterdir()}
    assert left == {both.name, fresh.name}
    assert await store.file_row(old_only.name) is None
    assert await store.file_row(never.name) is None
    lines = await store.ledger_lines(scope)
    assert sum(line.input_tokens for line in lines) == 14 * 100
    assert sum(line.input_tokens for line in bills) == 12 * 100
    assert await store.search("zebra", SearchScope()) == []
    assert len(await store.search("lion", SearchScope())) == 2
    assert await talk(store, "3", "here again") not in old
    await store.close()
    check_invariants(tmp_path / "state.db")


async def test_the_checks_of_foreign_keys_are_on_again(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    await talk(store, "1", "zebra")
    await talk(store, "2", "lion")
    clock.jump(10 * DAY)
    await talk(store, "3", "the newest")
    assert (await store.clear_silent(clock.now() - DAY)).conversations == 2
    outside = store._writing.outside  # the connection itself, to ask it

    def asked(connection: object) -> object:
        return connection.execute("PRAGMA foreign_keys").fetchone()  # type: ignore[attr-defined]

    assert await outside(asked) == (1,)
    await store.close()


class _Quick(FakeClock):
    """The same time, and pauses that take none."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock.now())

    async def sleep(self, seconds: float) -> None:
        return
