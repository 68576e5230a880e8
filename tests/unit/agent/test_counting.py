"""One is one, everywhere: what commands print of numbers."""

from __future__ import annotations

import pytest

from agent.counting import counted


@pytest.mark.parametrize(
    ("number", "one", "many", "said"),
    [
        (0, "file", "", "0 files"),
        (1, "file", "", "1 file"),
        (1000, "file", "", "1,000 files"),
        (1, "entry", "entries", "1 entry"),
        (2, "entry", "entries", "2 entries"),
    ],
)
def test_a_number_with_its_noun(number: int, one: str, many: str, said: str) -> None:
    assert counted(number, one, many) == said
