"""What of a page can be read, and that reading it costs nobody anything."""

from __future__ import annotations

import asyncio
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.media.html import html_text
from agent.media.html_reader import MAX_MEMORY_BYTES, read_html
from agent.media.reader_process import DocumentUnreadable

URL = "https://example.org/a/b"


def read(html: str, max_chars: int = 10_000) -> str:
    found = read_html(html.encode(), URL, "utf-8", max_chars)
    assert "error" not in found
    return str(found["text"])


def test_links_are_whole_or_only_words() -> None:
    assert read("<a href=c?d=1&amp;e>x</a>") == "[x](https://example.org/a/c?d=1&e)"
    assert read("<base href=/z/><a href=c>x</a>") == "[x](https://example.org/z/c)"
    for nowhere in ("javascript:alert(1)", "#top", "", "mailto:a@b", "http://[", "//" + "x" * 600):
        assert read(f'<a href="{nowhere}">x</a>') == "x"


def test_what_nobody_sees_is_not_read() -> None:
    unseen = (
        "<script>a</script><style>a</style><template>a</template><noscript>a</noscript>"
        "<svg><text>a</text></svg><select><option>a</select><p hidden>a</p><!-- a -->"
        "<p style='DISPLAY : none'>a</p><textarea>a</textarea><iframe>a</iframe><img src=a>"
    )
    assert read(f"<body>{unseen}<p>seen") == "seen"


def test_tables_are_lines_and_pictures_are_words() -> None:
    table = "<table><tr><th>n<th>m<tr><td>1<td><a href=/x>2</a></table>"
    assert read(table).split("\n\n") == ["n | m", "1 | [2](https://example.org/x)"]
    assert read("<p>a <img alt='a\n cat' src=x> b") == "a (picture: a cat) b"


def test_the_main_part_is_the_page_where_there_is_something_in_it() -> None:
    words = "word " * 60
    assert read(f"<nav>menu</nav><main>{words}</main>") == words.strip()
    assert read(f"<nav>menu</nav><article>{words}</article>") == words.strip()
    assert "menu" in read("<nav>menu</nav><main>short</main>")
    assert read(f"<article>{words}</article><article>other {words}</article>").count("other") == 1


def test_it_is_cut_and_says_so() -> None:
    found = read_html(b"<title> A \n B </title><p>" + b"x" * 100, URL, "", 10)
    assert found == {"title": "A B", "text": "x" * 10, "cut": True}


@given(st.text(max_size=300) | st.lists(st.sampled_from(
    ["<table>", "<tr>", "<td>", "</table>", "<a href=x>", "<p>", "</p>", "<b>", "<pre>", "<main>",
     "<title>", "<svg>", "<![CDATA[", "<!--", "-->", "<template>", "&#xD800;", "\0", "x", "<li>"]
), max_size=40).map("".join))  # fmt: skip
def test_anything_is_text(html: str) -> None:
    found = read_html(html.encode("utf-8", "surrogatepass"), URL, "utf-8", 5_000)
    assert "error" not in found
    found["text"].encode()
    found["title"].encode()


async def test_a_slow_page_is_given_up() -> None:
    with pytest.raises(DocumentUnreadable, match="too long"):
        await html_text(b"<p>a", url=URL, max_chars=9, deadline_seconds=0)


async def test_a_page_that_takes_too_much_ends_its_process_only() -> None:
    """In a process of its own with less memory than ours would have it, so that it is soon over."""
    script = (
        "from agent.media import html_reader;"
        "html_reader.MAX_MEMORY_BYTES = 150_000_000; html_reader.main()"
    )
    question = b'{"url": "", "label": "", "max_chars": 9}\n'
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate(question + b"<i>" * 400_000)
    assert MAX_MEMORY_BYTES > 150_000_000
    assert out in (b"", b'{"error": "it is too much to unpack"}')


async def test_letters_and_addresses_reach_the_process() -> None:
    page = "<title>мир</title><a href=x>да</a>".encode("cp1251")
    found = await html_text(page, url=URL, label="windows-1251", max_chars=99)
    assert (found.title, found.text, found.cut) == (
        "мир", "[да](https://example.org/a/x)", False
    )  # fmt: skip
