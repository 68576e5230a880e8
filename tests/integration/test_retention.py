"""Owns retention over the real store and the real folder: what goes, what a file needs to stay."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.attachments import StoredFile, picture_part
from agent.forgetting import Answer, ClearedConversation, PluginAnswer
from agent.ledger import LedgerScope
from agent.llm.background import in_daemon_thread
from agent.messages import Draft
from agent.ports import Usage
from agent.sessions import SearchScope, TurnOpening, session_key
from gateway.forgetting import retention
from gateway.forgetting.leavings import Leavings
from gateway.forgetting.retention import TOLD_AT_ONCE, clear, tell_plugins
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
    leavings = Leavings(backups=list, plugin_files=list, files=files)
    said = await clear(store, _Quick(clock), clock.now() - 365 * DAY, leavings)
    assert said.startswith("12 conversations, 24 messages")
    assert said.endswith("2 files")
    assert await store.cleared() == []
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


class Others:
    """Plugins that answer as a test says, one answer each call; then they have erased it."""

    def __init__(self, *says: Answer) -> None:
        self.says = list(says)
        self.told: list[ClearedConversation] = []

    def can(self) -> Sequence[str]:
        return []

    async def forget(self, owner: str, **asked: object) -> Sequence[PluginAnswer]:
        raise AssertionError("nobody asked")

    async def forget_sessions(
        self, conversations: Sequence[ClearedConversation]
    ) -> Sequence[PluginAnswer]:
        assert len(conversations) <= TOLD_AT_ONCE
        self.told += conversations
        answer = self.says.pop(0) if self.says else Answer.ERASED
        return [PluginAnswer("vault", answer), PluginAnswer("memory", Answer.ERASED)]


async def old_conversations(store: SqlStore, clock: FakeClock, count: int) -> None:
    for n in range(count):
        await talk(store, str(n), f"zebra {n}")
    clock.jump(400 * DAY)
    await talk(store, "new", "the newest")


@pytest.mark.parametrize(
    ("answer", "said", "left"),
    [
        (Answer.ERASED, "vault has erased what it kept of them", 0),
        (Answer.KEEPS, "vault can not erase what it keeps of them", 0),
        (Answer.FAILED, "vault could not erase what it keeps of them now, and is asked again", 2),
    ],
)
async def test_plugins_are_asked_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Answer, said: str, left: int
) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    await old_conversations(store, clock, 2)
    others = Others(answer)
    leavings = Leavings(backups=list, plugin_files=list, plugins=others)
    with caplog.at_level(logging.WARNING):
        outcome = await clear(store, _Quick(clock), clock.now() - 365 * DAY, leavings)
    assert said in outcome
    assert "memory has erased" in outcome
    assert ("keeps what retention" in caplog.text) == (answer is Answer.KEEPS)
    assert ("is asked again" in caplog.text) == (answer is Answer.FAILED)
    assert len(others.told) == 2
    assert len(await store.cleared()) == left
    await clear(store, _Quick(clock), clock.now() - 365 * DAY, leavings)  # the next night
    assert len(others.told) == 2 + left
    assert await store.cleared() == []
    await store.close()


async def test_many_are_told_in_several_calls_and_the_worst_answer_counts(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    await old_conversations(store, clock, 3)
    while (await store.clear_silent(clock.now() - 365 * DAY)).more:
        pass
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "TOLD_AT_ONCE", 2)
        others = Others(Answer.KEEPS)
        answers = await tell_plugins(store, others)
    assert answers == [
        PluginAnswer("vault", Answer.KEEPS), PluginAnswer("memory", Answer.ERASED)
    ]  # fmt: skip
    assert len({one.id for one in others.told}) == len(others.told) == 3
    assert await store.cleared() == []
    await store.close()


class _Quick(FakeClock):
    """The same time, and pauses that take none."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock.now())

    async def sleep(self, seconds: float) -> None:
        return
