"""Owns the proof that a person who is forgotten leaves no byte, also over a kill -9 at any step."""

# ruff: noqa: ASYNC221 - the child is what is tested; nothing else runs meanwhile

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from agent.clock import RandomIds, SystemClock
from agent.forgetting import Answer, Holdings, PluginAnswer
from agent.llm.validator import validate
from agent.llm.wire import map_messages
from agent.sessions import SearchScope
from gateway.config.environment import Secrets
from gateway.config.models import Config, Context
from gateway.forgetting.desk import Cache, ForgettingDesk
from gateway.plugins.forgetting import PluginForgetting
from gateway.wiring.forgetting import answer_forgetting, leavings_of
from gateway.wiring.plugins import load_plugins
from gateway.wiring.surroundings import Surroundings
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import KEY, OWNER, begin
from tests.fakes.planted import (
    GROUP,
    WORD,
    files_of,
    home_of,
    of_others,
    opened,
    plant,
    plant_vault,
    traces,
    vault_of_others,
)
from tests.fakes.store_invariants import check_invariants

ROOT = Path(__file__).parents[2]
STEPS = ("lanes", "rows", "cache", "plugins", "files", "workspace", "rewrite", "finished")
"""Where the child is killed: right behind each of them."""
LOSSLESS = Config(context=Context(engine="lossless"))


@asynccontextmanager
async def desk_over(home: Path) -> AsyncIterator[tuple[ForgettingDesk, SqlStore]]:
    store = await open_store(home / "state.db", clock=SystemClock(), ids=RandomIds())
    leavings = replace(
        leavings_of(home_of(home), store, files_of(home, store)),
        plugins=await plugins_of(home, store),
    )
    desk = ForgettingDesk(store, leavings, SystemClock(), lambda: UTC)
    try:
        yield desk, store
    finally:
        await desk.close()
        await store.close()


async def plugins_of(home: Path, store: SqlStore) -> PluginForgetting:
    """As the daemon has them, with the engine that we ship."""
    around = Surroundings(home_of(home), Secrets(), {})
    plugins = await load_plugins(LOSSLESS, around, SystemClock(), store)
    return PluginForgetting(plugins.engines, plugins.providers, str(home / "hermes"))


async def prepare(home: Path) -> None:
    store = await opened(home)
    await plant(home, store)
    await plant_vault(home, store)
    await store.close()


async def test_not_a_byte_is_left_and_nobody_else_loses_one(tmp_path: Path) -> None:
    await prepare(tmp_path)
    others, vault = of_others(tmp_path), vault_of_others(tmp_path)
    (tmp_path / "windows.json").write_text("{}")
    assert len(traces(tmp_path)) >= 4  # the search finds what is there
    assert str(tmp_path / "hermes" / "lossless.db") in traces(tmp_path)
    async with desk_over(tmp_path) as (desk, store):
        text, code = await desk.ask(OWNER)
        assert code is not None
        assert WORD not in text
        assert "lossless keeps" in text
        assert await desk.confirm(OWNER, code)
        assert await desk.idle(20)
        # While it runs: in the log and in the shared memory too.
        assert traces(tmp_path) == []
        while await store.maintain():
            pass
        assert traces(tmp_path) == []
        assert await store.search(WORD, SearchScope()) == []
        assert await store.search("lion roar", SearchScope())
        await check_group(store)
        ticket = await begin(store, "hello again")
        assert (await store.load(ticket.session_id)).rows[0].message["content"] == "hello again"
    assert traces(tmp_path) == []
    assert of_others(tmp_path) == others
    assert vault_of_others(tmp_path) == vault
    check_invariants(tmp_path / "state.db")


async def test_without_a_daemon_the_operator_erases_as_much(tmp_path: Path) -> None:
    await prepare(tmp_path)
    vault = vault_of_others(tmp_path)
    around = Surroundings(home_of(tmp_path), Secrets(), {})
    request = {"action": "erase", "owner": OWNER}
    answer = await answer_forgetting(LOSSLESS, around, request)
    assert answer["plugins"] == {"lossless": "erased"}
    assert traces(tmp_path) == []
    assert vault_of_others(tmp_path) == vault


