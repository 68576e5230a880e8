from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.messages import is_blank
from gateway import texts
from gateway.delivery.splitting import utf16_len
from gateway.platforms.telegram.render import (
    MAX_ENTITIES,
    REPEAT_MARK,
    mark_repeat,
    render,
)

FAMILY = "👨‍👩‍👧‍👦"
PIECES = [
    "word ",
    "two words\n",
    "\n\n",
    "😀",
    FAMILY,
    "漢字かな",
    "שלום עולם ",
    "e\u0301",
    "**bold 😀** ",
    "*it* ",
    "`code` ",
    "~~gone~~ ",
    "||secret|| ",
    "[link](https://e.org/a_b?c=1) ",
    "[bad](javascript:alert(1)) ",
    "<b>raw</b> ",
    "<script>x</script>\n",
    "```python\nx = 1\n```\n",
    "```\nopen",
    "> quote\n",
    "# Title\n",
    "- item\n  - nested\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "https://h/a_b_c ",
    "\u200b",
    "\ud83d",
    "\x00\x1b[31m",
    "a" * 700,
    "😀" * 500,
    "**" + "b" * 600 + "** ",
    "$5 and $6 ",
    "[1]: https://source.example\n",
]
markdown = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def payloads(text: str) -> list[dict[str, Any]]:
    return [draft.payload for draft in render(text)]


def under(payload: dict[str, Any], entity: dict[str, Any]) -> str:
    units = payload["text"].encode("utf-16-le")
    start, end = entity["offset"] * 2, (entity["offset"] + entity["length"]) * 2
    return units[start:end].decode("utf-16-le")  # raises if a pair is cut


def check(plan: list[dict[str, Any]]) -> None:
    assert plan
    for payload in plan:
        text = payload["text"]
        text.encode("utf-8")
        assert 0 < utf16_len(text) <= 4096
        assert not is_blank(text)
        assert text == text.rstrip()
        assert len(payload["entities"]) <= MAX_ENTITIES
        for entity in payload["entities"]:
            assert entity["length"] > 0
            assert entity["offset"] >= 0
            assert entity["offset"] + entity["length"] <= utf16_len(text)
            assert under(payload, entity)
            if entity["type"] == "text_link":
                assert entity["url"].startswith("https://")
        marked = mark_repeat(payload)
        if marked is not None:
            assert utf16_len(marked["text"]) <= 4096
            for before, after in zip(payload["entities"], marked["entities"], strict=True):
                assert under(payload, before) == under(marked, after)


@settings(max_examples=150, deadline=None)
@given(markdown)
def test_every_part_is_within_the_limits(text: str) -> None:
    check(payloads(text))


@settings(max_examples=150, deadline=None)
@given(st.text())
def test_any_text_gives_a_message(text: str) -> None:
    check(payloads(text))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["alpha", "β漢", "😀", "**b**", "`c`", "\n\n"]), max_size=2500))
def test_no_word_is_lost_by_cutting(words: list[str]) -> None:
    text = " ".join(words)
    shown = "".join(payload["text"] for payload in payloads(text))
    for word in ("alpha", "β漢", "😀"):
        assert shown.count(word) == text.count(word)


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600" * 2049,
        "a" * 4095 + "\U0001f600",
        "\U0001f600" * 5000,
        "a" * 99 + "\n" + "b" * 9000,
        "a" * 4090 + FAMILY,
        ("a" * 4094 + FAMILY) * 3,
    ],
)
def test_the_limit_counts_utf16_units(text: str) -> None:
    plan = payloads(text)
    check(plan)
    assert "".join(p["text"] for p in plan).replace("\n", "") == text.replace("\n", "")
    assert all("\u200d" not in (p["text"][0], p["text"][-1]) for p in plan)


def test_what_fits_stays_one_message() -> None:
    assert payloads("a" * 4096) == [{"text": "a" * 4096, "entities": []}]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<details>x</details> hi",
        "see <b>this</b>",
        "<!-- note --> text",
        "a <br> b",
        "<div>\n\npara\n\n</div>",
        "<div>\n" * 40,
        "see\n\n[1]: https://a.b\n[2]: https://c.d",
        "2 < 3 and 4 > 3",
    ],
)
def test_nothing_that_was_said_disappears(text: str) -> None:
    assert "".join(payloads(text)[0]["text"].split()) == "".join(text.split())


def test_markup_becomes_entities() -> None:
    (payload,) = payloads("**b** `c` [l](https://e.org/a_b) <i>x</i>\n```py\ny\n```")
    kinds = {e["type"]: under(payload, e) for e in payload["entities"]}
    assert kinds == {"bold": "b", "code": "c", "text_link": "l", "pre": "y"}
    assert payload["entities"][-1]["language"] == "py"
    assert "<i>x</i>" in payload["text"]


def test_referenced_definitions_are_links_not_text() -> None:
    (payload,) = payloads("see [the page][1]\n\n[1]: https://a.b/c")
    assert payload["text"] == "see the page"
    assert payload["entities"][0]["url"] == "https://a.b/c"


def test_a_small_entity_is_never_cut() -> None:
    for filler in range(4050, 4100):
        plan = payloads("x" * filler + " [the label](https://e.org/) end")
        links = [(p, e) for p in plan for e in p["entities"]]
        assert [under(p, e) for p, e in links] == ["the label"]


def test_more_than_a_hundred_entities_go_on_in_the_next_message() -> None:
    plan = payloads(" ".join(f"**b{i}**" for i in range(750)))
    check(plan)
    bold = [under(p, e) for p in plan for e in p["entities"]]
    assert bold == [f"b{i}" for i in range(750)]


def test_a_long_block_of_code_is_code_in_every_message() -> None:
    code = "\n".join(f"    line {i}" for i in range(800))
    plan = payloads(f"```python\n{code}\n```")
    check(plan)
    assert len(plan) > 2
    assert all(p["entities"][0]["type"] == "pre" for p in plan)
    assert "\n".join(p["text"] for p in plan) == code


@pytest.mark.parametrize("text", ["", "  \n", "\u200b\u2060", "\x00\x07", "\u3164"])
def test_a_blank_answer_says_so(text: str) -> None:
    assert payloads(text) == [{"text": texts.NOTHING_SAID, "entities": []}]


def test_the_mark_of_a_repeat_needs_room() -> None:
    assert mark_repeat({"text": "a" * 4096, "entities": []}) is None
    marked = mark_repeat({"text": "b", "entities": [{"type": "bold", "offset": 0, "length": 1}]})
    assert marked is not None
    assert marked["text"] == REPEAT_MARK + "b"


def test_a_huge_answer_is_rendered_in_no_time_worth_mentioning() -> None:
    check(payloads("word **x** `y` and more\n" * 4000))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "piece", ["- ", "* ", "1. ", "> ", ">- ", "1) > ", "$", "$$", r"\(", r"\[", "```\n", "[", "<b>"]
)
def test_no_markup_grows_out_of_proportion(piece: str) -> None:
    """Each level of a list in a list on one line would be a longer line of its own, so that 8,000
    characters made two thousand messages. And the end of each formula is looked for anew.
    """
    text = piece * (32_000 // len(piece)) + "end"
    plan = payloads(text)
    check(plan)
    assert len(plan) <= 9


def test_lists_in_lists_as_people_write_them_stay_lists() -> None:
    levels = "\n".join(f"{'  ' * n}- level {n}" for n in range(8))
    (payload,) = payloads(f"**all**\n\n{levels}")
    assert [e["type"] for e in payload["entities"]] == ["bold"]
    assert "- level" not in payload["text"]
    assert "level 7" in payload["text"]
