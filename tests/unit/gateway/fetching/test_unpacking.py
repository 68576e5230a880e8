"""Packed bodies are unpacked as far as is wanted, and no further."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.web import WebRefusal
from gateway.fetching.unpacking import Unpacker


def _bare(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


FORMS = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}


@given(
    st.binary(max_size=3000),
    st.sampled_from(sorted(FORMS)),
    st.integers(1, 50),
    st.integers(1, 4000),
)
def test_whatever_comes_in_pieces_is_the_same(data: bytes, form: str, step: int, most: int) -> None:
    body = FORMS[form](data)
    unpacker = Unpacker(form, most)
    for at in range(0, len(body), step):
        unpacker.take(body[at : at + step])
    unpacker.finish()
    assert unpacker.data == data[:most]
    assert unpacker.full == (len(data) > most)


def test_deflate_without_its_head() -> None:
    unpacker = Unpacker("deflate", 100)
    unpacker.take(_bare(b"hello hello hello"))
    unpacker.finish()
    assert unpacker.data == b"hello hello hello"


def test_a_bomb_takes_no_more_than_is_wanted() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    unpacker = Unpacker("gzip", 1000)
    unpacker.take(bomb)
    assert unpacker.full
    assert unpacker.data == bytes(1000)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_what_was_not_asked_for(encoding: str) -> None:
    with pytest.raises(WebRefusal, match="not asked for"):
        Unpacker(encoding, 10)


def test_damaged_or_cut() -> None:
    body = gzip.compress(b"x" * 1000)
    unpacker = Unpacker("gzip", 5000)
    unpacker.take(body[:-9])
    with pytest.raises(WebRefusal, match="before its end"):
        unpacker.finish()
    unpacker = Unpacker("gzip", 5000)
    with pytest.raises(WebRefusal, match="damaged"):
        unpacker.take(body[:10] + b"\x07" * 40)


def test_what_follows_behind_the_end_is_not_kept() -> None:
    """A server that goes on for ever must not be remembered for ever."""
    unpacker = Unpacker("gzip", 1000)
    unpacker.take(gzip.compress(b"all of it"))
    assert unpacker.over
    tracemalloc.start()
    try:
        for _ in range(100):
            unpacker.take(bytes(100_000))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    unpacker.finish()
    assert (unpacker.data, unpacker.full) == (b"all of it", False)
