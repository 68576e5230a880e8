"""Owns what "ready" means (pure): can anybody be served?

``/readyz`` and ``posthouse status`` say the same. That the process lives is ``/healthz``; that it
should be started anew is the watchdog's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.platforms.contract import PlatformState

PATIENCE_SECONDS = 60.0
"""So long a platform may try to come back before it counts as one that serves nobody."""
_WELL = (PlatformState.STARTING, PlatformState.RUNNING)


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """How a platform is."""

    state: PlatformState
    reason: str = ""
    troubled_seconds: float = 0.0
    """Since it last worked."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Ready or not, and in words how it is."""

    ready: bool
    state: str
    """``ready``, ``degraded`` (ready, but not all of it), ``not ready``, ``starting``."""
    reasons: tuple[str, ...] = ()


def judge(
    *,
    started: bool,
    store_trouble: str | None,
    platforms: Mapping[str, PlatformFacts],
    console: str,
) -> Readiness:
    """``console``: the name of the platform that serves only whoever sits here.

    It counts where there is no other one.
    """
    if not started:
        return Readiness(False, "starting")
    if store_trouble is not None:
        return Readiness(False, "not ready", (f"nothing can be stored: {store_trouble}",))
    real = {name: facts for name, facts in platforms.items() if name != console} or platforms
    reasons = tuple(
        f"{name} {_in_words(facts)}" for name, facts in real.items() if facts.state not in _WELL
    )
    if real and not any(serves(facts) for facts in real.values()):
        return Readiness(False, "not ready", reasons)
    return Readiness(True, "degraded" if reasons else "ready", reasons)


def serves(facts: PlatformFacts) -> bool:
    """Does it serve people, or is it about to?"""
    match facts.state:
        case PlatformState.STARTING | PlatformState.RUNNING | PlatformState.DEGRADED:
            return True
        case PlatformState.RETRYING:
            return facts.troubled_seconds < PATIENCE_SECONDS
        case PlatformState.FAILED_CONFIG:
            return False


def _in_words(facts: PlatformFacts) -> str:
    since = f" for {facts.troubled_seconds:.0f} s" if facts.troubled_seconds >= 1 else ""
    return f"{facts.state.value}{since}" + (f": {facts.reason}" if facts.reason else "")
