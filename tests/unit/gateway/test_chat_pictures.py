"""The README's pictures are drawn from what was recorded, and nothing else."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from scripts.chat_drawing import Run, Style, line_width, width, wrapped
from scripts.chat_pictures import FOLDER, RECORDED, pictures


@pytest.mark.parametrize("name", ["telegram.svg", "discord.svg"])
def test_a_picture_is_what_was_recorded(name: str) -> None:
    drawn = pictures(json.loads(RECORDED.read_text(encoding="utf-8")))[name]
    assert drawn == (FOLDER / name).read_text(encoding="utf-8"), "python -m scripts.chat_pictures"
    ElementTree.fromstring(drawn)
    assert f"docs/pictures/{name}" in (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")


def test_lines_fit_and_lose_nothing() -> None:
    runs = [Run("some words in ", Style()), Run("bold and more of it", Style(bold=True))]
    lines = wrapped(runs, 100)
    assert len(lines) > 1
    assert all(line_width(line) <= 104 for line in lines), "but for the space at the end"
    assert "".join(run.text for line in lines for run in line) == "".join(r.text for r in runs)


def test_cjk_is_wide_and_code_is_even() -> None:
    assert width("漢", Style()) > width("a", Style())
    assert width("iiii", Style(mono=True)) == width("mmmm", Style(mono=True))
