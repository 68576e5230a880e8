"""Owns a comparison: which settings a trace is replayed under, and what comes of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.model_metadata import resolve_window
from agent.prices import PriceTable
from agent.simulation.outcome import Outcome
from agent.simulation.replay import Prices, replay
from agent.simulation.script import make_script
from agent.simulation.settings import (
    Assumptions,
    Choice,
    Setting,
    reference,
    setting_of,
    usual_choices,
)
from agent.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know about a trace."""

    trace: Trace
    """With the model that is asked about."""
    window_tokens: int
    summary_model: str | None = None
    """None: the one that answers."""
    own: Mapping[str, Choice] = field(default_factory=dict)
    """Further choices, by name."""
    assumed: Assumptions = field(default_factory=Assumptions)


def question_of(
    trace: Trace,
    *,
    model: str | None = None,
    window_tokens: int | None = None,
    own: Mapping[str, Choice] | None = None,
) -> Question:
    """The question about a trace, or about the same talk with another model.

    Args:
        trace: What is replayed.
        model: Instead of the trace's.
        window_tokens: Instead of the model's. A trace's own window belongs to its own model.
        own: Further choices, by name.
    """
    if window_tokens is None and model in (None, trace.model):
        window_tokens = trace.window_tokens
    asked = replace(trace, model=model or trace.model)
    if window_tokens is None:
        window_tokens = resolve_window(asked.model).tokens
    return Question(asked, window_tokens, own=own or {})


def compare(question: Question, table: PriceTable) -> list[Outcome]:
    """Replay a trace under every setting that is worth a look: the defaults first."""
    trace, window = question.trace, question.window_tokens
    main = table.find(trace.model)
    side = table.find(question.summary_model or trace.model)
    prices = Prices(main, side) if main is not None and side is not None else None
    script = make_script(trace)
    return [
        replay(
            script,
            setting,
            prefix_tokens=trace.prefix_tokens,
            assumed=question.assumed,
            prices=prices,
        )
        for setting in _settings(trace, window, question.own)
    ]


def _settings(trace: Trace, window_tokens: int, own: Mapping[str, Choice]) -> list[Setting]:
    usual = usual_choices(Choice(), window_tokens, max_tokens=trace.max_tokens)
    choices = {"defaults": usual.pop("defaults"), **own, **usual}
    settings = [setting_of(name, c, trace, window_tokens) for name, c in choices.items()]
    settings.insert(1, reference(trace, window_tokens))
    return settings
