"""What models write, in the form that each platform takes."""

from __future__ import annotations

import pytest

from gateway.markdown.adapting import adapted
from gateway.markdown.dialects import DISCORD, TELEGRAM, is_safe_link
from gateway.markdown.tables import width
from gateway.platforms.discord.render import render as for_discord
from gateway.platforms.telegram.render import render as for_telegram

TABLE = "| name | size |\n|:-----|-----:|\n| 漢字 | 5 |\n| b\\|c | 1,000 |\n"
COLUMNS = "```\nname |  size\n-----+------\n漢字 |     5\nb|c  | 1,000\n```\n"


@pytest.mark.parametrize("dialect", [TELEGRAM, DISCORD])
@pytest.mark.parametrize(
    ("written", "made"),
    [
        (TABLE, COLUMNS),
        (f"- see\n\n{TABLE}", f"- see\n\n{COLUMNS}"),
        ("> | a |\n> |---|\n> | 1 |\n", "> ```\n> a\n> -\n> 1\n> ```\n"),
        ("| a |\n|---|\n| x<br>y |\n", "```\na\n-\nx\ny\n```\n"),
        ("| a | b |\n|---|---|\n| [l](http://l.l) | :x: |\n",
         "- **a:** [l](http://l.l)\n  **b:** ❌\n"),
        ("[j](javascript:alert(1)) [f](a/b.md)", "j (javascript:alert(1)) f (a/b.md)"),
        ("[a@b.c](mailto:a@b.c) [](http://x.y)", "a@b.c http://x.y"),
        ("[![build](http://b.b/i.png)](http://b.b)", "[build](http://b.b)"),
        ("one<br>two, a <br> b", "one\ntwo, a <br> b"),
        ("<details>\n<summary>More</summary>\n\n**x**\n\n</details>", "**More**\n\n**x**\n\n"),
        ("say `<br>` and `||` and `:x:`", "say `<br>` and `||` and `:x:`"),
        ("done :white_check_mark: at 10:30:00", "done ✅ at 10:30:00"),
        ("a || b || c", "a \\|\\| b \\|\\| c"),
        ("2*3*4 is 24", "2\\*3\\*4 is 24"),
        ('```python title="a b"\nx\n```\n', 'title="a b"\n```python\nx\n```\n'),
        ("```\n| a |\n|---|\n```", "```\n| a |\n|---|\n```"),
        ("plain words, nothing else", "plain words, nothing else"),
    ],
)  # fmt: skip
def test_for_both(dialect: object, written: str, made: str) -> None:
    assert adapted(written, dialect) == made  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("~~~py\nx\n~~~\n", "```py\nx\n```\n"),
        ("````md\n```\nx\n```\n````", "```md\n`\u200b`\u200b`\nx\n`\u200b`\u200b`\n```"),
        ("a\n\n    x = 1\n", "a\n\n```\nx = 1\n```\n"),
        ("#### Four", "**Four**"),
        ("Title\n===\n\nSub\n---\n", "# Title\n\n## Sub\n"),
        ("- [x] a\n- [ ] b", "- ☑ a\n- ☐ b"),
        ("AT&amp;T &lt;3 &#42;x&#42; a & b", "AT&T \\<3 \\*x\\* a & b"),
        ("see [this][1]\n\n[1]: http://x.y", "see [this](http://x.y)\n\n[1]: http://x.y"),
        ("[http://a.b](http://c.d)", "http://a.b (http://c.d)"),
        ("![cat](http://c.c/c.png)", "[cat](http://c.c/c.png)"),
        ("so ||hidden *words*|| end", "so ||hidden *words*|| end"),
        ("well[^n]\n\n[^n]: a note", "well\\[1\\]\n\n\\[1\\] a note"),
        ("a ``` b", "a \\`\\`\\` b"),
    ],
)
def test_for_discord(written: str, made: str) -> None:
    assert adapted(written, DISCORD) == made


@pytest.mark.parametrize(
    ("written", "shown", "kinds"),
    [
        ("so ||hidden `x`|| end", "so hidden x end", {"spoiler", "code"}),
        ("**注意：**内容", "注意：内容", {"bold"}),
        ("这是**“重要”**的，**（好）：**后", "这是“重要”的，（好）：后", {"bold"}),
        ("well[^n]\n\n[^n]: a note", "well[1]\n\n[1] a note", set()),
        ("- [x] a\n- [ ] b\n  - c", "☑ a\n☐ b\n  • c", set()),
        ("> a\n>> b", "a\nb", {"blockquote"}),
        ("# T\n\n![cat](http://c.c)", "T\n\n🖼cat", {"bold", "underline", "text_link"}),
        ("x\n\n---\n\ny", "x\n\n————————\n\ny", set()),
        (r"\(x^2 + \alpha\)", "x² + α", {"code"}),
        ("> " + "long " * 60, "long " * 59 + "long", {"expandable_blockquote"}),
        ("<tg-spoiler>x</tg-spoiler>", "x", {"spoiler"}),
    ],
)
def test_for_telegram(written: str, shown: str, kinds: set[str]) -> None:
    (part,) = for_telegram(written)
    assert part.payload["text"] == shown
    assert {entity["type"] for entity in part.payload["entities"]} == kinds


def test_a_wide_table_is_a_list() -> None:
    head = "| name | what it is for | who asked for it and when |\n|---|---|---|\n"
    (part,) = for_telegram(head + "| `a` | everything that is to be seen | Ann, in May |\n")
    assert part.payload["text"] == (
        "• name: a\n  what it is for: everything that is to be seen\n"
        "  who asked for it and when: Ann, in May"
    ).replace("\n  ", "\n")


def test_code_that_fits_moves_on_whole() -> None:
    text = "word " * 600 + "\n\n```py\n" + "x = 1\n" * 300 + "```\n\nend"
    first, second = for_telegram(text)
    assert first.payload["entities"] == []
    assert second.payload["text"].startswith("x = 1\n")
    assert [e["type"] for e in second.payload["entities"]] == ["pre"]


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://a.b", True), ("HTTP://A", True), ("javascript:alert(1)", False), ("", False),
        ("data:text/html,x", False), ("file:///etc/passwd", False), ("tg://user?id=1", False),
        (" https://a.b", False), ("https://", False), ("//a.b", False), ("discord://x", False),
    ],
)  # fmt: skip
def test_links_that_may_be_pressed(url: str, safe: bool) -> None:
    assert is_safe_link(url) is safe
    for render in (for_telegram, for_discord):
        (part,) = render(f"[press](<{url.strip()}>)")
        assert "press" in str(part.payload) or url.strip() == ""


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("😀", 2), ("", 0)]
)
def test_width_of_characters(text: str, columns: int) -> None:
    assert width(text) == columns
