"""The short names of jobs: one line, nothing unseen, pictures of several signs whole."""

from __future__ import annotations

import pytest

from agent.jobs.nouns import MAX_NAME_CHARS, as_name

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("call\n mum \t now", "call mum now"),
        (f"{FAMILY} dinner", f"{FAMILY} dinner"),
        (f"{SCOTLAND} trip", f"{SCOTLAND} trip"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u200d \u200c", ""),
        ("\u202eevil\u2066 \x00\ufeff", "evil"),
    ],
)
def test_a_name(text: str, name: str) -> None:
    assert as_name(text) == name


def test_a_long_one_is_cut_between_pictures() -> None:
    name = as_name(f"{FAMILY} " * 20)
    assert name == " ".join([FAMILY] * 7) + "…"
    assert len(as_name(FAMILY * 50)) <= MAX_NAME_CHARS
    assert as_name("x" * 80) == "x" * 59 + "…"
