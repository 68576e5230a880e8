"""Owns the tests of /forget me, of the operator's way to it, and of retention, over fakes."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC
from pathlib import Path

import pytest

from agent.forgetting import Answer, Holdings, PluginAnswer
from agent.jobs.nouns import Schedule
from agent.mail import Address
from agent.tools.paths import folder_name
from agent.tools.workspace import Workspaces
from gateway.backups.shelf import Backup
from gateway.config.models import Config
from gateway.forgetting import words
from gateway.forgetting.desk import (
    AGAIN_SECONDS,
    CODE_SECONDS,
    PLUGIN_TRIES,
    Cache,
    ForgettingDesk,
)
from gateway.forgetting.leavings import Leavings
from gateway.forgetting.office import ForgettingOffice
from gateway.forgetting.retention import retention
from storage.memory import MemoryStore
from tests.contract.store_suite import KEY, OWNER, begin, inbound, said, talk
from tests.fakes.clock import FakeClock, SequentialIds

OTHER = "telegram:333"
DAY = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock, SequentialIds())


def desk_of(store: MemoryStore, clock: FakeClock, **parts: object) -> ForgettingDesk:
    leavings = Leavings(backups=list, plugin_files=list)
    return ForgettingDesk(store, leavings, clock, lambda: UTC, **parts)  # type: ignore[arg-type]


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_nothing_goes_before_it_is_confirmed(store: MemoryStore, clock: FakeClock) -> None:
    loaded = await talk(store, said("zebra"))
    desk = desk_of(store, clock)
    text, code = await desk.ask(OWNER)
    assert code is not None
    assert f"/forget me yes-{code}" in text
    assert "2 messages" in text
    assert await store.all_rows(loaded.session.id) == list(loaded.rows)
    assert not await desk.confirm(OWNER, "wrong")
    assert not await desk.confirm(OTHER, code)
    clock.jump(CODE_SECONDS + 1)
    assert not await desk.confirm(OWNER, code)
    assert await store.all_rows(loaded.session.id) == list(loaded.rows)


async def test_a_code_counts_once(store: MemoryStore, clock: FakeClock) -> None:
    await talk(store, said("zebra"))
    desk = desk_of(store, clock)
    _, code = await desk.ask(OWNER)
    assert code is not None
    assert await desk.confirm(OWNER, code.upper())
    assert await desk.idle(5)
    assert not await desk.confirm(OWNER, code)
    assert (await desk.ask(OWNER)) == (words.NOTHING, None)


async def test_backups_and_what_plugins_keep_are_named(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("zebra"))
    backups = [Backup(Path("/srv/backups/2026-01-02"), 1_767_312_000.0, 5)]
    leavings = Leavings(lambda: backups, lambda: ["hermes/mem0.db"])
    desk = ForgettingDesk(store, leavings, clock, lambda: UTC)
    text, _ = await desk.ask(OWNER)
    assert "2026-01-02 (2026-01-02 00:00)" in text
    assert "/srv" not in text
    assert "hermes/mem0.db" in text


async def test_backups_are_looked_for_beside_the_loop(store: MemoryStore, clock: FakeClock) -> None:
    """One of them may lie on a disk that hangs."""
    await talk(store, said("zebra"))
    threads: list[threading.Thread] = []

    def backups() -> list[Backup]:
        threads.append(threading.current_thread())
        return []

    desk = ForgettingDesk(store, Leavings(backups, list), clock, lambda: UTC)
    await desk.ask(OWNER)
    await desk.forget(OWNER)
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_what_remembers_words_is_told(store: MemoryStore, clock: FakeClock) -> None:
    loaded = await talk(store, said("zebra"))
    told: list[Holdings] = []
    caches = (Cache(lambda erased, names: told.append(erased)),)
    await desk_of(store, clock, caches=caches).forget(OWNER)
    assert [held.conversation_ids for held in told] == [(loaded.session.conversation_id,)]


async def test_the_operator_asks_first_and_erases_then(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("zebra"))
    office = ForgettingOffice(desk_of(store, clock))
    numbers = {
        "messages": 2, "conversations": 1, "shared": 0, "notes": 0, "files": 0, "jobs": 0,
        "mail": 0,
    }  # fmt: skip
    assert await office.answer({"action": "survey", "owner": OWNER}) == {"held": numbers}
    assert await office.answer({"action": "erase", "owner": OWNER}) == {"erased": numbers}
    assert (await store.holdings(OWNER)).nothing
    for wrong in ({"action": "erase"}, {"action": "erase", "owner": "me"}, {}):
        assert "error" in await office.answer(wrong)


async def test_a_long_erasure_goes_on_behind_the_answer(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("zebra"))
    gate, began = asyncio.Event(), asyncio.Event()

    async def rewrite() -> bool:
        began.set()
        await gate.wait()
        return True

    desk = ForgettingDesk(store, Leavings(list, list, rewrite=rewrite), clock, lambda: UTC)
    office = ForgettingOffice(desk, patience_seconds=0.0)
    assert await office.answer({"action": "erase", "owner": OWNER}) == {"going_on": True}
    await began.wait()
    assert (await store.holdings(OWNER)).nothing
    assert len(await store.forgetting()) == 1
    gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert await store.forgetting() == []


async def test_what_can_not_be_deleted_keeps_nobody_from_starting(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("zebra"))
    await store.begin_forgetting(OWNER)
    failures = [OSError("read-only"), OSError("read-only")]

    async def clear_workspace(place: str) -> None:
        if failures:
            raise failures.pop()

    leavings = Leavings(list, list, clear_workspace=clear_workspace)
    desk = ForgettingDesk(store, leavings, clock, lambda: UTC)
    assert await desk.resume() == 1
    assert (await store.holdings(OWNER)).nothing
    for _ in range(9):
        await asyncio.sleep(0)
    assert len(await store.forgetting()) == 1
    await clock.advance(AGAIN_SECONDS)
    assert await desk.idle(5)
    assert await store.forgetting() == []


class Plugins:
    """As `gateway.forgetting.leavings.Others`; says what it is told to, the last for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.told: list[dict[str, object]] = []

    def can(self) -> list[str]:
        return ["lossless"]

    async def forget(self, owner: str, **given: object) -> list[PluginAnswer]:
        self.told.append({"owner": owner, **given})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [PluginAnswer("lossless", answer)]

    async def forget_sessions(self, conversations: object) -> list[PluginAnswer]:
        raise AssertionError("nothing was old")


