"""The gateway's part of the ledger: late answers, what is told at start, what metrics are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.ledger import LedgerScope
from agent.messages import Draft
from agent.model_metadata import TriggerRules, triggers_for
from agent.ports import CompactionResult
from gateway.config.models import Config
from gateway.monitoring.self_report import SelfReport
from gateway.windows.book import WindowBook
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import Bench
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said
from tests.unit.gateway.test_turns import split_at_end


async def requests(rig: Rig) -> int:
    lines = await rig.store.ledger_lines(LedgerScope(owner="fake:111"))
    return sum(line.requests for line in lines)


async def test_an_answer_that_goes_to_the_child_is_entered_once(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def late(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        await split_at_end(rig, loaded.session.id)
        return said("ok")

    rig.loop.scripts["hi"] = late
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["ok"]
    assert await requests(rig) == 1


async def test_an_answer_without_a_place_is_entered_once(clock: FakeClock) -> None:
    rig = Rig(clock)
    real = rig.store.finish_turn

    async def always_late(ticket: Any, session_id: str, outcome: Any, **what: Any) -> Any:
        if what["final"] is not None:
            await split_at_end(rig, session_id)
        return await real(ticket, session_id, outcome, **what)

    rig.store.finish_turn = always_late
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["re: hi"]
    assert await requests(rig) == 1


@pytest.mark.parametrize(
    ("model", "fallback", "summary_model", "named"),
    [
        ("claude-sonnet-5-5", [], None, []),
        ("claude-sonnet-5-5", ["a-model"], "b-model", ["a-model", "b-model"]),
        ("a-model", [], "a-model", ["a-model"]),
    ],
)
def test_a_budget_that_can_not_see_says_so(
    tmp_path: Path,
    clock: FakeClock,
    model: str,
    fallback: list[str],
    summary_model: str | None,
    named: list[str],
) -> None:
    def remarks(budget: float | None) -> list[str]:
        config = Config.model_validate(
            {
                "model": {"name": model, "fallback": fallback},
                "compression": {"summary_model": summary_model},
                "budget": {"usd_per_user_day": budget},
            }
        )
        report = SelfReport(
            lambda: config,
            model=model,
            book=WindowBook(model, None, 200_000, tmp_path / "w.json", clock=clock),
            triggers=lambda: triggers_for(200_000, TriggerRules(), max_tokens=8192),
            prefix_tokens=lambda: 100,
        )
        return [line for line in report.remarks() if "budget" in line]

    assert [line.split("limit ")[1].split(":")[0] for line in remarks(1.0)] == named
    assert remarks(None) == []


async def test_the_end_of_each_compression_is_told_once(clock: FakeClock) -> None:
    bench = Bench(clock)
    told: list[tuple[str, CompactionResult]] = []
    compactor = bench.fresh(on_result=lambda trigger, result: told.append((trigger, result)))
    parent = await bench.talk(12)
    result = await compactor.compact(parent, "loop")
    assert told == [("loop", result)]
    await compactor.compact(result.loaded, "loop")  # not due: nothing was done, nothing is told
    assert len(told) == 1
