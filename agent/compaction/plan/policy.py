"""Owns when compaction may run: cool-downs, anti-thrash, hold. Pure; time is handed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.compaction.plan.failures import FailureKind
from agent.model_metadata import Measurement
from agent.sessions import CompressionState, LoadedSession

COOLDOWN_LADDER_SECONDS = (60.0, 300.0, 900.0)
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
"""So many useless compressions in a row, or makeshift ones."""
RUSHED_AFTER = 3
"""So many compressions in a row with hardly anything new between them."""
RUSHED_RATIO = 0.10
"""Of the threshold: less than this much that is new makes the next compression a rushed one."""
PROBE_SECONDS = 300.0
"""A blocked conversation is tried again after this long."""
RELEASE_GROWTH = 1.20
"""Or when it has grown to this multiple of its size when it was blocked."""

MAX_BIAS = 4.0
"""A real size further off the estimate than this says something else than "estimated too low"."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """May compaction run? ``reason`` if not.

    ``cooldown:<seconds>``, ``ineffective``, ``too often``, or words.
    """

    allowed: bool
    reason: str | None = None


def verdict(
    state: CompressionState,
    now: float,
    size: Measurement | None = None,
    *,
    ignore_block: bool = False,
) -> Verdict:
    """May compaction run by itself now?

    Args:
        state: What is remembered.
        now: Unix seconds.
        size: Of the next prompt: what holds and blocks are released by; None: not known.
        ignore_block: For the last net before the agent: only cool-downs count there.
    """
    if left := cooldown_left(state, now):
        return Verdict(False, f"cooldown:{int(left) + 1}")
    if ignore_block:
        return Verdict(True)
    if state.hold_tokens > 0 and (size is None or not size.reaches(state.hold_tokens)):
        return Verdict(False, held_text(state.hold_tokens))
    why = blocked_for(state)
    if why and not _released(state, now, size):
        return Verdict(False, why)
    return Verdict(True)


def in_words(state: CompressionState, reason: str, now: float) -> str:
    """A verdict's reason as a person reads it."""
    if reason.startswith("cooldown:"):
        left = int(cooldown_left(state, now)) + 1
        return f"{state.cooldown_reason or 'the last try failed'} (next try in {left} s)"
    match reason:
        case "ineffective":
            why = "the last compressions made too little room"
        case "too often":
            why = "it was compressed too often, with hardly anything new in between"
        case _:
            return reason or "compression is blocked"
    return f"{why} (tried again in five minutes, or when the conversation has grown by a fifth)"


def held_text(hold_tokens: int) -> str:
    """Why nothing is compressed after a compression was undone."""
    return f"compression is held until {hold_tokens:,} tokens, after /uncompress"


# --- cool-downs ---------------------------------------------------------------------------------


def cooldown_left(state: CompressionState, now: float) -> float:
    """Seconds of cool-down that are left; 0: none."""
    left = state.cooldown_until - now
    return left if 0.0 < left <= MAX_COOLDOWN_SECONDS else 0.0


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
        seconds = _on_ladder(streak)
        streak += 1
    else:
        seconds = _COOLDOWN_SECONDS[kind]
    seconds = min(MAX_COOLDOWN_SECONDS, max(seconds, retry_after_seconds or 0.0))
    return state.changed(
        cooldown_until=now + seconds, cooldown_reason=reason, timeout_streak=streak
    )


def after_waste(
    state: CompressionState, reason: str, now: float, size: Measurement
) -> CompressionState:
    """The state after a result was paid for that is of no use: it counts as ineffective.

    It cools down too, longer each time: the last net ignores the block, and would pay again.
    """
    seconds = _on_ladder(state.ineffective_count)
    cooling = state.changed(cooldown_until=now + seconds, cooldown_reason=reason)
    return after_nothing(cooling, now, size)


def _on_ladder(step: int) -> float:
    return COOLDOWN_LADDER_SECONDS[min(step, len(COOLDOWN_LADDER_SECONDS) - 1)]


# --- anti-thrash --------------------------------------------------------------------------------


def blocked_for(state: CompressionState) -> Literal["", "ineffective", "too often"]:
    """Which kind of thrashing a conversation is blocked for; "": none."""
    if state.ineffective_count >= BLOCK_AFTER or state.fallback_streak >= BLOCK_AFTER:
        return "ineffective"
    return "too often" if state.rushed_streak >= RUSHED_AFTER else ""


