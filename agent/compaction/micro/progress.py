"""Owns how micro-compaction counts: turns until the next pass, failures at one place. Pure.

All of it is kept in the session's `CompressionState`, by ids of originals, which neither a restart
nor a copy changes. Where the next exchange begins is not kept at all: the list says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agent.sessions import CompressionState

MAX_FAILURES = 3
OVERRIDE_KEY = "micro_compact_override"
"""In the session's ``model_config``: ``on`` or ``off``; missing: as configured."""

Override = Literal["on", "off", "inherit"]


@dataclass(frozen=True, slots=True)
class MicroSettings:
    """As configured."""

    enabled: bool = False
    every_n_turns: int = 1
    defrag_threshold_tokens: int = 2000


def override_of(model_config: Mapping[str, Any]) -> Override:
    """What somebody has set for a conversation."""
    value = model_config.get(OVERRIDE_KEY)
    return value if value in ("on", "off") else "inherit"


def is_on(model_config: Mapping[str, Any], settings: MicroSettings) -> bool:
    """Does it run in a conversation?"""
    override = override_of(model_config)
    return settings.enabled if override == "inherit" else override == "on"


def after_call(state: CompressionState, every_n_turns: int) -> tuple[CompressionState, bool]:
    """The state after one more finished turn, and whether a pass is due; turns in vain count."""
    if every_n_turns <= 1:
        return state, True
    turns = state.micro_turns + 1
    due = turns >= every_n_turns
    return state.changed(micro_turns=0 if due else turns), due


def after_pass(state: CompressionState, saved_tokens: int) -> CompressionState:
    """The state after a pass that was stored."""
    return state.changed(
        micro_passes=state.micro_passes + 1,
        micro_saved_tokens=state.micro_saved_tokens + saved_tokens,
        micro_failures=0,
        micro_failed_row=0,
    )


def after_failure(state: CompressionState, place: int) -> CompressionState:
    """The state after a failure at a place: the original that begins it."""
    again = state.micro_failed_row == place
    return state.changed(
        micro_failed_row=place, micro_failures=state.micro_failures + 1 if again else 1
    )


def given_up(state: CompressionState, place: int) -> bool:
    """Has it failed there too often?"""
    return state.micro_failed_row == place and state.micro_failures >= MAX_FAILURES
