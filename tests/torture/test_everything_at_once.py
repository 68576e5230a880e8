"""Everything that people do, on both platforms, while the daemon is killed again and again.

Each thing said is a numbered fact; at the end each is answered, once (on Telegram a repeat says of
itself that it may be one), in order, from words that are stored once and were read by the model.
`POSTHOUSE_TORTURE_SEEDS="1 2 3"` chooses the seeds of the long form, `POSTHOUSE_TORTURE_KILLS` how
often each kills.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.harness import World
from tests.torture.killing import Killing

SEEDS = [int(seed) for seed in os.environ.get("POSTHOUSE_TORTURE_SEEDS", "1 2 3").split()]
KILLS = int(os.environ.get("POSTHOUSE_TORTURE_KILLS", "60"))


async def _judged(world: World, folder: Path, seed: int, kills: int) -> Killing:
    killing = Killing(world, folder / "hits", seed)
    judge = await killing.run(kills)
    faults = judge.faults()
    print(killing.figures(judge))
    assert faults == []
    return killing


@pytest.mark.acceptance
@pytest.mark.timeout(300)
async def test_everything_over_a_few_kills(world: World, tmp_path: Path) -> None:
    killing = await _judged(world, tmp_path, seed=1, kills=6)
    assert killing.kills.total() == 6


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_everything_over_many_kills(world: World, tmp_path: Path, seed: int) -> None:
    killing = await _judged(world, tmp_path, seed, KILLS)
    assert killing.kills.total() == KILLS
    assert killing.moves == 2
