"""Owns a Markdown text under revision: what is to stand where instead, by bytes (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Edit = tuple[int, int, str]
"""From, to (bytes of the source), and what is to stand there."""


@dataclass(slots=True)
class Source:
    """The text as it came, and the edits so far."""

    data: bytes
    edits: list[Edit] = field(default_factory=list)

    def edit(self, start: int, end: int, text: str) -> None:
        """Put ``text`` there in the end."""
        self.edits.append((start, end, text))

    def text(self, start: int, end: int) -> str:
        """As it came."""
        return self.data[start:end].decode("utf-8")

    def lines(self, lines: Sequence[str], start: int) -> str:
        """Lines of a block that begins at ``start``, also inside of quotes and list items."""
        begins = self.data.rfind(b"\n", 0, start) + 1
        lead = re.sub(r"[^\s>]", " ", self.text(begins, start))
        return f"\n{lead}".join(lines)

    def applied(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        """A piece with these edits; those inside of what another replaces are void."""
        parts: list[str] = []
        at = start
        for first, last, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
            if first < at or last > end:
                continue
            parts += [self.text(at, first), text]
            at = last
        return "".join([*parts, self.text(at, end)])
