"""Owns what families of models do with thinking: data, by parts of their names.

Unknown models get nothing: whatever they do with thinking by themselves is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a family thinks."""

    kind: Literal["adaptive", "enabled"]
    """What ``thinking.type`` it takes: the model decides how much, or the request sets a budget."""
    bound: bool = False
    """A block is only accepted behind the very prefix that it was made behind; the request may ask
    for such blocks to be dropped instead of being refused."""
    display: Literal["summarized"] | None = None
    """Set where words for the user may come as thinking: without it their text would be empty."""


FAMILIES: Mapping[str, Thinking] = {
    "claude-sonnet-5-5": Thinking("adaptive", bound=True, display="summarized"),
    "claude-opus-5-5": Thinking("adaptive", bound=True, display="summarized"),
    "claude-haiku-5-5": Thinking("adaptive", bound=True, display="summarized"),
    "claude-fable-5-1": Thinking("adaptive", bound=True),
    "claude-fable-5-2": Thinking("adaptive", bound=True),
    "claude-mythos-5-1": Thinking("adaptive", bound=True),
    "claude-mythos-5-2": Thinking("adaptive", bound=True),
    "claude-opus-5": Thinking("adaptive"),
    "claude-sonnet-5": Thinking("adaptive"),
    "claude-fable-5": Thinking("adaptive"),
    "claude-opus-4-6": Thinking("adaptive"),
    "claude-opus-4-7": Thinking("adaptive"),
    "claude-opus-4-8": Thinking("adaptive"),
    "claude-sonnet-4-6": Thinking("adaptive"),
    "claude-opus-4-5": Thinking("enabled"),
    "claude-sonnet-4-5": Thinking("enabled"),
    "claude-haiku-4-5": Thinking("enabled"),
    "claude-opus-4-1": Thinking("enabled"),
    "claude-sonnet-4": Thinking("enabled"),
    "claude-3-7-sonnet": Thinking("enabled"),
}
"""Part of a model's name → how it thinks; the longest part that fits wins."""


def thinking_of(model: str) -> Thinking | None:
    """How a model thinks, by its name; None: nobody knows."""
    name = model.lower()
    parts = [part for part in FAMILIES if part in name]
    return FAMILIES[max(parts, key=len)] if parts else None
