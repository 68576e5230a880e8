"""Owns what a check finds: how bad it is, what it is, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "problem"]
"""ok: as it should be; note: worth knowing; warning: will trouble you; problem: does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's."""

    area: str
    level: Level
    text: str
    remedy: str = ""
    """What to do, as somebody at 3 a.m. types it; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Area:
    """One part of the examination; it may take its time, and nobody waits for it for ever."""

    name: str
    look: Callable[[], Iterable[Finding]]
    seconds: float


class Said:
    """Collects what one area finds."""

    def __init__(self, area: str) -> None:
        self._area = area
        self.findings: list[Finding] = []

    def ok(self, text: str) -> None:
        """As it should be."""
        self.findings.append(Finding(self._area, "ok", text))

    def note(self, text: str, remedy: str = "") -> None:
        """Worth knowing."""
        self.findings.append(Finding(self._area, "note", text, remedy))

    def warning(self, text: str, remedy: str) -> None:
        """It works, and will trouble somebody."""
        self.findings.append(Finding(self._area, "warning", text, remedy))

    def problem(self, text: str, remedy: str) -> None:
        """It does not work."""
        self.findings.append(Finding(self._area, "problem", text, remedy))
