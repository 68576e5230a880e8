"""The replay of a conversation: what is due happens when it is due, and is paid for once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.compaction.micro.progress import MicroSettings
from agent.model_metadata import TriggerRules
from agent.prices import price_table
from agent.prompt_caching import TTL_SECONDS
from agent.simulation.outcome import Outcome
from agent.simulation.replay import Prices, replay
from agent.simulation.script import make_script
from agent.simulation.settings import (
    Choice,
    Setting,
    reference,
    reference_triggers,
    setting_of,
    usual_choices,
)
from agent.simulation.trace import Event, Trace

MODEL = "claude-sonnet-5-5"
WINDOW = 20_000


def chat(turns: int, *, gap: float = 20.0, said: int = 100, answered: int = 300) -> Trace:
    pair = (Event(gap, "user", said), Event(5.0, "text", answered))
    return Trace(MODEL, pair * turns, prefix_tokens=1000, max_tokens=1)


def work(rounds: int, *, result: int = 700) -> Trace:
    steps = (Event(2.0, "call", 60), Event(1.0, "result", result))
    events = (Event(10.0, "user", 100), *steps * rounds, Event(4.0, "text", 200))
    return Trace(MODEL, events, prefix_tokens=1000, max_tokens=1)


def outcome_of(trace: Trace, choice: Choice | None = None, window: int = WINDOW) -> Outcome:
    setting = setting_of("x", choice or Choice(), trace, window)
    return replay(make_script(trace), setting, prefix_tokens=trace.prefix_tokens)


def test_below_the_threshold_nothing_happens() -> None:
    outcome = outcome_of(chat(15))
    assert outcome.compressions == ()
    assert outcome.bill.side_input == outcome.bill.side_output == 0
    assert outcome.peak_tokens < 10_000


def test_what_is_prepared_is_taken_and_nobody_waits() -> None:
    outcome = outcome_of(chat(200, gap=120.0))
    assert len(outcome.compressions) > 3
    assert {c.kind for c in outcome.compressions} == {"prepared"}
    assert outcome.felt_pauses == 0
    assert outcome.wasted <= 1  # what is ready when the talk ends


def test_without_preparation_everybody_waits() -> None:
    outcome = outcome_of(chat(200, gap=120.0), Choice(background=False))
    assert {c.kind for c in outcome.compressions} == {"waited"}
    assert outcome.felt_pauses == len(outcome.compressions)
    assert outcome.waited_seconds > 3 * len(outcome.compressions)


def test_who_answers_at_once_does_not_wait_for_what_is_being_prepared() -> None:
    """It is swapped in a little later: behind the trigger there is room."""
    outcome = outcome_of(chat(25, gap=0.0, said=300, answered=700))
    assert outcome.compressions
    assert outcome.felt_pauses == 0
    assert outcome.peak_tokens > 10_000


def test_it_is_swapped_early_where_the_cache_has_run_out_anyway() -> None:
    outcome = outcome_of(chat(200, gap=TTL_SECONDS["5m"] + 1))
    assert {c.kind for c in outcome.compressions} == {"cold"}
    assert outcome.peak_tokens < 10_000


def test_an_hour_of_cache_means_that_it_is_not_cold_yet() -> None:
    outcome = outcome_of(chat(200, gap=TTL_SECONDS["5m"] + 1), Choice(cache_ttl="1h"))
    assert {c.kind for c in outcome.compressions} == {"prepared"}
    assert outcome.bill.cache_share > 0.8


def test_one_long_turn_waits_or_is_pruned() -> None:
    bulky, wordy = outcome_of(work(20)), outcome_of(work(100, result=60))
    assert {c.kind for c in bulky.compressions} == {"pruned"}
    assert {c.kind for c in wordy.compressions} == {"waited"}
    assert bulky.felt_pauses == 0
    assert wordy.felt_pauses == len(wordy.compressions)
    assert max(bulky.peak_tokens, wordy.peak_tokens) < 11_000


def test_a_turn_without_end_is_compressed_three_times_and_then_too_long() -> None:
    outcome = outcome_of(work(200))
    assert len(outcome.compressions) == 3
    assert outcome.overflows > 0


def test_switched_off_it_grows_until_it_is_too_long() -> None:
    outcome = outcome_of(chat(100), Choice(enabled=False))
    assert outcome.compressions == ()
    assert outcome.overflows > 0


def test_micro_compaction_takes_in_old_exchanges_and_breaks_the_cache() -> None:
    trace = chat(60)
    plain = outcome_of(trace, Choice(rules=TriggerRules(threshold=0.9)))
    every = outcome_of(
        trace, Choice(rules=TriggerRules(threshold=0.9), micro=MicroSettings(enabled=True))
    )
    assert every.micro_passes > 10
    assert every.peak_tokens < plain.peak_tokens
    assert every.bill.read < plain.bill.read
    third = outcome_of(trace, Choice(micro=MicroSettings(enabled=True, every_n_turns=3)))
    assert 0 < third.micro_passes < every.micro_passes


def test_a_digest_that_is_too_long_is_shortened_instead() -> None:
    micro = MicroSettings(enabled=True, defrag_threshold_tokens=100)
    outcome = outcome_of(chat(60), Choice(rules=TriggerRules(threshold=0.9), micro=micro))
    assert outcome.micro_passes > 10


def test_pruning_between_rounds_of_tools() -> None:
    trace = work(40, result=3000)
    outcome = outcome_of(trace, Choice(prune_from_tokens=20_000, protect_last_n=4), 200_000)
    assert outcome.prunings > 0
    assert outcome.peak_tokens < outcome_of(trace, window=200_000).peak_tokens


def test_a_trace_without_answers_has_no_requests() -> None:
    trace = Trace(MODEL, (Event(0, "user", 5),) * 3)
    outcome = outcome_of(trace)
    assert len(outcome.sizes) == 0
    assert (outcome.peak_tokens, outcome.mean_tokens, outcome.bill.cache_share) == (0, 0.0, 0.0)


def test_a_message_larger_than_the_window_is_counted_and_survived() -> None:
    trace = chat(30)
    events = (*trace.events, Event(1.0, "user", 90_000), Event(1.0, "text", 10), *trace.events)
    outcome = outcome_of(replace(trace, events=events))
    assert outcome.overflows > 0
    assert len(outcome.sizes) == 61


@pytest.mark.parametrize(
    ("window", "threshold", "tail"),
    [
        (64_000, 54_400, 10_880),
        (128_000, 96_000, 19_200),
        (200_000, 150_000, 30_000),
        (400_000, 300_000, 60_000),
        (512_000, 256_000, 51_200),
        (1_000_000, 500_000, 100_000),
    ],
)
def test_the_references_numbers_are_those_that_were_measured(
    window: int, threshold: int, tail: int
) -> None:
    found = reference_triggers(window)
    assert (found.threshold_tokens, found.tail_tokens) == (threshold, tail)
    assert found.summary_ceiling_tokens == min(window // 20, 10_000)


def test_the_usual_choices_differ_from_the_base_and_lie_below_the_last_net() -> None:
    for window in (8_000, 64_000, 200_000, 1_000_000):
        choices = usual_choices(Choice(), window, max_tokens=8192)
        assert choices.pop("defaults") == Choice()
        assert Choice() not in choices.values()
        assert len(choices) >= 7


def test_auto_is_an_hour_for_people_and_five_minutes_for_jobs() -> None:
    trace, auto = chat(3), Choice(cache_ttl="auto")
    assert setting_of("x", auto, trace, WINDOW).cache_ttl == "1h"
    assert setting_of("x", auto, replace(trace, job=True), WINDOW).cache_ttl == "5m"
    assert setting_of("x", auto, replace(trace, model="other"), WINDOW).cache_ttl is None


def test_the_last_net_waits_for_what_is_being_made_and_again_if_that_does_not_fit() -> None:
    long = (Event(1.0, "user", 300), Event(1.0, "text", 4000), Event(1.0, "user", 5000))
    events = (*chat(17).events, *long, Event(1.0, "text", 10))
    outcome = outcome_of(replace(chat(1), events=events))
    (compression,) = outcome.compressions
    assert compression.kind == "waited"
    rest, whole = outcome.pauses_seconds
    assert 1 < rest < 10
    assert whole > 1
    assert outcome.wasted == 1


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any conversation, mad ones too."""
    events: list[Event] = []
    gaps = st.sampled_from((0.0, 3.0, 400.0, 90_000.0))
    sizes = st.sampled_from((1, 40, 300, 2500, 9000))
    for _ in range(draw(st.integers(0, 40))):
        events.append(Event(draw(gaps), "user", draw(sizes)))
        for _ in range(draw(st.integers(0, 4))):
            calls = draw(st.integers(1, 3))
            events += [Event(0.0, "call", draw(sizes)) for _ in range(calls)]
            answered = draw(st.integers(0, calls))
            events += [Event(0.5, "result", draw(sizes)) for _ in range(answered)]
        if draw(st.booleans()):
            events.append(Event(draw(gaps), "text", draw(sizes)))
    return Trace(MODEL, tuple(events), prefix_tokens=draw(st.sampled_from((0, 900, 30_000))))


