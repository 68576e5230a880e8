"""The lossless engine of a plugin behind the real host and the real store."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.auxiliary_client import install
from agent.messages import to_engine
from agent.sessions import LoadedSession
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.lossless import ScriptedAsk, lossless, node_of
from tests.fakes.side_model import ScriptedSideModel
from tests.fakes.stored import context_text
from tests.integration.test_planted_facts import (
    COMPRESSIONS,
    FACTS,
    WINDOW,
    Life,
    Planted,
    planted_facts,
)


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqlStore]:
    opened = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    yield opened
    await opened.close()


async def tool(life: Life, loaded: LoadedSession, name: str, **args: Any) -> dict[str, Any]:
    """A call of one of the engine's tools, as the host makes it."""
    foreign = life.compactor.foreign
    assert foreign is not None
    answer = json.loads(await foreign.extras.run_tool(name, args, to_engine(loaded.rows)))
    assert isinstance(answer, dict)
    return answer


async def test_no_planted_fact_is_out_of_reach(
    store: SqlStore, clock: FakeClock, tmp_path: Path
) -> None:
    rng = random.Random(20)
    facts = planted_facts(rng)
    engine = lossless(tmp_path / "hermes", ScriptedAsk("All is well."), window=WINDOW)
    life = Life(store, clock, rng, engine)
    turns: list[list[Planted]] = [[]]
    for fact in facts:
        if any(fact.place == other.place for other in turns[-1]):
            turns.append([])
        turns[-1].append(fact)
    loaded = await life.turn([])
    for number, of_turn in enumerate(turns, start=1):
        loaded = await life.turn(of_turn)
        if number * COMPRESSIONS // len(turns) > (number - 1) * COMPRESSIONS // len(turns):
            loaded = await life.compress(loaded)
    assert life.compressions == COMPRESSIONS
    assert len(await store.lineage(loaded.session.id)) == COMPRESSIONS + 1
    nodes = [node for m in to_engine(loaded.rows) if (node := node_of(engine, dict(m)))]
    assert max(node.depth for node in nodes) >= 2

    in_view = context_text(row.message for row in loaded.rows)
    lost: list[Planted] = []
    looked_for = 0
    for fact in facts:
        if fact.statement in in_view:
            continue
        looked_for += 1
        found = await tool(life, loaded, "lossless_search", query=fact.query, limit=3)
        for hit in found["results"]:
            opened = await tool(life, loaded, "lossless_expand", ref=hit["ref"])
            if fact.value in opened["text"]:
                break
        else:
            lost.append(fact)
    assert looked_for > FACTS // 2
    assert lost == []
    engine.shutdown()


async def test_without_a_home_of_its_own_it_takes_the_hosts_model(
    store: SqlStore, clock: FakeClock, tmp_path: Path
) -> None:
    """`call_llm` on the engine's thread, on the account of nobody else."""
    model = ScriptedSideModel("The user talked about notes.")
    install(model)
    try:
        engine = lossless(tmp_path, window=WINDOW)
        engine._ask = None
        life = Life(store, clock, random.Random(1), engine)
        for _ in range(8):
            loaded = await life.turn([])
        loaded = await life.compress(loaded)
    finally:
        install(None)
    assert life.compressions == 1
    assert model.asked[0].system.startswith("[lossless:summary]")
    texts = [str(row.message["content"]) for row in loaded.rows if row.kind == "summary"]
    assert texts
    assert all("The user talked about notes." in text for text in texts)
    engine.shutdown()
