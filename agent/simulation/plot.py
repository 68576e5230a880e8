"""Owns the picture of a replay: how full the window was, one line for each setting, as SVG. Pure.

No library: a few hundred points, text, and two sets of colours, for a light and a dark page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from agent.simulation.outcome import Outcome
from agent.simulation.report import clock

WIDTH, HEIGHT = 960, 460
_LEFT, _RIGHT, _TOP = 60, 52, 44
_LEGEND_LINE = 20
_LEGEND_COLUMNS = 4
_AXIS_ROOM = 62
_POINTS = 480
"""Of a line; more can not be told apart."""
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#a23b72", "#8a6d00", "#3f6fd8", "#c2185b", "#5d4037")
_DARK = ("#56b4e9", "#ff8a3d", "#3ddc97", "#e68ab8", "#f0d04a", "#9db8ff", "#ff7aa8", "#c8a48f")
_DASHES = ("", "7 4", "2 3")
_STEPS = (1, 2, 2.5, 5, 10)


def as_svg(outcomes: Sequence[Outcome], title: str) -> str:
    """The picture. The first setting is drawn thickest, on top of the others."""
    return "\n".join(_parts(outcomes, title)) + "\n"


def _parts(outcomes: Sequence[Outcome], title: str) -> Iterator[str]:
    rows = -(-len(outcomes) // _LEGEND_COLUMNS)
    height = HEIGHT + rows * _LEGEND_LINE
    described = "How full the window was before each answer, by setting; dots are compressions."
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-labelledby="t d">'
    )
    yield f'<title id="t">{_text(title)}</title><desc id="d">{described}</desc>'
    yield _style(len(outcomes))
    yield f'<rect class="page" width="{WIDTH}" height="{height}"/>'
    yield f'<text class="title" x="{_LEFT}" y="24">{_text(title)}</text>'
    top = _nice(max((o.peak_tokens for o in outcomes), default=1))
    requests = max((len(o.sizes) for o in outcomes), default=0)
    yield from _axes(outcomes, top, requests)
    looks = _looks(outcomes)
    for at in range(len(outcomes) - 1, -1, -1):
        if looks[at] == at:
            yield from _line(outcomes[at], at, top, requests)
    yield from _legend(outcomes, looks)
    yield "</svg>"


def _text(text: str) -> str:
    """For XML: no control characters, which no escape could carry."""
    return escape("".join(ch if ch.isprintable() else " " for ch in text))


def _style(lines: int) -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(
            f".l{i}{{stroke:{palette[i % len(palette)]}}}.d{i}{{fill:{palette[i % len(palette)]}}}"
            for i in range(lines)
        )

    light = ".page{fill:#fff}text{fill:#222}.grid{stroke:#ddd}.axis{stroke:#888}.dot{stroke:#fff}"
    dark = (
        ".page{fill:#14171a}text{fill:#ddd}.grid{stroke:#333}.axis{stroke:#888}.dot{stroke:#14171a}"
    )
    return (
        "<style>text{font:12px system-ui,sans-serif}.title{font-size:15px;font-weight:600}"
        ".end{text-anchor:end}.mid{text-anchor:middle}.line{fill:none;stroke-width:1.4}"
        f".first{{stroke-width:2.4}}{light}{colours(_LIGHT)}"
        f"@media(prefers-color-scheme:dark){{{dark}{colours(_DARK)}}}</style>"
    )


def _nice(most: int) -> float:
    """A round number that nothing reaches beyond, in five steps."""
    step = max(1.0, most / 5)
    unit = 10.0 ** (len(str(int(step))) - 1)
    return 5 * unit * next(s for s in _STEPS if s * unit >= step)


def _x(request: float, requests: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * request / max(1, requests - 1)


def _y(tokens: float, top: float) -> float:
    bottom = HEIGHT - _AXIS_ROOM
    return bottom - (bottom - _TOP) * tokens / top


def _axes(outcomes: Sequence[Outcome], top: float, requests: int) -> Iterator[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _AXIS_ROOM
    window = outcomes[0].window_tokens if outcomes else 0
    for step in range(6):
        tokens = top * step / 5
        y = _y(tokens, top)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        share = f"{100 * tokens / window:.0f} %" if window else ""
        label = f"{tokens / 1000:g}k" if tokens else "0"
        yield f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{label}</text>'
        yield f'<text x="{right + 8}" y="{y + 4:.1f}">{share}</text>'
    yield f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>'
    seconds = outcomes[0].seconds if outcomes else ()
    for quarter in range(5):
        at = round((requests - 1) * quarter / 4) if requests else 0
        x = _x(at, requests)
        anchor = ("", "mid", "mid", "mid", "end")[quarter]
        yield f'<text class="{anchor}" x="{x:.1f}" y="{bottom + 18}">answer {at + 1:,}</text>'
        if at < len(seconds):
            after = clock(seconds[at] - seconds[0])
            yield f'<text class="{anchor}" x="{x:.1f}" y="{bottom + 34}">after {after}</text>'


def _line(outcome: Outcome, at: int, top: float, requests: int) -> Iterator[str]:
    points = " ".join(
        f"{_x(i, requests):.1f},{_y(outcome.sizes[i], top):.1f}" for i in _picked(outcome.sizes)
    )
    dash = _dash(at)
    first = " first" if at == 0 else ""
    yield f'<polyline class="line l{at}{first}"{dash} points="{points}"/>'
    for compression in outcome.compressions:
        last = compression.request - 1  # the answer before it: there the line is at its height
        if last < 0:
            continue
        x, y = _x(last, requests), _y(outcome.sizes[last], top)
        yield f'<circle class="dot d{at}" cx="{x:.1f}" cy="{y:.1f}" r="{3.6 if at == 0 else 2.6}"/>'


def _dash(at: int) -> str:
    dash = _DASHES[at // len(_LIGHT) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _picked(sizes: Sequence[int]) -> list[int]:
    """Places of a long line that keep its shape: of each stretch the lowest and the highest."""
    if len(sizes) <= _POINTS:
        return list(range(len(sizes)))
    picked = {0, len(sizes) - 1}
    stretches = _POINTS // 2
    for k in range(stretches):
        places = range(k * len(sizes) // stretches, (k + 1) * len(sizes) // stretches)
        picked.add(min(places, key=sizes.__getitem__))
        picked.add(max(places, key=sizes.__getitem__))
    return sorted(picked)


def _looks(outcomes: Sequence[Outcome]) -> list[int]:
    """Which line each setting has: that of the first one whose list was the same all along."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(tuple(o.sizes), at) for at, o in enumerate(outcomes)]


def _legend(outcomes: Sequence[Outcome], looks: Sequence[int]) -> Iterator[str]:
    wide = (WIDTH - _LEFT - _RIGHT) / _LEGEND_COLUMNS
    for at, (outcome, look) in enumerate(zip(outcomes, looks, strict=True)):
        x = _LEFT + wide * (at % _LEGEND_COLUMNS)
        y = HEIGHT - 6 + _LEGEND_LINE * (at // _LEGEND_COLUMNS)
        first = " first" if look == 0 else ""
        name = outcome.name if look == at else f"{outcome.name} (as {outcomes[look].name})"
        yield f'<path class="line l{look}{first}"{_dash(look)} d="M{x:.0f} {y}h22"/>'
        yield f'<circle class="dot d{look}" cx="{x + 11:.0f}" cy="{y}" r="2.6"/>'
        yield f'<text x="{x + 28:.0f}" y="{y + 4}">{_text(name)}</text>'
