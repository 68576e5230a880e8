"""What people see of an answer: all of it, in messages that the platform takes, on both of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.mail import PartDraft
from agent.messages import is_blank
from gateway import texts
from gateway.delivery.splitting import DISCORD_LIMIT, TELEGRAM_LIMIT, utf16_len
from gateway.platforms.discord.render import render as for_discord
from gateway.platforms.telegram.render import MAX_ENTITIES
from gateway.platforms.telegram.render import render as for_telegram

Render = Callable[[str], list[PartDraft]]
BOTH = pytest.mark.parametrize("render", [for_telegram, for_discord], ids=["telegram", "discord"])
FAMILY = "👨‍👩‍👧‍👦"
NASTY = [
    "**", "*", "_", "__", "`", "``", "```", "````", "~~~", "~~", "||", "|", "[", "]", "(", ")",
    "](", "![", "[^1]", "\n[^1]: ", "> ", ">", "- ", "1. ", "# ", "#### ", "\n", "\n\n", "    ",
    "\t", "<", "<b>", "<br>", "<details>", "<summary>", "</summary>", "</details>", "<tg-spoiler>",
    "</tg-spoiler>", "&amp;", "&#0;", "&nbsp;", "\\", "\\*", "$", "$$", "\\(", "\\)", "\\[",
    "[l](http://a.b/c_d)", "[j](javascript:alert(1))", "(data:text/html,x)", "tg://user?id=1",
    "[f](file:///etc/passwd)", "a", "word ", "漢字", "：", "。", "“重要”", "😀", "\u200d", "\u200b",
    "\u202e", "\u2067", "e\u0301", "\ud83d", "\ude00", "\x00", "\r\n", FAMILY, "|---|---|\n",
    "| a | b |\n", "---\n", "===\n", "- [x] ", "\n[r]: http://x\n", ":rocket:", "x" * 50,
    "http://x.y ", "_*[]()~`>#+-=|{}.!", "<@1>", "@everyone", "שלום", "\u0e33", "\x1b[31m",
    "```mermaid\ngraph TD;\n```\n", "\n| - a<br>- b | ```x``` |\n|--|--|\n|1|2|\n", "\u2028",
]  # fmt: skip


def shown(part: PartDraft) -> str:
    """The text of a message as its platform gets it."""
    text = part.payload.get("text", part.payload.get("content"))
    assert isinstance(text, str)
    return text


def check(parts: list[PartDraft], limit: int) -> None:
    assert parts
    for part in parts:
        text = shown(part)
        text.encode("utf-8")  # no half surrogate
        assert not is_blank(text)
        assert 0 < utf16_len(text) <= limit
        document = part.payload.get("document")
        if document is not None:
            document["text"].encode("utf-8")
            assert part is parts[-1]
    if limit == TELEGRAM_LIMIT:
        for part in parts:
            check_entities(part.payload)
    else:
        for part in parts:
            assert shown(part).count("```") % 2 == 0, shown(part)


def check_entities(payload: dict[str, Any]) -> None:
    units = payload["text"].encode("utf-16-le")
    assert len(payload["entities"]) <= MAX_ENTITIES
    quoted = 0
    for entity in payload["entities"]:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        assert 0 <= start < end <= len(units) // 2
        units[start * 2 : end * 2].decode("utf-16-le")  # no pair is cut
        if entity["type"] == "text_link":
            assert re.match("https?://", entity["url"], re.IGNORECASE)
        if "blockquote" in entity["type"]:
            assert start >= quoted
            quoted = end
        assert len(entity.get("language") or "") <= 24


# --- nothing that is thrown at it ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_three_thousand_nasty_texts_become_messages(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(300):
        text = "".join(source.choices(NASTY, k=source.choice((3, 8, 25, 80))))
        check(for_telegram(text), TELEGRAM_LIMIT)
        check(for_discord(text), DISCORD_LIMIT)


@BOTH
@pytest.mark.parametrize("text", ["&nbsp;", "&#8203;", "&#xAD;\n\n&zwj;", "&#32;", "&NewLine;"])
def test_what_is_nothing_once_it_is_adapted_goes_as_it_was_written(
    render: Render, text: str
) -> None:
    assert "".join(shown(part) for part in render(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300) | st.lists(st.sampled_from(NASTY), max_size=50).map("".join))
def test_any_text_becomes_messages(text: str) -> None:
    check(for_telegram(text), TELEGRAM_LIMIT)
    check(for_discord(text), DISCORD_LIMIT)


TRAPS = {
    "no space": "a" * 100_000,
    "no space, emoji": FAMILY * 15_000,
    "combining": "e" + "\u0301" * 100_000,
    "joiners": "\u200d" * 10_000,
    "half surrogates": "\ud83d" * 10_000,
    "info string": "```" + "i" * 2000 + "\ncode\n```",
    "info words": "```python " + "word " * 400 + "\ncode\n```",
    "asterisks": "*" * 10_000,
    "asterisks apart": "*a " * 10_000,
    "brackets": "[" * 10_000,
    "brackets closed": "[]" * 10_000,
    "links half": "](" * 10_000,
    "pictures half": "![" * 10_000,
    "ticks": "`" * 10_000,
    "ticks of all lengths": "".join("`" * n + "a" for n in range(1, 140)),
    "fences": "```\n" * 5_000,
    "quotes": ">" * 10_000,
    "quotes deep": "\n".join("> " * n + "x" for n in range(100)),
    "lists deep": "\n".join("  " * n + "- x" for n in range(100)),
    "table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 2_000,
    "table, wide": "|a" * 3_000 + "|\n" + "|-" * 3_000 + "|\n" + "|x" * 3_000 + "|\n",
    "list in a table": "| - a<br>  - b | 1. c<br>2. d |\n|---|---|\n| > q | ```x``` |\n",
    "bars": "|" * 10_000,
    "spoilers": "||a|| " * 5_000,
    "dollars": "$" * 10_000,
    "tags": "<b>" * 5_000,
    "tags open": "<" * 10_000,
    "comments": "<!--" * 5_000,
    "notes": "[^a]" * 5_000,
    "note": "[^a]: x\n" * 3_000,
    "definitions": "[a]: http://x\n" * 3_000,
    "entities": "&amp;" * 10_000,
    "backslashes": "\\" * 10_000,
    "rtl": "\u202eabc \u2067" * 5_000,
    "url": "http://" + "a" * 10_000,
    "link": "[x](http://" + "a" * 10_000 + ")",
    "MarkdownV2": "_*[]()~`>#+-=|{}.!\\" * 1_000,
    "headings": "# a\n" * 5_000,
    "rules": "---\n" * 5_000,
    "names": ":x:" * 10_000,
    "stars beside CJK": "这**“是”**的" * 3_000,
    "blank lines": "\n" * 50_000,
    "indented": "    x\n\n" * 4_000,
}


@BOTH
@pytest.mark.timeout(20)
@pytest.mark.parametrize("trap", TRAPS)
def test_no_trap_takes_long_or_makes_a_flood(render: Render, trap: str) -> None:
    parts = render(TRAPS[trap])
    check(parts, TELEGRAM_LIMIT if render is for_telegram else DISCORD_LIMIT)
    assert len(parts) <= 10


# --- nothing is lost ----------------------------------------------------------------------------

WORDS = ["alpha", "βῆτα", "漢字", "😀", FAMILY, "שלום", "e\u0301toile", "snake_case", "2~3", "50%"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A Markdown text as models write them, and the words that a reader has to see, in order."""
    blocks: list[str] = []
    seen: list[str] = []
    for n in range(draw(st.integers(1, 12))):
        inside = [f"{word}{n}" for word in draw(words)]
        plain = " ".join(inside)
        kind = draw(st.sampled_from([
            "{}", "# {}", "##### {}", "> {}", "> > {}", "- {}", "- a\n  - {}", "1. {}", "**{}**",
            "*{}*", "||{}||", "~~{}~~", "- [ ] {}", "```python\n{}\n```", "~~~\n{}\n~~~",
            "````md\n```\n{}\n```\n````", "[{}](https://e.org/x_y)", "[{}](javascript:x)",
            "[{}](docs/a_b.md)", "![{}](https://e.org/i.png)", "| h | i |\n|---|--:|\n| {} | z |",
            "<div>{}</div>", "<details>\n<summary>S</summary>\n\n{}\n\n</details>", "{}<br>{}",
            "- x\n\n  ```js\n  {}\n  ```", "> ```\n> {}\n> ```", "    {}", "{}\n===", "{}[^1]",
            "| h | [l](http://l.l) |\n|---|---|\n| {} | z |", "`{}`", "a || b || {}",
        ]))  # fmt: skip
        blocks.append(kind.replace("{}", plain))
        seen += inside * kind.count("{}")
    return "\n\n".join(blocks), seen