def _released(state: CompressionState, now: float, size: Measurement | None) -> bool:
    """By time, also where the clock was set back, or by growth, where the two sizes compare."""
    if not 0.0 <= now - state.blocked_at < PROBE_SECONDS:
        return True
    if size is None or state.blocked_tokens <= 0:
        return False
    if (size.source != "usage") != state.blocked_by_estimate:
        return False
    return size.tokens >= RELEASE_GROWTH * state.blocked_tokens


def _judged(state: CompressionState, now: float, size: Measurement) -> CompressionState:
    """The state with the moment and the size of its block, if it is blocked."""
    if not blocked_for(state):
        return state
    return state.changed(
        blocked_at=now, blocked_tokens=size.tokens, blocked_by_estimate=size.source != "usage"
    )


def after_nothing(state: CompressionState, now: float, size: Measurement) -> CompressionState:
    """The state after a pass that could not make anything smaller: it counts as ineffective."""
    counted = state.changed(ineffective_count=state.ineffective_count + 1)
    return _judged(counted, now, size)


def after_compression(
    state: CompressionState,
    now: float,
    *,
    mode: Literal["prune", "summary", "deterministic", "native"],
) -> CompressionState:
    """The state after a compression: the size is unknown until the next usage.

    Only a healthy summary ends a cool-down and the row of makeshift ones.
    """
    done = state.changed(
        count=state.count + 1, awaiting_usage=True, hold_tokens=0, prune_at_tokens=0
    )
    match mode:
        case "summary" | "native":
            return done.changed(
                cooldown_until=0.0,
                cooldown_reason="",
                cooldown_ignored=False,
                timeout_streak=0,
                fallback_streak=0,
                told_reason="",
            )
        case "deterministic":
            makeshift = done.changed(fallback_streak=state.fallback_streak + 1)
            return makeshift.changed(blocked_at=now) if blocked_for(makeshift) else makeshift
        case "prune":
            return done


def gained_since(loaded: LoadedSession, size: Measurement, prefix_tokens: int) -> int | None:
    """About how many tokens were said since the last compression; None: there was none.

    Args:
        loaded: The session, with its newest compression state.
        size: Of its next prompt: where that is measured, it corrects the estimate.
        prefix_tokens: Estimate of its system prompt and tools.
    """
    seen = loaded.session.compression.seen_row_id
    if not seen:
        return None
    fresh = sum(
        row.tokens
        for row in loaded.rows
        if row.root_id > seen and row.kind not in ("summary", "micro", "note")
    )
    estimate = prefix_tokens + sum(row.tokens for row in loaded.rows)
    if size.source != "usage" or not estimate:
        return fresh
    return int(fresh * min(MAX_BIAS, max(1.0, size.tokens / estimate)))


def after_progress(
    state: CompressionState,
    now: float,
    *,
    gained_tokens: int | None,
    threshold_tokens: int,
    after: Measurement,
    seen_row_id: int,
) -> CompressionState:
    """The state after a compression, judged by how much was new since the one before.

    Not by the clock: a fast conversation is none that runs in circles.

    Args:
        state: After the compression.
        now: Unix seconds.
        gained_tokens: What was said since the one before; None: nothing to judge, or somebody
            asked for this one.
        threshold_tokens: Where compressions begin.
        after: The size that it left.
        seen_row_id: The newest original that it has seen.
    """
    state = state.changed(seen_row_id=max(seen_row_id, state.seen_row_id))
    if gained_tokens is not None:
        rushed = gained_tokens < RUSHED_RATIO * threshold_tokens
        state = state.changed(rushed_streak=state.rushed_streak + 1 if rushed else 0)
        if rushed or not state.blocked_tokens:
            state = _judged(state, now, after)
    return state


def after_usage(
    state: CompressionState, prompt_tokens: int, threshold_tokens: int, now: float
) -> CompressionState:
    """The state after a real prompt size: the only judge of the compression before it.

    A size of 0 says nothing.
    """
    if prompt_tokens <= 0:
        return state
    real = Measurement(prompt_tokens, "usage")
    if prompt_tokens < threshold_tokens:
        if state.awaiting_usage or state.ineffective_count:
            state = state.changed(awaiting_usage=False, ineffective_count=0)
        if not blocked_for(state) and (state.told_block or state.blocked_tokens):
            state = state.changed(told_block="", blocked_tokens=0, blocked_by_estimate=False)
    elif state.awaiting_usage:
        state = after_nothing(state.changed(awaiting_usage=False), now, real)
    if blocked_for(state) and (state.blocked_by_estimate or not state.blocked_tokens):
        # what was only estimated when the block began: from now on real sizes are compared
        state = state.changed(blocked_tokens=prompt_tokens, blocked_by_estimate=False)
    return state
