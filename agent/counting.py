"""Owns how a number stands with its noun, wherever people read one (pure)."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """``1 file``, ``2 files``, ``1,000 files``; ``many``: where it is not just an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
