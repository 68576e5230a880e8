"""Owns what a kept message is, and the names that the file goes by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OWN_TOOLS = "lossless_"
"""So begin the names of the engine's tools."""


@dataclass(frozen=True, slots=True)
class Original:
    """A message as it is kept."""

    number: int
    digest: str
    role: str
    stored: str
    tokens: int
    seen_at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A message to be kept, with its digest."""

    message: Mapping[str, Any]
    digest: str
    tokens: int
    own: bool = False
    """Is it a result of the engine's own tools? It repeats others, and is not searched for."""


def scope_word(conversation: int) -> str:
    """The word that limits a search to one conversation before anything is ranked."""
    return f"scopeofconversation{conversation}"