def visible(parts: list[PartDraft]) -> str:
    """Without what Markdown needs to be itself on Discord, and without what is never seen."""
    return re.sub(r"[\\\s\u200b]", "", "".join(shown(part) for part in parts))


@BOTH
@settings(max_examples=150, deadline=None)
@given(documents())
def test_every_word_is_seen_in_order(render: Render, document: tuple[str, list[str]]) -> None:
    text, seen = document
    parts = render(text)
    check(parts, TELEGRAM_LIMIT if render is for_telegram else DISCORD_LIMIT)
    everything = visible(parts)
    at = 0
    for word in seen:
        found = everything.find(re.sub(r"\s", "", word), at)
        assert found != -1, f"{word} is lost of {text!r}: {everything!r}"
        at = found + len(word)


@BOTH
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "**b**", "`c`", "\n\n", "- i\n"]), max_size=2500))
def test_no_word_is_lost_by_cutting(render: Render, pieces: list[str]) -> None:
    text = " ".join(pieces)
    parts = render(text)
    if "document" in parts[-1].payload:
        assert parts[-1].payload["document"]["text"] == text
        return
    everything = "".join(shown(part) for part in parts)
    for word in ("alpha", "漢字", "😀"):
        assert everything.count(word) == text.count(word)


# --- very long answers --------------------------------------------------------------------------


@BOTH
def test_a_very_long_answer_is_its_beginning_and_a_file(render: Render) -> None:
    text = "First words.\n\n" + "```python\nprint(1)\n```\n\nand **more** of it\n\n" * 5_000
    first, whole = render(text)
    assert shown(first).startswith("First words.")
    assert utf16_len(shown(first)) > 1_000
    assert shown(whole) == texts.WHOLE_ANSWER
    assert whole.payload["document"] == {"name": "answer.md", "text": text}


@BOTH
@pytest.mark.parametrize("size", [15_000, 20_000, 20_001, 30_000, 32_768, 32_769, 60_698])
def test_never_more_messages_than_a_reader_bears(render: Render, size: int) -> None:
    text = "abcd " * (size // 5) + "e" * (size % 5)
    parts = render(text)
    most, fits = (8, 30_000) if render is for_telegram else (10, 20_000)
    assert len(parts) <= most
    assert ("document" in parts[-1].payload) == (size > fits)
