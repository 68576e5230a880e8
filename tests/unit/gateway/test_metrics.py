"""Metrics: valid for Prometheus whatever happens, bounded, and without anybody's name."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelOverloaded
from agent.ports import CompactionResult, ModelRequest, ModelResponse, Usage
from agent.prices import Price, PriceTable
from agent.sessions import CompressionState, LoadedSession, Session, SessionPrefix
from gateway.monitoring.exposition import (
    MOST_SERIES,
    OTHER,
    Counter,
    Gauge,
    Histogram,
    exposition,
    number,
)
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics, resident_bytes
from tests.fakes.clock import FakeClock
from tests.fakes.exposition import read_exposition
from tests.fakes.platform import inbound
from tests.fakes.scripted_model import ScriptedModel, answer
from tests.unit.gateway.rig import Rig

PRICES = PriceTable("2026-11-29", "a test", {"dear": Price(10.0, 50.0, 1.0, 12.5, 20.0)})
labels = st.text(st.characters(exclude_categories=[]), max_size=40)


@given(values=st.lists(st.tuples(labels, labels, st.floats(0, 1e12)), max_size=20))
def test_whatever_the_labels_say_it_can_be_read_back(
    values: list[tuple[str, str, float]],
) -> None:
    counter = Counter("a_total", 'Help with \\ and "quotes"\nand lines.', ("one", "two"))
    sums: dict[tuple[str, str], float] = {}
    for one, two, by in values:
        counter.add(one, two, by=by)
        sums[(one, two)] = sums.get((one, two), 0.0) + by
    text = exposition([counter])
    text.encode("utf-8")
    valid = {key: by for key, by in sums.items() if all(_is_valid(part) for part in key)}
    if len(valid) < len(sums):
        return  # half surrogates have no UTF-8; that it is encoded at all is what counts
    found = read_exposition(text)["a_total"].samples
    assert found == {
        ("a_total", (("one", one), ("two", two))): pytest.approx(by)
        for (one, two), by in sums.items()
    }


def _is_valid(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


@given(values=st.lists(st.floats(0, 1e6), max_size=50))
def test_histograms_add_up(values: list[float]) -> None:
    histogram = Histogram("a_seconds", "Help.", (0.1, 1.0, 10.0), ("kind",))
    for value in values:
        histogram.observe(value, "x")
    found = read_exposition(exposition([histogram]))["a_seconds"].samples
    if not values:
        assert found == {}
        return
    kind = ("kind", "x")
    assert found[("a_seconds_count", (kind,))] == len(values)
    assert found[("a_seconds_sum", (kind,))] == pytest.approx(sum(values))
    below = sum(value <= 1.0 for value in values)
    assert found[("a_seconds_bucket", (kind, ("le", "1")))] == below


def test_labels_that_others_choose_can_not_fill_the_memory() -> None:
    counter = Counter("a_total", "Help.", ("model",))
    for n in range(MOST_SERIES + 50):
        counter.add(f"model-{n}")
    counter.add("model-3")
    samples = read_exposition(exposition([counter]))["a_total"].samples
    assert len(samples) == MOST_SERIES + 1
    assert counter.value(OTHER) == 50
    assert counter.value("model-3") == 2
    counter.add("x" * 1_000_000)
    assert max(map(len, exposition([counter]).splitlines())) < 300


def test_counters_never_fall() -> None:
    counter = Counter("a_total", "Help.")
    counter.add(by=2)
    counter.add(by=-5)
    assert counter.value() == 2


@pytest.mark.parametrize(
    ("name", "names"), [("0a", ()), ("a b", ()), ("a", ("le le",)), ("a", ("__a",))]
)
def test_names_that_prometheus_refuses_are_refused(name: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no name"):
        Counter(name, "Help.", names)


def test_labels_have_to_be_complete() -> None:
    with pytest.raises(ValueError, match="labels"):
        Counter("a_total", "Help.", ("one",)).add()


def test_a_gauge_that_knows_nothing_has_no_sample() -> None:
    unknown = Gauge("a", "Help.", lambda: None)
    assert read_exposition(exposition([unknown]))["a"].samples == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (0.25, "0.25"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (2.0**60, "1.152921504606847e+18"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


# --- ours ---------------------------------------------------------------------------------------


@pytest.fixture
def metrics(clock: FakeClock) -> Metrics:
    made = Metrics(clock, PRICES)
    made.watch(
        waiting=lambda: 3,
        running=lambda: 2,
        owed=lambda: 1,
        prepared=lambda: {"swapped": 4},
        platforms=lambda: {"telegram": "running", "discord": "failed-config"},
    )
    return made


def value(metrics: Metrics, name: str, **wanted: str) -> float:
    families = read_exposition(metrics.text())
    family = next(f for n, f in families.items() if name in (n, f"{n}_count", f"{n}_sum"))
    return family.samples[(name, tuple(sorted(wanted.items())))]


def test_all_of_it_is_valid_before_anything_has_happened(metrics: Metrics) -> None:
    families = read_exposition(metrics.text())
    assert value(metrics, "posthouse_waiting_messages") == 3
    assert value(metrics, "posthouse_prepared_total", outcome="swapped") == 4
    state = {"platform": "discord", "state": "failed-config"}
    assert value(metrics, "posthouse_platform_state", **state) == 1
    assert families["posthouse_prompt_cache_hit_ratio"].samples == {}


def test_turns(metrics: Metrics) -> None:
    metrics.turn_ended("done", 2.0)
    metrics.turn_ended("failed", 400.0)
    assert value(metrics, "posthouse_turns_total", outcome="done") == 1
    assert value(metrics, "posthouse_turn_seconds_count") == 2
    assert value(metrics, "posthouse_turn_seconds_sum") == 402


def test_requests_by_model_and_purpose(metrics: Metrics) -> None:
    took = Usage(1_000_000, 100_000, 3_000_000, 500_000, "dear", cache_write_1h_tokens=100_000)
    metrics.answered(took, "turn", 1.0)
    metrics.answered(replace(took, model="odd"), "background", 1.0)
    metrics.failed("dear", "turn", "ModelOverloaded")
    turn = {"model": "dear", "purpose": "turn"}
    assert value(metrics, "posthouse_model_requests_total", outcome="answered", **turn) == 1
    assert value(metrics, "posthouse_model_requests_total", outcome="ModelOverloaded", **turn) == 1
    assert value(metrics, "posthouse_model_tokens_total", kind="cache_read", **turn) == 3_000_000
    # 10 in + 5 out + 3 read + 0.4 x 12.5 + 0.1 x 20 written
    assert value(metrics, "posthouse_model_cost_usd_total", **turn) == pytest.approx(25.0)
    assert 'cost_usd_total{model="odd"' not in metrics.text()
    assert value(metrics, "posthouse_prompt_cache_hit_ratio") == pytest.approx(3 / 4.5)


def compression(manifest: dict[str, str] | None) -> CompactionResult:
    session = Session(
        id="s",
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=SessionPrefix("fake", "m", "p"),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=0,
        anchor=None,
        compression=CompressionState(),
        manifest=manifest,
    )
    return CompactionResult("compressed", LoadedSession(session, ()), 9_000, 1_000)


def test_compressions_by_trigger_outcome_and_mode(metrics: Metrics) -> None:
    metrics.compression_ended("loop", compression({"mode": "summary"}))
    metrics.compression_ended("manual", compression(None))
    aborted = replace(compression({"mode": "summary"}), outcome="aborted")
    metrics.compression_ended("hygiene", aborted)
    name = "posthouse_compressions_total"
    for trigger, outcome, mode in (
        ("loop", "compressed", "summary"),
        ("manual", "compressed", "engine"),
        ("hygiene", "aborted", ""),
    ):
        assert value(metrics, name, trigger=trigger, outcome=outcome, mode=mode) == 1
    assert value(metrics, "posthouse_compressed_tokens_before_total") == 18_000
    assert value(metrics, "posthouse_compressed_tokens_after_total") == 2_000


def test_memory(tmp_path: Path) -> None:
    found = resident_bytes()
    assert found is None or found > 1_000_000
    assert resident_bytes(tmp_path / "none") is None
    (tmp_path / "odd").write_text("x")
    assert resident_bytes(tmp_path / "odd") is None


async def test_the_meter_sees_every_request(metrics: Metrics, clock: FakeClock) -> None:
    took = Usage(10, 5, cache_write_tokens=100, model="dear")
    model = MeteredModel(
        ScriptedModel(answer("a", usage=took), ModelOverloaded("secret words")), metrics, clock
    )
    request = ModelRequest(
        "s", [{"role": "user", "content": "x"}], 10, cache_ttl="1h", purpose="summary"
    )
    assert (await model.respond(request)).message["content"] == "a"
    with pytest.raises(ModelOverloaded):
        await model.respond(request)
    name = "posthouse_model_requests_total"
    assert value(metrics, name, model="dear", purpose="summary", outcome="answered") == 1
    failed = {"model": "scripted", "purpose": "summary", "outcome": "ModelOverloaded"}
    assert value(metrics, name, **failed) == 1
    assert "secret" not in metrics.text()
    cost = value(metrics, "posthouse_model_cost_usd_total", model="dear", purpose="summary")
    assert cost == pytest.approx((10 * 10 + 5 * 50 + 100 * 20) / 1e6)
    assert model.name == "scripted"
    assert await model.window_tokens() == 200_000


async def test_a_request_that_was_stopped_is_counted(metrics: Metrics, clock: FakeClock) -> None:
    """Its beginning is paid for, although nobody learns how much it was."""

    class Endless(ScriptedModel):
        async def respond(self, request: ModelRequest, **_: Any) -> ModelResponse:
            await asyncio.Event().wait()
            raise AssertionError

    asking = asyncio.ensure_future(
        MeteredModel(Endless(), metrics, clock).respond(ModelRequest("s", [], 10))
    )
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    stopped = {"model": "scripted", "purpose": "turn", "outcome": "cancelled"}
    assert value(metrics, "posthouse_model_requests_total", **stopped) == 1


async def test_nobody_is_named(clock: FakeClock) -> None:
    rig = Rig(clock)
    metrics = Metrics(clock, PRICES)
    metrics.watch(
        waiting=lambda: rig.lanes.counts()[1],
        running=lambda: rig.lanes.counts()[0],
        owed=lambda: rig.delivery.under_way,
        prepared=dict,
        platforms=lambda: {"fake": "running"},
    )
    gate = asyncio.Event()
    rig.platform.gate = gate
    await rig.intake.receive(inbound("my secret", sender_id="111", chat_id="111"))
    await rig.settle()
    assert value(metrics, "posthouse_outbox_owed") == 1
    assert "111" not in metrics.text()
    assert "secret" not in metrics.text()
    gate.set()
    await rig.settle()
    assert value(metrics, "posthouse_outbox_owed") == 0
