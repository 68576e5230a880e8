"""Owns the pressure warning: when the user reads that the context is filling up. Pure.

It goes to the user, the log and the metrics, never into the model's messages.
"""

from __future__ import annotations

from agent.sessions import CompressionState

TIERS = (0.85, 0.95)
"""Shares of the compression threshold at which the user is told."""
REPEAT_SECONDS = 300.0
"""The same tier is not told again within this time."""


def pressure_tier(prompt_tokens: int, threshold_tokens: int) -> float:
    """The highest tier that a prompt size has reached; 0.0: none."""
    if threshold_tokens <= 0:
        return 0.0
    share = prompt_tokens / threshold_tokens
    return max((tier for tier in TIERS if share >= tier), default=0.0)


def after_size(
    state: CompressionState, prompt_tokens: int, threshold_tokens: int, now: float
) -> tuple[CompressionState, bool]:
    """The state after a real prompt size, and whether the user should be told now.

    A higher tier is told at once. A tier that was left and reached again is told again, but not
    within `REPEAT_SECONDS`.
    """
    tier = pressure_tier(prompt_tokens, threshold_tokens)
    if tier <= state.pressure_tier:
        return (state if tier == state.pressure_tier else state.changed(pressure_tier=tier)), False
    recently = 0.0 <= now - state.pressure_at < REPEAT_SECONDS
    if recently and state.pressure_tier == 0.0 and tier == TIERS[0]:
        return state.changed(pressure_tier=tier), False
    return state.changed(pressure_tier=tier, pressure_at=now), True


def after_compression(
    state: CompressionState, tokens_after: int, threshold_tokens: int
) -> CompressionState:
    """The state after a compression: the warning is armed again if there is room again."""
    if pressure_tier(tokens_after, threshold_tokens):
        return state
    return state.changed(pressure_tier=0.0, pressure_at=0.0)


def pressure_text(
    prompt_tokens: int, threshold_tokens: int, window_tokens: int, *, automatic: bool
) -> str:
    """What the user reads."""
    percent = round(100 * prompt_tokens / max(1, threshold_tokens))
    share = round(100 * threshold_tokens / max(1, window_tokens))
    filled = min(20, round(20 * prompt_tokens / max(1, threshold_tokens)))
    bar = "▰" * filled + "▱" * (20 - filled)
    if not automatic:
        following = "Automatic compression is off: /compress makes room."
    else:
        when = "At the threshold" if prompt_tokens < threshold_tokens else "Before the next answer"
        following = f"{when} older messages are summarised; nothing is lost."
    return (
        f"Context {bar} {percent} % of the compression threshold "
        f"({prompt_tokens:,}/{threshold_tokens:,} tokens; the threshold is {share} % of the "
        f"window). {following}"
    )
