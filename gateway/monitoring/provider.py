"""Owns how it is told that the model's provider refuses us: in words, in metrics (pure).

`agent.llm.standing` knows it. An older daemon may say less, a newer one more: what comes from one
is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from agent.llm.standing import Standing
from gateway.commands.wording import ago
from gateway.monitoring.exposition import Gauge, Metric

_SAYS = {
    "key": "refuses the key",
    "credit": "says that the account has no credit left",
    "name": "does not know this model",
}
_REMEDIES = {
    "key": "check ANTHROPIC_API_KEY and model.base_url (a new key takes a restart)",
    "credit": "look at the account at the provider",
    "name": "correct model.name, model.fallback or compression.summary_model",
}


def as_json(standing: Standing) -> dict[str, Any]:
    """For ``posthouse status --json``; times are Unix seconds."""
    return asdict(standing)


def told(provider: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Each trouble, and what mends it; of what `as_json` gave."""
    for trouble in provider.get("troubles") or ():
        says = _SAYS.get(trouble["kind"], f"has trouble: {trouble['kind']}")
        since, last = ago(now - trouble["since"]), ago(now - trouble["last_at"])
        when = since if since == last else f"{since}, and {last}"
        yield (
            f"the model's provider {says} ({trouble['model']}; {when})",
            _REMEDIES.get(trouble["kind"], "see the log"),
        )


def in_lines(standing: Standing, now: float) -> list[str]:
    """For an operator, a line each."""
    return [f"{trouble}: {remedy}" for trouble, remedy in told(as_json(standing), now)]


def provider_metrics(standing: Callable[[], Standing]) -> list[Metric]:
    """Asked whenever somebody reads."""
    return [
        Gauge(
            "posthouse_model_trouble",
            "1 while the provider refuses the key (key), the account can not pay (credit) or the "
            "model is not known (name); gone with the model's next answer.",
            lambda: {(t.model, t.kind): 1.0 for t in standing().troubles},
            ("model", "kind"),
        ),
        Gauge(
            "posthouse_model_answered_timestamp_seconds",
            "When a model answered last.",
            lambda: standing().answered_at,
        ),
    ]