def settings_for(trace: Trace) -> list[Setting]:
    choices = usual_choices(Choice(), WINDOW, max_tokens=trace.max_tokens)
    choices["all"] = Choice(micro=MicroSettings(enabled=True), prune_from_tokens=4000)
    choices["off"] = Choice(enabled=False)
    names = ("defaults", "micro", "background off", "cache 1h", "all", "off")
    found = [setting_of(name, choices[name], trace, WINDOW) for name in names]
    return [*found, reference(trace, WINDOW)]


@settings(max_examples=15, deadline=None)
@given(trace=traces())
def test_whatever_the_conversation_the_sums_hold(trace: Trace) -> None:
    script = make_script(trace)
    price = price_table().find(MODEL)
    assert price is not None
    for setting in settings_for(trace):
        outcome = replay(
            script, setting, prefix_tokens=trace.prefix_tokens, prices=Prices(price, price)
        )
        again = replay(
            script, setting, prefix_tokens=trace.prefix_tokens, prices=Prices(price, price)
        )
        assert outcome == again
        bill = outcome.bill
        assert bill.plain + bill.read + bill.written == sum(outcome.sizes)
        assert bill.output == sum(s.row.tokens for s in script.steps if s.kind == "answer")
        assert outcome.peak_tokens >= outcome.mean_tokens >= 0
        assert 0 <= bill.cache_share <= 1
        assert list(outcome.seconds) == sorted(outcome.seconds)
        assert all(c.tokens_after < c.tokens_before for c in outcome.compressions)
        assert all(pause >= 0 for pause in outcome.pauses_seconds)
        assert outcome.usd is not None
        assert outcome.usd >= 0
        assert bool(bill.side_input) == bool(bill.side_output)
        if not setting.background:
            assert outcome.wasted == 0
            assert {c.kind for c in outcome.compressions} <= {"waited", "pruned"}
