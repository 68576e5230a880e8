"""Owns when compactions run, as the configuration says, for the daemon and the command line."""

from __future__ import annotations

from agent.compaction.micro.progress import MicroSettings
from agent.model_metadata import TriggerRules, Triggers, triggers_for
from gateway.config.environment import Home
from gateway.config.models import Config
from gateway.windows.book import WindowBook


def rules_of(config: Config) -> TriggerRules:
    """The configured rules as the core knows them."""
    rules = config.compression
    return TriggerRules(
        threshold=rules.threshold,
        max_threshold_tokens=rules.max_threshold_tokens,
        small_window_floor=rules.small_window_floor,
        model_thresholds=rules.model_thresholds,
        target_ratio=rules.target_ratio,
    )


def micro_of(config: Config) -> MicroSettings:
    """Micro-compaction as the core knows it."""
    rules = config.compression
    return MicroSettings(
        enabled=rules.micro_compact,
        every_n_turns=rules.micro_compact_every_n_turns,
        defrag_threshold_tokens=rules.micro_compact_defrag_threshold_tokens,
    )


def triggers_of_model(config: Config, home: Home, model: str) -> Triggers:
    """The triggers for a stored session's model, without asking anybody.

    A configured window belongs to the configured model (or the offline one that stands in for it):
    a session that an earlier model held is judged by that model's own window.
    """
    configured = config.model.context_length
    if model not in (config.model.name, "offline"):
        configured = None
    book = WindowBook(model, config.model.base_url, configured, home.windows)
    return triggers_for(
        book.window.tokens, rules_of(config), max_tokens=config.model.max_tokens, model=model
    )
