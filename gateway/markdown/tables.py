"""Owns a table in plain characters, since neither platform has one: columns, or rows (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.markdown.html import LINE_BREAK

WIDEST_COLUMNS = 48
"""Of characters: wider than this, a telephone breaks the lines and no column is one any more."""
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as a reader sees it, and the Markdown that it is made of."""

    shown: str
    """Its lines."""
    source: str


@dataclass(frozen=True, slots=True)
class Table:
    """The head is the first row. Rows may be shorter than others."""

    rows: Sequence[Sequence[Cell]]
    alignments: Sequence[str]
    """``None``, ``Left``, ``Center`` or ``Right``, by column."""
    has_links: bool = False
    """Columns of characters could not carry them."""

    def is_narrow(self) -> bool:
        """Does it look good as columns of characters?"""
        widths = self._widths()
        return not self.has_links and sum(widths) + 3 * (len(widths) - 1) <= WIDEST_COLUMNS

    def columns(self) -> list[str]:
        """Its lines, one below the other in a font of one width."""
        widths = self._widths()
        lines: list[str] = []
        for n, row in enumerate(self.rows):
            lines += self._row(row, widths)
            if n == 0 and len(self.rows) > 1:
                lines.append("-+-".join("-" * width for width in widths))
        return lines

    def records(self) -> list[str]:
        """Its lines as a list: an item per row, in it a line of Markdown per cell."""
        head, *rows = self.rows
        if not rows:
            rows, head = [head], ()
        lines: list[str] = []
        for row in rows:
            mark = "- "
            for n, cell in enumerate(row):
                name = head[n].source.strip() if n < len(head) else ""
                text, *more = [line.strip() for line in cell.source.split("\n")]
                if not text and not (name and mark == "- "):
                    continue
                lines.append(f"{mark}{_named(name)}{text}".rstrip())
                lines += [f"  {line}" for line in more]
                mark = "  "
        if not rows or not lines:
            return [" ".join(cell.source for cell in head)]
        return lines

    def _widths(self) -> list[int]:
        widths = [0] * max(len(row) for row in self.rows)
        for row in self.rows:
            for n, cell in enumerate(row):
                widths[n] = max(widths[n], *map(width, cell.shown.split("\n")))
        return widths

    def _row(self, row: Sequence[Cell], widths: Sequence[int]) -> list[str]:
        cells = [cell.shown.split("\n") for cell in row]
        height = max((len(lines) for lines in cells), default=1)
        return [
            " | ".join(
                self._padded(cells[n][at] if n < len(cells) and at < len(cells[n]) else "", n, size)
                for n, size in enumerate(widths)
            ).rstrip()
            for at in range(height)
        ]

    def _padded(self, text: str, column: int, size: int) -> str:
        room = size - width(text)
        alignment = self.alignments[column] if column < len(self.alignments) else "None"
        if alignment == "Right":
            return " " * room + text
        if alignment == "Center":
            return " " * (room // 2) + text + " " * (room - room // 2)
        return text + " " * room


def _named(name: str) -> str:
    if not name:
        return ""
    return f"{name}: " if "*" in name else f"**{name}:** "


def width(text: str) -> int:
    """In columns of a font of one width: CJK and emoji take two, what combines takes none."""
    if text.isascii():
        return len(text)
    columns = 0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            columns += 2
        elif unicodedata.category(char) not in _NO_WIDTH:
            columns += 1
    return columns


def cell_source(source: str) -> str:
    """The Markdown of a cell, which has lines of its own here."""
    text = source.strip().removeprefix("|").removesuffix("|")
    return LINE_BREAK.sub("\n", text.replace("\\|", "|")).strip()