@pytest.mark.parametrize("fails", [0, 1, PLUGIN_TRIES - 1, PLUGIN_TRIES])
async def test_a_plugin_that_could_not_now_is_asked_again_and_not_for_ever(
    store: MemoryStore, clock: FakeClock, fails: int
) -> None:
    loaded = await talk(store, said("zebra"))
    plugins = Plugins(*[Answer.FAILED] * fails, Answer.ERASED)
    at = Address("fake", "900", "111")
    files = lambda: ["hermes/lossless.db-wal", "hermes/lossless2.db", "hermes/mem0"]  # noqa: E731
    desk = ForgettingDesk(store, Leavings(list, files, plugins=plugins), clock, lambda: UTC)
    text, code = await desk.ask(OWNER)
    assert code is not None
    assert "what lossless keeps of these conversations" in text
    assert "lossless2.db, hermes/mem0" in text
    assert "lossless.db" not in text
    receipt = await store.accept(inbound(50, text="/forget me", kind="command"))
    assert await desk.confirm(OWNER, code, inbox_id=receipt.inbox_id, to=at)
    for _ in range(PLUGIN_TRIES - 1):
        await settled()
        await clock.advance(AGAIN_SECONDS)
    assert await desk.idle(5)
    given = {
        "owner": OWNER,
        "keys": (KEY,),
        "conversations": (loaded.session.conversation_id,),
        "sessions": (loaded.session.id,),
    }
    assert plugins.told == [given] * min(fails + 1, PLUGIN_TRIES)
    (owed,) = await store.owed()
    assert ("lossless has erased what it kept, too." in owed.draft.text) == (fails < PLUGIN_TRIES)
    assert ("lossless could not erase" in owed.draft.text) == (fails == PLUGIN_TRIES)
    assert ("lossless.db-wal" in owed.draft.text) == (fails == PLUGIN_TRIES)


async def test_plugins_are_asked_after_a_start_and_hold_it_up_not_at_all(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("zebra"))
    await store.begin_forgetting(OWNER)
    plugins = Plugins(Answer.ERASED)
    desk = ForgettingDesk(store, Leavings(list, list, plugins=plugins), clock, lambda: UTC)
    assert await desk.resume() == 1
    assert (await store.holdings(OWNER)).nothing
    assert plugins.told == []
    assert await desk.idle(5)
    assert len(plugins.told) == 1
    assert await store.forgetting() == []


async def test_the_operator_hears_what_plugins_say(store: MemoryStore, clock: FakeClock) -> None:
    await talk(store, said("zebra"))
    leavings = Leavings(list, list, plugins=Plugins(Answer.KEEPS))
    office = ForgettingOffice(ForgettingDesk(store, leavings, clock, lambda: UTC))
    answer = await office.answer({"action": "erase", "owner": OWNER})
    assert answer["plugins"] == {"lossless": "keeps"}


async def test_a_file_that_could_not_be_written_anew_is_said() -> None:
    text = words.done(Holdings(messages=3, conversations=1), (), (), UTC, rewritten=False)
    assert "3 messages" in text
    assert "traces" in text
    assert "traces" not in words.done(Holdings(), (), (), UTC, rewritten=True)


async def test_a_workspace_goes_and_the_others_stay(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path / "workspace")
    for owner in (OWNER, OTHER):
        folder = tmp_path / "workspace" / folder_name(owner)
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("words")
    await spaces.clear(OWNER)
    await spaces.clear(OWNER)
    await spaces.clear("telegram:nobody")
    left = [path.name for path in (tmp_path / "workspace").iterdir()]
    assert left == [folder_name(OTHER)]


async def test_a_link_in_the_place_of_a_workspace_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("stays")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / folder_name(OWNER)).symlink_to(elsewhere)
    await Workspaces(tmp_path / "workspace").clear(OWNER)
    assert (elsewhere / "mine").read_text() == "stays"
    assert not any((tmp_path / "workspace").iterdir())


async def test_retention_takes_what_was_silent_for_so_long(
    store: MemoryStore, clock: FakeClock
) -> None:
    await talk(store, said("old"))
    clock.jump(40 * DAY)
    ticket = await begin(store, "news", session_key="other", owner=OTHER)
    await store.finish_turn(ticket, ticket.session_id, "done")
    make = retention(store, clock, Leavings(backups=list, plugin_files=list))
    assert make(Config(), "UTC") is None
    config = Config.model_validate({"sessions": {"retention_days": 30}})
    job = make(config, "Europe/Berlin")
    assert job is not None
    assert job.schedule == Schedule("cron", "40 3 * * *", "Europe/Berlin")
    assert await job.run() == "1 conversation, 2 messages (8 bytes of text), 0 files"
    assert await job.run() == "0 conversations, 0 messages (0 bytes of text), 0 files"
