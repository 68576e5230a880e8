"""Owns the named points between two statements at which a test may stop the world.

Nothing is installed in production; a point then costs one comparison. Tests install a hook that
raises or kills the process, to show that every transaction is wholly done or not done at all.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Call this at every point from now on; None takes it away again."""
    global _hook
    _hook = hook


def faultpoint(name: str) -> None:
    """A point, named ``method.what_was_done_just_before``."""
    if _hook is not None:
        _hook(name)
