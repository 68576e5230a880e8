"""Owns how a recorded chat looks as a picture (SVG, pure): the same input gives the same bytes.

No font is brought along, so lines are broken by the widths of a common one, with room to spare; on
a line, runs of different styles follow each other by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

SANS = "-apple-system, 'Segoe UI', Helvetica, Arial, 'Noto Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
MONO_EM = 0.605
BOLD_FACTOR = 1.1
SPARE = 1.17
"""Other fonts are wider: DejaVu by so much."""
# Of Helvetica, in thousandths of its size, from the space on.
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """How a run of text looks."""

    size: float = 14
    bold: bool = False
    italic: bool = False
    mono: bool = False
    colour: str = ""
    underlined: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one style."""

    text: str
    style: Style


Line = tuple[Run, ...]


def width(text: str, style: Style) -> float:
    """About how wide it is."""
    if style.mono:
        return len(text) * MONO_EM * style.size
    units = sum(
        _WIDTHS[ord(char) - 32] if " " <= char <= "~" else 1000 if char > "\u2e80" else 650
        for char in text
    )
    return units / 1000 * style.size * (BOLD_FACTOR if style.bold else 1) * SPARE


def wrapped(runs: Iterable[Run], room: float) -> list[Line]:
    """Runs as lines that fit; breaks in the text stay."""
    lines: list[list[Run]] = [[]]
    used = 0.0
    for run in runs:
        for n, paragraph in enumerate(run.text.split("\n")):
            if n:
                lines.append([])
                used = 0.0
            for word in _words(paragraph):
                size = width(word.rstrip(), run.style)
                if used and used + size > room:
                    lines.append([])
                    used = 0.0
                lines[-1].append(replace(run, text=word))
                used += width(word, run.style)
    return [_joined(line) for line in lines]


def _words(text: str) -> list[str]:
    words = [f"{piece} " for piece in text.split(" ")]
    words[-1] = words[-1][:-1]
    return [word for word in words if word]


def _joined(line: Sequence[Run]) -> Line:
    made: list[Run] = []
    for run in line:
        if made and made[-1].style == run.style:
            made[-1] = replace(run, text=made[-1].text + run.text)
        else:
            made.append(run)
    return tuple(made)


def line_width(line: Line) -> float:
    """About how wide it is."""
    return sum(width(run.text, run.style) for run in line)


class Canvas:
    """Collects shapes from top to bottom."""

    def __init__(self, wide: int, background: str, title: str) -> None:
        self._wide = wide
        self._background = background
        self._title = title
        self._shapes: list[str] = []

    def box(
        self, x: float, y: float, wide: float, high: float, fill: str, *, radius: float = 0,
        stroke: str = "",
    ) -> None:  # fmt: skip
        edge = f' stroke="{stroke}"' if stroke else ""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            f'rx="{radius:g}" fill="{fill}"{edge}/>'
        )

    def circle(self, x: float, y: float, radius: float, fill: str) -> None:
        self._shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>')

    def path(self, path: str, fill: str) -> None:
        self._shapes.append(f'<path d="{path}" fill="{fill}"/>')

    def text(self, x: float, y: float, line: Line, colour: str, *, middle: bool = False) -> None:
        """A line with its base at ``y``."""
        anchor = ' text-anchor="middle"' if middle else ""
        spans = "".join(_span(run) for run in line)
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{anchor} xml:space="preserve">'
            f"{spans}</text>"
        )

    def svg(self, high: float) -> str:
        """The picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._wide}" height="{high:.0f}" '
            f'viewBox="0 0 {self._wide} {high:.0f}" font-family="{SANS}" role="img">\n'
            f"<title>{escape(self._title)}</title>\n"
            f'<rect width="{self._wide}" height="{high:.0f}" rx="14" fill="{self._background}"/>\n'
        )
        return head + "\n".join(self._shapes) + "\n</svg>\n"


def _span(run: Run) -> str:
    style = run.style
    looks = [f'font-size="{style.size:g}"']
    if style.mono:
        looks.append(f'font-family="{MONO}"')
    if style.bold:
        looks.append('font-weight="600"')
    if style.italic:
        looks.append('font-style="italic"')
    if style.underlined:
        looks.append('text-decoration="underline"')
    if style.colour:
        looks.append(f'fill="{style.colour}"')
    return f"<tspan {' '.join(looks)}>{escape(run.text, quote=False)}</tspan>"
