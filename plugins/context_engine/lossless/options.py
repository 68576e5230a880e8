"""Owns what can be set, and the sizes that follow from a model's window. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FALLBACK_THRESHOLD_TOKENS = 96_000
"""Counts as long as nobody has named a window."""


@dataclass(frozen=True, slots=True)
class Options:
    """``plugins.entries.lossless.settings``, or a section ``lossless`` of its own."""

    threshold: float = 0.75
    """Share of the window from which on it compresses."""
    leaf_tokens: int = 0
    """How much one summary of messages covers; 0: by the window."""
    fanout: int = 4
    """So many nodes of one depth, side by side, become one of the next depth."""
    tail_share: float = 0.25
    """Share of the threshold that the newest messages keep at least."""
    summary_timeout_seconds: float = 0.0
    """For each call of the model; 0: as the host has it for side tasks."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What follows from a threshold."""

    leaf_tokens: int
    body_tokens: int
    """Of a summary's text."""
    tail_tokens: int
    most_tail_tokens: int
    """The tail gets no larger for the sake of a number of messages."""
    roots_tokens: int
    """With more than this, nodes are condensed before there are enough of one depth."""


def sizes_for(threshold_tokens: int, options: Options) -> Sizes:
    """The sizes in force."""
    threshold = threshold_tokens if threshold_tokens > 0 else FALLBACK_THRESHOLD_TOKENS
    leaf = options.leaf_tokens or min(20_000, max(800, threshold // 6))
    tail = int(threshold * options.tail_share)
    return Sizes(
        leaf_tokens=leaf,
        body_tokens=min(1500, max(120, leaf // 6)),
        tail_tokens=tail,
        most_tail_tokens=max(tail, threshold // 2),
        roots_tokens=max(600, threshold // 4),
    )


def options_from(setting: Callable[[str, Any], Any]) -> Options:
    """The settings as the host gives them, one by one.

    Raises:
        ValueError: One of them is not usable; says which, and what is.
    """
    usual = Options()
    return Options(
        threshold=_number(setting, "threshold", usual.threshold, 0.1, 0.95),
        leaf_tokens=int(_number(setting, "leaf_tokens", usual.leaf_tokens, 0, 200_000)),
        fanout=int(_number(setting, "fanout", usual.fanout, 2, 32)),
        tail_share=_number(setting, "tail_share", usual.tail_share, 0.05, 0.5),
        summary_timeout_seconds=_number(
            setting, "summary_timeout_seconds", usual.summary_timeout_seconds, 0, 600
        ),
    )


def _number(
    setting: Callable[[str, Any], Any], name: str, usual: float, least: float, most: float
) -> float:
    value = setting(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(
            f"lossless.{name} is {value!r}; it has to be a number from {least:g} to {most:g}"
        )
    return float(value)
