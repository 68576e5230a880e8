"""Owns how long the supervisor waits before it runs a platform again (pure)."""

from __future__ import annotations

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0
RECOVERY_SECONDS = 5.0
"""The longest pause of a platform that only could not be reached: whatever is owed there has to be
out within ten seconds of the network's return."""
LONGEST_WISH_SECONDS = 3600.0
"""For which a platform may ask; it looks again then."""


def backoff_seconds(
    failures: int, jitter: float, longest: float = LONGEST_BACKOFF_SECONDS
) -> float:
    """The pause after so many failures in a row; ``jitter`` from 0 to 1 spreads it by a quarter."""
    pause: float = min(longest, FIRST_BACKOFF_SECONDS * 2 ** min(failures, 10))
    return pause * (0.75 + jitter / 2)
