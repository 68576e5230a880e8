"""Owns when a preview shows more: quick at first, slower the longer it takes (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.delivery.chats import spare_calls
from gateway.delivery.unfinished import is_worth_showing
from gateway.platforms.contract import PreviewBounds


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """How previews are paced, beside what their chat takes."""

    first_seconds: float = 0.3
    """After the first text, if there is a sentence by then: a quick answer needs no preview."""
    first_at_last_seconds: float = 1.0
    enough_chars: int = 40
    interval_seconds: float = 1.0
    """Between the first two; from then on it grows up to what the chat takes for long."""
    interval_growth: float = 1.2
    least_sleep_seconds: float = 0.01
    refresh_seconds: float = 20.0
    """A draft goes by itself some seconds after this."""
    strikes: int = 3
    """Floods, or failures in a row, after which a turn shows no more."""
    note_tries: int = 5
    note_pause_seconds: float = 1.0
    patience_seconds: float = 2.0
    """What a call that is under way at the end may still take."""

    def wait_for_first(self, waited_seconds: float, text: str) -> float:
        """How long until the first is due, so long after the first text; 0: now."""
        if waited_seconds < self.first_seconds:
            return self.first_seconds - waited_seconds
        if is_worth_showing(text, self.enough_chars):
            return 0.0
        # In small steps, for there may be a sentence sooner.
        left = self.first_at_last_seconds - waited_seconds
        return min(max(0.0, left), self.first_seconds)

    def interval(self, shown: int, failures: int, bounds: PreviewBounds) -> float:
        """Between the preview of this number and the next, behind so many failures in a row."""
        longest = bounds.seconds / spare_calls(bounds)
        grown = self.interval_seconds * self.interval_growth ** min(shown - 1, 64)
        return max(self.interval_seconds, min(longest, grown)) * 2.0 ** min(failures, 16)
