"""Owns when compaction may run: failure kinds, cool-downs, anti-thrash. Pure; time is handed in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.compaction.summary import SummaryRejected
from agent.errors import (
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
)
from agent.sessions import CompressionState

FailureKind = Literal[
    "missing_key",
    "auth",
    "quota",
    "timeout",
    "rate_limit",
    "overload",
    "connection",
    "not_found",
    "bad_request",
    "unusable",
    "other",
]

TIMEOUT_LADDER_SECONDS = (60.0, 300.0, 900.0)
_COOLDOWN_SECONDS: dict[FailureKind, float] = {
    "missing_key": 600.0,
    "auth": 60.0,
    "quota": 60.0,
    "connection": 30.0,
    "not_found": 60.0,
    "bad_request": 60.0,
    "unusable": 60.0,
    "other": 60.0,
}
MAX_COOLDOWN_SECONDS = 900.0
"""No stored cool-down is believed to be longer: the clock was set back."""
BLOCK_AFTER = 2
PROBE_SECONDS = 300.0
"""A blocked conversation is tried again after this long."""

_MISSING_KEY = re.compile(r"\b(?:no|missing|without)\b.{0,30}\bkey\b|not configured", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """May compaction run? ``reason`` if not: ``cooldown:<seconds>`` or ``ineffective``."""

    allowed: bool
    reason: str | None = None


def classify(error: Exception) -> FailureKind:
    """What kind of failure of the summary call this is."""
    match error:
        case ModelAuthError():
            return "missing_key" if _MISSING_KEY.search(str(error)) else "auth"
        case ModelQuotaError():
            return "quota"
        case ModelNotFound():
            return "not_found"
        case ModelRateLimited():
            return "rate_limit"
        case ModelOverloaded():
            return "overload"
        case ModelTimeout() | TimeoutError():
            return "timeout"
        case ModelConnectionError() | ConnectionError() | ValueError():
            return "connection"  # ValueError: a body that is no JSON, like a stream that broke
        case ModelUnavailable():
            return "overload"
        case ModelBadRequest():
            return "bad_request"
        case SummaryRejected():
            return "unusable"
        case _:
            return "other"


def describe(kind: FailureKind, error: Exception) -> str:
    """The failure in words that a user may read: no keys, no address, no stack."""
    match kind:
        case "missing_key":
            return "no key is configured for the summary model"
        case "auth":
            return "the provider refused the key of the summary model"
        case "quota":
            return "the provider's quota is used up"
        case "timeout":
            return "the summary model did not answer in time"
        case "rate_limit":
            return "the provider is limiting the rate"
        case "overload":
            return "the provider is overloaded"
        case "connection":
            return "the connection to the summary model broke"
        case "not_found":
            return "the provider does not know the summary model"
        case "bad_request":
            return "the provider refused the summary request"
        case "unusable":
            return str(error)
        case "other":
            return f"the summary failed ({type(error).__name__})"


def after_failure(
    state: CompressionState,
    kind: FailureKind,
    reason: str,
    now: float,
    *,
    retry_after_seconds: float | None = None,
) -> CompressionState:
    """The state after an abort: nothing was changed, and not again before the cool-down is over."""
    streak = state.timeout_streak
    if kind in ("timeout", "rate_limit", "overload"):
        seconds = TIMEOUT_LADDER_SECONDS[min(streak, len(TIMEOUT_LADDER_SECONDS) - 1)]
        streak += 1
    else:
        seconds = _COOLDOWN_SECONDS[kind]
    seconds = min(MAX_COOLDOWN_SECONDS, max(seconds, retry_after_seconds or 0.0))
    return state.changed(
        cooldown_until=now + seconds, cooldown_reason=reason, timeout_streak=streak
    )


def after_compression(
    state: CompressionState,
    body: str,
    now: float,
    *,
    mode: Literal["prune", "summary", "deterministic"],
) -> CompressionState:
    """The state after a compression: the size is unknown until the next usage.

    Only a healthy summary ends a cool-down and the row of makeshift ones.
    """
    done = state.changed(count=state.count + 1, awaiting_usage=True, previous_summary=body)
    match mode:
        case "summary":
            return done.changed(
                cooldown_until=0.0,
                cooldown_reason="",
                timeout_streak=0,
                fallback_streak=0,
                told_reason="",
            )
        case "deterministic":
            streak = state.fallback_streak + 1
            blocked_at = now if streak >= BLOCK_AFTER else state.blocked_at
            return done.changed(fallback_streak=streak, blocked_at=blocked_at)
        case "prune":
            return done


def after_nothing(state: CompressionState, now: float) -> CompressionState:
    """The state after a pass that could not make anything smaller: it counts as ineffective."""
    count = state.ineffective_count + 1
    return state.changed(
        ineffective_count=count, blocked_at=now if count >= BLOCK_AFTER else state.blocked_at
    )


def after_usage(
    state: CompressionState, prompt_tokens: int, threshold_tokens: int, now: float
) -> CompressionState:
    """The state after a real prompt size: the only judge of the compression before it.

    A size of 0 says nothing.
    """
    if prompt_tokens <= 0:
        return state
    if prompt_tokens < threshold_tokens:
        if not (state.awaiting_usage or state.ineffective_count):
            return state
        return state.changed(awaiting_usage=False, ineffective_count=0)
    if not state.awaiting_usage:
        return state
    return after_nothing(state.changed(awaiting_usage=False), now)


def cooldown_left(state: CompressionState, now: float) -> float:
    """Seconds of cool-down that are left; 0: none."""
    left = state.cooldown_until - now
    return left if 0.0 < left <= MAX_COOLDOWN_SECONDS else 0.0


def verdict(state: CompressionState, now: float, *, ignore_block: bool = False) -> Verdict:
    """May compaction run by itself now?

    Args:
        state: What is remembered.
        now: Unix seconds.
        ignore_block: For the last net before the agent: anti-thrash does not count there.
    """
    if left := cooldown_left(state, now):
        return Verdict(False, f"cooldown:{int(left) + 1}")
    blocked = state.ineffective_count >= BLOCK_AFTER or state.fallback_streak >= BLOCK_AFTER
    if blocked and not ignore_block and 0.0 <= now - state.blocked_at < PROBE_SECONDS:
        return Verdict(False, "ineffective")
    return Verdict(True)
