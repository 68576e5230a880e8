"""Cutting texts: nothing is lost, every message is within its limit, fences stay balanced."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.delivery.splitting import (
    DISCORD_LIMIT,
    MIN_LIMIT,
    MIN_MARKDOWN_LIMIT,
    split_markdown,
    split_text,
    utf16_len,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PIECES = [
    "word ", "a", " ", "\n", "\n\n", "漢字。", "é", "e\u0301", "\U0001f600", FAMILY, "\r\n", "\t",
    "\U0001f1e9\U0001f1ea", "`code`", "**bold words**", "[a link](http://h/a_b_c)", "\u2028",
    "https://example.invalid/a_b_c?x=1 ", "- item\n", "1. one\n", "> quote\n", "\x00", "\u200d",
]  # fmt: skip
FENCES = [
    "```\n", "```python\n", "~~~\n", "~~~ text\n", "````md\n", "  ```js\n", "- ```sh\n", "> ```\n",
    "```not-a-close\n", "~~~~~~\n", "``` a`b\n", "x = 1\n", "\n", "    indented\n", "```", "~~~",
]  # fmt: skip
plain = st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=60).map("".join)
marked = st.lists(
    st.sampled_from([*PIECES, *FENCES]) | st.text("ab `~\n", max_size=30), max_size=60
).map("".join)
limits = st.integers(MIN_LIMIT, 300)


@given(plain, limits)
def test_split_text_loses_nothing_and_keeps_the_limit(text: str, limit: int) -> None:
    chunks = split_text(text, limit)
    assert "".join(chunks) == text
    assert all(0 < utf16_len(chunk) <= limit for chunk in chunks)
    for chunk in chunks:
        chunk.encode("utf-8", "surrogatepass")


@given(st.integers(1, 400), limits, st.sampled_from([FAMILY, "\U0001f1e9\U0001f1ea", "e\u0301"]))
def test_visible_characters_stay_whole(count: int, limit: int, char: str) -> None:
    for chunk in split_text(char * count, limit):
        assert chunk == char * (len(chunk) // len(char))


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600" * 2049, "a" * 4096, "a" * 4095 + "\U0001f600", "\U0001f600" * 5000,
        "a" * 100 + "\n" + "b" * 9000, "a" * 4090 + FAMILY + "b" * 100, "\ud83d\ude00" * 5000,
        "\n" * 9000, " " * 9000, "", "x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("limit", [2000, 4096])
def test_known_traps(text: str, limit: int) -> None:
    chunks = split_text(text, limit)
    assert "".join(chunks) == text
    assert all(0 < utf16_len(chunk) <= limit for chunk in chunks)
    assert len(chunks) <= -(-utf16_len(text) // (limit // 2 - 16))


def _opens(line: str) -> tuple[str, int] | None:
    match = re.match(r"(?:[ \t]|>|(?:[-*+]|\d{1,9}[.)])[ \t])*(`{3,}|~{3,})(.*)", line)
    if match is None or (match[1][0] == "`" and "`" in match[2]):
        return None
    return match[1][0], len(match[1])


def _walk(text: str) -> tuple[bool, list[str]]:
    """Is a fence open at the end, and the lines of code in between."""
    code: list[str] = []
    fence: tuple[str, int] | None = None
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if fence is None:
            fence = _opens(line)
            continue
        bare = line.strip(" \t>")
        if len(bare) >= fence[1] and set(bare) == {fence[0]}:
            fence = None
        else:
            code.append(line)
    return fence is not None, code


@settings(max_examples=400)
@given(marked, st.integers(MIN_MARKDOWN_LIMIT, 400))
def test_split_markdown_keeps_the_limit_and_is_never_blank(text: str, limit: int) -> None:
    messages = split_markdown(text, limit)
    assert bool(messages) == bool(text.strip())
    for message in messages:
        assert message.strip()
        assert utf16_len(message) <= limit


@settings(max_examples=400)
@given(marked)
@example("~~~  ~ \n" + "a line of code\n" * 20)
@example("word " * 40 + "```python\nword\n~~~~\n" + "word " * 40)
@example("a" * 200 + "```python\nword\n~~~~\n" + "word " * 40)
def test_every_message_is_balanced(text: str) -> None:
    for message in split_markdown(text, 200):
        still_open, _ = _walk(message)
        assert not still_open, message


@settings(max_examples=300)
@given(
    st.lists(st.text("abc= ()\u6f22\U0001f600", min_size=1, max_size=60), min_size=1, max_size=120),
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", "python title=x", "i" * 90, "i" * 2000]),
    st.sampled_from(["", "  ", "> "]),
    st.text("abc \n", max_size=100),
    st.integers(200, 500),
)
def test_code_is_the_same_line_by_line(
    lines: list[str], marks: str, info: str, lead: str, before: str, limit: int
) -> None:
    code = [f"{lead}x{line}" for line in lines]
    text = "\n".join([before, f"{lead}{marks}{info}", *code, f"{lead}{marks}", "after"])
    messages = split_markdown(text, limit)
    found: list[str] = []
    for message in messages:
        still_open, inside = _walk(message)
        assert not still_open
        found.extend(inside)
    assert found == code
    everything = "".join(messages)
    assert "after" in everything
    if 0 < len(info) <= 90:
        assert info in everything
    if len(info) > 500:
        assert everything.count("i") >= len(info)


def test_language_comes_back_in_each_message() -> None:
    code = "\n".join(f"print({n})" for n in range(600))
    messages = split_markdown(f"Here:\n\n```python\n{code}\n```\nDone.", 2000)
    assert len(messages) > 2
    assert all("```python\n" in message for message in messages)
    assert messages[-1].endswith("```\nDone.")


def test_a_fence_that_fits_moves_on_whole() -> None:
    text = "word " * 300 + "\n\n```py\n" + "x = 1\n" * 200 + "```\n"
    messages = split_markdown(text, 2000)
    assert [message.count("```") for message in messages] == [0, 2]


@pytest.mark.parametrize("size", [2000, 2001, 4500, 60_698])
def test_sizes_without_a_newline(size: int) -> None:
    messages = split_markdown("a" * size, 2000)
    assert "".join(messages) == "a" * size
    assert len(messages) == -(-size // 2000)


@pytest.mark.parametrize(
    "noise", ["`", "[", "*", "](", "``` ", "~", "|", "_", "https://", "```\n", "> "]
)
def test_noise_takes_no_long_time(noise: str) -> None:
    text = noise * (200_000 // len(noise))
    messages = split_markdown(text, 4096)
    assert all(utf16_len(message) <= 4096 for message in messages)


def test_paragraphs_and_words_are_preferred() -> None:
    text = ("sentence one. " * 10 + "\n\n") * 40
    messages = split_markdown(text, 1000)
    assert all(message.startswith("sentence") and message.endswith(".") for message in messages)
    link = "[a long name](http://h/a_b_c)"
    for chunk in split_text(f"{link} " * 50, 100):
        assert chunk.count("[") == chunk.count(")")


@pytest.mark.parametrize("info", ["", "python", "python " + "x" * 700])
@pytest.mark.parametrize("before", ["", "word \n\n", "word\n\n" * 150])
@pytest.mark.parametrize("length", [1_500, 1_985, 1_990, 1_995, 2_100, 5_000])
def test_a_long_first_line_of_code_moves_on_with_its_fence(
    info: str, before: str, length: int
) -> None:
    text = f"{before}```{info}\n{'a' * length}\n```"
    messages = split_markdown(text, DISCORD_LIMIT)
    assert all(0 < utf16_len(message) <= DISCORD_LIMIT for message in messages)
    assert all(message.count("```") % 2 == 0 for message in messages)
    assert "".join(messages).count("a") == length
