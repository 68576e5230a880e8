"""Owns from where on a plugin's context engine compresses, also before a conversation has one."""

from __future__ import annotations

import math

from agent.context_engine import ContextEngine


class EngineTrigger:
    """By the engine's share of the window, until an instance that knows the window says more."""

    def __init__(self) -> None:
        self._share: float | None = None
        self._told: tuple[int, int] | None = None

    def look_at(self, engine: ContextEngine) -> None:
        """On the engine's thread: an instance that nobody has told the window."""
        share: object = getattr(engine, "threshold_percent", None)
        if isinstance(share, int | float) and not isinstance(share, bool):
            self._share = float(share) if math.isfinite(share) and 0 < share <= 1 else None

    def told(self, window_tokens: int, threshold_tokens: int) -> None:
        """What an instance says that knows its window; 0: it does not say."""
        if threshold_tokens > 0:
            self._told = (window_tokens, threshold_tokens)

    def tokens(self, window_tokens: int) -> int | None:
        """For this window; None: nobody knows."""
        if self._told is not None and self._told[0] == window_tokens:
            return self._told[1]
        return None if self._share is None else int(window_tokens * self._share)
