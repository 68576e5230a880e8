"""What people see of a replay: a table that fits, a picture that is XML, figures for scripts."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from agent.simulation.outcome import Bill, Compression, Outcome
from agent.simulation.plot import as_svg
from agent.simulation.report import as_json, as_table, clock

BILL = Bill(plain=10, read=9_000_000, written=400_000, output=30_000, side_input=5, side_output=3)
OUTCOME = Outcome(
    name="defaults",
    window_tokens=200_000,
    threshold_tokens=100_000,
    cache_ttl="5m",
    bill=BILL,
    sizes=array("q", (i % 100 * 1000 for i in range(5000))),
    seconds=array("d", range(5000)),
    compressions=(
        Compression(0, "pruned", 9000, 8000),
        Compression(100, "waited", 99_000, 20_000),
        Compression(200, "cold", 99_000, 20_000),
    ),
    pauses_seconds=(0.2, 61.0),
    usd=12.5,
)
SVG = "{http://www.w3.org/2000/svg}"


def named(*names: str) -> list[Outcome]:
    return [replace(OUTCOME, name=name) for name in names]


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60, 50])
def test_the_table_is_as_wide_as_the_terminal_allows(width: int) -> None:
    lines = as_table(named("defaults", "reference", "micro / 3 turns"), width=width)
    assert max(map(len, lines)) <= width
    assert "COST" in lines[0]
    assert "WAITS" in lines[0]
    assert len(lines) == 4


def test_on_a_terminal_that_is_too_narrow_the_most_important_is_left() -> None:
    lines = as_table(named("defaults"), width=5)
    assert lines[0].split() == ["SETTING", "COST", "WAITS"]


def test_numbers_stand_right_under_each_other_and_waits_are_told() -> None:
    lines = as_table([OUTCOME, replace(OUTCOME, usd=1234.5, pauses_seconds=())])
    assert lines[1].index("$12.50") == lines[2].index("$1,234.50") + 3
    assert "1 (1 min 01 s)" in lines[1]
    assert "none" in lines[2]
    assert "MICRO" not in lines[0]


def test_without_a_price_there_are_only_tokens() -> None:
    assert as_table([replace(OUTCOME, usd=None)])[1].split()[2] == "?"
    assert as_json(replace(OUTCOME, usd=None))["usd"] is None


def test_figures_for_scripts_are_json() -> None:
    figures = json.loads(json.dumps(as_json(OUTCOME)))
    assert figures["setting"] == "defaults"
    assert figures["compressions"] == 3
    assert figures["compressions_waited"] == figures["compressions_pruned"] == 1
    assert (figures["waits"], figures["waited_seconds"]) == (1, 61.0)
    assert figures["peak_share"] == pytest.approx(0.495)
    assert figures["tokens"]["cache_read"] == 9_000_000


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599.9, "1 h 00 min"),
        (90_000, "1 d 1 h"),
        (86_399, "23 h 59 min"),
    ],
)
def test_durations_in_words(seconds: float, said: str) -> None:
    assert clock(seconds) == said


def test_the_picture_has_a_line_and_a_name_for_each_setting() -> None:
    others = [
        replace(o, sizes=array("q", (10 * k,) * 3000)) for k, o in enumerate(named(*"abcdefghijkl"))
    ]
    svg = as_svg([OUTCOME, *others], "coding")
    root = ElementTree.fromstring(svg)
    assert len(root.findall(f"{SVG}polyline")) == 13
    said = {text.text for text in root.findall(f"{SVG}text")}
    assert {"defaults", "a", "l"} <= said
    assert len(svg) < 200_000
    assert "prefers-color-scheme:dark" in svg
    box = [float(n) for n in root.attrib["viewBox"].split()]
    for circle in root.findall(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= box[2]
        assert 0 <= float(circle.attrib["cy"]) <= box[3]


def test_lines_that_are_the_same_are_drawn_once_and_said_so() -> None:
    root = ElementTree.fromstring(as_svg(named("defaults", "cache 1h"), "t"))
    assert len(root.findall(f"{SVG}polyline")) == 1
    said = {text.text for text in root.findall(f"{SVG}text")}
    assert "cache 1h (as defaults)" in said


def test_a_name_from_outside_can_not_break_the_picture() -> None:
    title = "</svg><script>\u0001\u001b]]>&\"'"
    root = ElementTree.fromstring(as_svg(named("a <b> & \u0000"), title))
    assert not root.findall(f".//{SVG}script")


def test_nothing_to_draw_is_no_error() -> None:
    empty = replace(OUTCOME, sizes=array("q"), seconds=array("d"), compressions=())
    assert ElementTree.fromstring(as_svg([empty], "t")).tag == f"{SVG}svg"
    assert ElementTree.fromstring(as_svg([], "t")).tag == f"{SVG}svg"
    one = replace(OUTCOME, sizes=array("q", [7]), seconds=array("d", [0.0]), compressions=())
    assert ElementTree.fromstring(as_svg([one], "t")).tag == f"{SVG}svg"


def test_peaks_are_not_lost_in_a_long_line() -> None:
    sizes = array("q", [10] * 20_000)
    sizes[12_345] = 99_000
    svg = as_svg([replace(OUTCOME, sizes=sizes, compressions=())], "t")
    root = ElementTree.fromstring(svg)
    line = root.find(f"{SVG}polyline")
    assert line is not None
    heights = [float(point.partition(",")[2]) for point in line.attrib["points"].split()]
    assert min(heights) < 60
    assert len(heights) < 600
