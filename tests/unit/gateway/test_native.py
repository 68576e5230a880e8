"""Native context management as the daemon has it: metered, and reported where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import CompactionRefused, ModelOverloaded
from agent.llm.native import NOT_KNOWN
from agent.llm.offline import OfflineModel
from agent.model_metadata import TriggerRules, triggers_for
from agent.ports import ModelRequest, NativeSummary, Usage
from agent.prices import price_table
from gateway.config.models import Compression, Config, unavailable
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.self_report import SelfReport
from gateway.windows.book import WindowBook
from gateway.wiring.models import missing_native
from tests.fakes.clock import FakeClock
from tests.fakes.scripted_model import ScriptedModel, answer

REQUEST = ModelRequest("s", [{"role": "user", "content": "x"}], 10, purpose="summary")


class Compacting(ScriptedModel):
    """Compacts once, then is overloaded."""

    done = False

    async def compact(self, request: ModelRequest, *, instructions: str = "") -> NativeSummary:
        if self.done:
            raise ModelOverloaded("busy")
        self.done = True
        usage = Usage(cache_read_tokens=70, output_tokens=7, model="dear")
        return NativeSummary({"type": "compaction"}, "", "m", usage, "dear")


async def test_the_meter_sees_compactions(clock: FakeClock) -> None:
    metrics = Metrics(clock, price_table())
    model = MeteredModel(Compacting(answer("a")), metrics, clock)
    await model.compact(REQUEST)
    with pytest.raises(ModelOverloaded):
        await model.compact(REQUEST)
    text = metrics.text()
    assert 'purpose="summary",outcome="answered"} 1' in text
    assert 'purpose="summary",outcome="ModelOverloaded"} 1' in text
    assert 'kind="cache_read"} 70' in text


async def test_a_model_without_compaction_says_so(clock: FakeClock) -> None:
    model = MeteredModel(ScriptedModel(answer("a")), Metrics(clock, price_table()), clock)
    with pytest.raises(CompactionRefused) as caught:
        await model.compact(REQUEST)
    assert caught.value.code == NOT_KNOWN


def report_of(native: str, missing: Callable[[], tuple[str, ...]], folder: Path) -> list[str]:
    config = Config(compression=Compression.model_validate({"native": native}))
    triggers = triggers_for(200_000, TriggerRules())
    book = WindowBook("m", None, 200_000, folder / "windows.json")
    report = SelfReport(
        lambda: config,
        model="m",
        book=book,
        triggers=lambda: triggers,
        prefix_tokens=lambda: 10,
        missing_native=missing,
    )
    return [line for line in report.remarks() if "native" in line]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    both = missing_native(OfflineModel(window_tokens=1000))
    assert len(report_of("compact", lambda: both, tmp_path)) == 1
    assert len(report_of("edits", lambda: both, tmp_path)) == 1
    assert report_of("off", lambda: both, tmp_path) == []
    assert report_of("compact", lambda: ("context edits",), tmp_path) == []
    assert report_of("edits", tuple, tmp_path) == []
    config = Config(compression=Compression.model_validate({"native": "compact"}))
    assert unavailable(config) == []