async def check_group(store: SqlStore) -> None:
    """The next request of the conversation that goes on is one that a provider takes."""
    found = await store.conversation_for_key(GROUP)
    assert found is not None
    rows = [row.message for row in await store.active_rows(found.tip_session_id)]
    assert [message["content"] for message in rows][-2:] == ["lion again", "roar again"]
    assert not validate({"messages": map_messages([*rows, {"role": "user", "content": "on"}])})


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_behind_any_step_is_made_good_at_the_next_start(
    step: str, tmp_path: Path
) -> None:
    await prepare(tmp_path)
    others, vault = of_others(tmp_path), vault_of_others(tmp_path)
    child = [sys.executable, "-m", "tests.integration.test_forgetting", step, str(tmp_path)]
    done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    async with desk_over(tmp_path) as (desk, store):
        assert await desk.resume() == (0 if step == "finished" else 1)
        assert await desk.idle(20)
        assert await store.forgetting() == []
        assert await store.conversation_for_key(KEY) is None
    assert traces(tmp_path) == []
    assert of_others(tmp_path) == others
    assert vault_of_others(tmp_path) == vault
    check_invariants(tmp_path / "state.db")


async def test_of_a_person_who_was_never_here_nothing_goes(tmp_path: Path) -> None:
    await prepare(tmp_path)
    before = traces(tmp_path)
    async with desk_over(tmp_path) as (desk, _):
        assert (await desk.forget("telegram:999")).erased == Holdings()
    assert traces(tmp_path) == before


async def killed_behind(step: str, home: Path) -> None:
    """The child: forgets the person, and dies."""
    store = await opened(home)
    whole = leavings_of(home_of(home), store, files_of(home, store))
    files, clear, rewrite = whole.files, whole.clear_workspace, whole.rewrite
    assert files is not None
    assert clear is not None
    assert rewrite is not None

    def die(here: str) -> None:
        if here == step:
            os.kill(os.getpid(), signal.SIGKILL)

    class DyingFiles:
        async def remove(self, names: object) -> int:
            removed = await files.remove(names)  # type: ignore[arg-type]
            die("files")
            return removed

    class DyingOthers:
        def __init__(self, others: PluginForgetting) -> None:
            self.can = others.can
            self._forget = others.forget

        async def forget(self, owner: str, **given: Any) -> list[PluginAnswer]:
            answers = await self._forget(owner, **given)
            assert [each.answer for each in answers] == [Answer.ERASED]
            die("plugins")
            return answers

    async def clear_workspace(place: str) -> None:
        await clear(place)
        die("workspace")

    async def rewrite_file() -> bool:
        done = await rewrite()
        die("rewrite")
        return done

    class DyingStore:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def begin_forgetting(self, *given: object, **named: object) -> object:
            request = await store.begin_forgetting(*given, **named)  # type: ignore[arg-type]
            die("lanes")
            return request

        async def erase(self, owner: str) -> object:
            request = await store.erase(owner)
            die("rows")
            return request

        async def finish_forgetting(self, *given: object) -> object:
            owed = await store.finish_forgetting(*given)  # type: ignore[arg-type]
            die("finished")
            return owed

    leavings = replace(
        whole,
        plugins=DyingOthers(await plugins_of(home, store)),
        files=DyingFiles(),
        clear_workspace=clear_workspace,
        rewrite=rewrite_file,
    )
    cache = Cache(lambda erased, names: die("cache"))
    desk = ForgettingDesk(
        DyingStore(),
        leavings,
        SystemClock(),
        lambda: UTC,
        caches=(cache,),  # type: ignore[arg-type]
    )
    await desk.forget(OWNER)


if __name__ == "__main__":
    import asyncio

    asyncio.run(killed_behind(sys.argv[1], Path(sys.argv[2])))
