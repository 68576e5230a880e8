"""Which letters bytes of the web are: what a server or a page calls them, as browsers do."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.media.charsets import PIECE_BYTES, codec_named, web_text


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("utf-8", "utf-8"),
        ("UTF8", "utf-8"),
        (' "utf-8"', "utf-8"),
        ("latin1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("ISO-8859-15", "iso8859-15"),
        ("gbk", "gb18030"),
        ("x-sjis", None),
        ("shift-jis", "cp932"),
        ("euc-kr", "cp949"),
        ("big5", "big5hkscs"),
        ("koi8-r", "koi8-r"),
        *((name, None) for name in ("zip", "rot13", "hex", "base64", "punycode", "idna", "utf-7")),
        *((name, None) for name in ("", "\0", "x" * 40, "../../x", "undefined", "mbcs", "ünï")),
    ],
)
def test_what_a_label_means(label: str, codec: str | None) -> None:
    assert codec_named(label) == codec


@given(st.binary(max_size=300), st.text(max_size=12) | st.sampled_from(["utf-16", "gbk", "big5"]))
def test_any_bytes_with_any_label_are_text_that_can_be_kept(data: bytes, label: str) -> None:
    for markup in (False, True):
        web_text(data, label, markup=markup).encode()


@given(st.text(max_size=200))
def test_a_mark_goes_before_a_label(text: str) -> None:
    assert web_text(codecs.BOM_UTF8 + text.encode(), "koi8-r") == text


def test_a_page_says_it_itself_where_the_server_does_not() -> None:
    said = '<META http-equiv="x" content="text/html; CHARSET=windows-1251"><p>мир'
    assert web_text(said.encode("cp1251"), markup=True) == said
    assert web_text(said.encode("cp1251"), "nonsense", markup=True) == said
    assert web_text(said.encode(), "utf-8", markup=True) == said
    assert "мир" not in web_text(said.encode("cp1251"))
    wrong = "<meta charset=utf-16><p>мир"  # who could read that could not read it
    assert web_text(wrong.encode(), markup=True) == wrong


def test_one_damaged_letter_does_not_make_it_another_alphabet() -> None:
    assert web_text("für äöü".encode() + b"\xff") == "für äöü\ufffd"
    assert web_text("grüß".encode()[:-1]) == "grü\ufffd"
    assert web_text("grüß".encode("cp1252")) == "grüß"


@pytest.mark.parametrize("label", ["windows-1252", "iso-8859-7", "koi8-u", "big5", "utf-8"])
def test_what_is_read_in_pieces_is_the_same(label: str) -> None:
    codec = codec_named(label)
    assert codec is not None
    data = bytes(range(256)) * (PIECE_BYTES // 128) + b"ab\x81"
    assert web_text(data, label) == data.decode(codec, "replace")
