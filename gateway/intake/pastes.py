"""Owns when a text may be one piece of a longer one that its app had to cut (pure)."""

from __future__ import annotations

from gateway.delivery.splitting import utf16_len

CLOSE_SECONDS = 3.0
"""Pieces of one paste leave the app in one go; by the platform's clock, often in whole seconds.
Nobody writes a text of that length so soon after another one."""
NEAR_LIMIT = 0.75
"""Apps rather cut at the end of a paragraph than in a word, and go back some way for it."""


def may_be_cut(text: str, limit: object) -> bool:
    """Is it so near to the app's limit (UTF-16 units; None: there is none) that more may follow?"""
    if not isinstance(limit, int) or limit <= 0:
        return False
    return utf16_len(text) >= NEAR_LIMIT * limit


def is_close(one_sent_at: float, other_sent_at: float) -> bool:
    """Were they sent so soon after each other that they may be one?"""
    return abs(one_sent_at - other_sent_at) <= CLOSE_SECONDS
