"""What is in a file: by its bytes, whatever it is called; text, pictures, documents, bombs."""

from __future__ import annotations

import asyncio
import io
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.media.documents import PdfText, decoded, pdf_text
from agent.media.kinds import BINARY, PDF, PLAIN_TEXT, SHOWN_TYPES, media_type_of, picture_size
from agent.media.pdf_reader import MAX_MEMORY_BYTES
from agent.media.pictures import (
    LONG_SIDE_PIXELS,
    MAX_SHOWN_BYTES,
    PictureMaker,
    PictureUnfit,
    fit_picture,
)
from agent.media.reader_process import DocumentUnreadable
from tests.fakes.files import HTML, locked_pdf, pdf, photo, png, png_of

# --- kinds


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", PLAIN_TEXT),
        (b"hello", PLAIN_TEXT),
        ("日本語です".encode(), PLAIN_TEXT),
        ("日本語です".encode("utf-16"), PLAIN_TEXT),
        ("plain words".encode("utf-16-le"), PLAIN_TEXT),
        (b"caf\xe9", PLAIN_TEXT),
        (b"BMW is a maker of cars, and not a picture", PLAIN_TEXT),
        (b"MZ, ID3, GIF8 and BZh begin texts as well", PLAIN_TEXT),
        (b"MZ\x90\x00\x03\x00\x00\x00", "application/x-executable"),
        (HTML, "text/html"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>", "text/xml"),
        (png(), "image/png"),
        (png() + HTML, "image/png"),
        (b"%PDF-1.7 ...", PDF),
        (b"PK\x03\x04....", "application/zip"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"\x00\x00\x00\x20ftypheic....", "image/heic"),
        (b"\x00\x00\x00\x20ftypisom....", "video/mp4"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"RIFF\x00\x00\x00\x00????", BINARY),
        (b"RIFF", PLAIN_TEXT),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\x00\x01\x02\x03" * 100, BINARY),
        (b"text, then \x00 a zero", BINARY),
        (b"\xff\xd8\xff", "image/jpeg"),
    ],
)
def test_the_kind_is_what_the_bytes_say(data: bytes, kind: str) -> None:
    assert media_type_of(data) == kind


@given(st.binary(max_size=200))
def test_any_bytes_have_a_kind(data: bytes) -> None:
    kind = media_type_of(data)
    assert "/" in kind
    # What is told as text can be read as text.
    assert (decoded(data) is not None) == kind.startswith("text/") or kind not in (
        PLAIN_TEXT,
        "text/html",
        BINARY,
    )


# --- text


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_text_is_read_in_its_encoding(codec: str) -> None:
    text = "Grüße and plain words, 42 of them.\nA second line.\n"
    assert decoded(text.encode(codec)) == text


def test_old_encodings_and_cut_letters_are_read_as_well_as_can_be() -> None:
    assert decoded("Grüße, 5 €".encode("cp1252")) == "Grüße, 5 €"
    assert decoded("日本".encode()[:-1]) == "日\ufffd"
    assert decoded(b"\x00\x01\x02" * 9) is None


@given(st.text(min_size=1, max_size=80), st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]))
def test_marked_text_comes_back(text: str, codec: str) -> None:
    assert decoded(text.encode(codec)) == text


# --- pictures


def test_a_small_picture_goes_as_it_is() -> None:
    for data in (png(), photo(300, 200), photo(80, 60, kind="GIF"), photo(80, 60, kind="WEBP")):
        shown = fit_picture(data)
        assert shown.data is data
        assert shown.media_type in SHOWN_TYPES


def test_a_photo_from_a_phone_becomes_small_and_stands_upright() -> None:
    shown = fit_picture(photo(4032, 3024, orientation=6))
    size = picture_size(shown.data)
    assert size is not None
    assert (size.media_type, size.width, size.height) == ("image/jpeg", 1176, LONG_SIDE_PIXELS)
    assert (shown.original_width, shown.original_height) == (3024, 4032)
    assert len(shown.data) <= MAX_SHOWN_BYTES
    assert b"Exif" not in shown.data  # nor where it was taken


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_undone(orientation: int) -> None:
    from PIL import Image, ImageOps

    data = photo(60, 40, orientation=orientation)
    shown = fit_picture(data)
    with Image.open(io.BytesIO(data)) as image, Image.open(io.BytesIO(shown.data)) as made:
        upright = ImageOps.exif_transpose(image)
        assert made.size == upright.size == (shown.original_width, shown.original_height)
        # The corners are where they belong; the rest is what JPEG makes of it.
        for place in ((2, 2), (made.width - 3, 2), (2, made.height - 3)):
            apart = zip(made.getpixel(place), upright.getpixel(place), strict=True)  # type: ignore[arg-type]
            assert all(abs(a - b) < 60 for a, b in apart)


def test_other_kinds_and_colours_become_what_a_model_takes() -> None:
    from PIL import Image

    for mode, kind in (("RGB", "BMP"), ("1", "BMP"), ("CMYK", "JPEG"), ("RGBA", "PNG")):
        out = io.BytesIO()
        Image.new(mode, (1800, 20)).save(out, kind)
        shown = fit_picture(out.getvalue())
        assert shown.media_type in SHOWN_TYPES
        size = picture_size(shown.data)
        assert size is not None
        assert size.width == LONG_SIDE_PIXELS


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "damaged"),
        (HTML, "damaged"),
        (png(400, 300)[:-60], "damaged"),
        (photo(300, 200)[:2000], "damaged"),
        (png_of(4, 3, b"garbage"), "damaged"),
        (png_of(0, 3, b""), "damaged"),
        (png_of(50_000, 50_000, zlib.compress(b"")), "too many"),
        (b"GIF89a\xff\xff\xff\xff" + b"\x00" * 30, "too many"),
    ],
)
def test_what_can_not_be_shown_says_why(data: bytes, why: str) -> None:
    with pytest.raises(PictureUnfit, match=why):
        fit_picture(data)


def test_a_small_screen_with_a_huge_frame_is_refused() -> None:
    frame = b"\x2c\x00\x00\x00\x00\xff\xff\xff\xff\x00"  # 65535 x 65535 on a screen of 10 x 10
    data = b"GIF89a\x0a\x00\x0a\x00\x00\x00\x00" + frame + b"\x08\x01\x00\x00;"
    with pytest.raises(PictureUnfit):
        fit_picture(data)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = png_of(30_000, 30_000, zlib.compress(b"\x00" * 10_000_000))
    assert len(bomb) < 20_000
    with pytest.raises(PictureUnfit, match="30000 x 30000"):
        fit_picture(bomb)


@given(st.data())
@settings(max_examples=50)
def test_a_spoiled_picture_is_unfit_or_fit_and_never_worse(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([png(40, 30), photo(64, 48), _gif(), _webp()])))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        shown = fit_picture(bytes(whole))
    except PictureUnfit:
        return
    size = picture_size(shown.data)
    assert size is not None
    assert size.media_type == shown.media_type
    assert max(size.width, size.height) <= LONG_SIDE_PIXELS


def _gif() -> bytes:
    return photo(40, 30, kind="GIF")


def _webp() -> bytes:
    return photo(40, 30, kind="WEBP")


async def test_a_picture_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(PictureUnfit, match="too long"):
        await PictureMaker(deadline_seconds=0).fit(photo(4032, 3024))


async def test_pictures_are_made_beside_the_loop() -> None:
    maker = PictureMaker()
    shown = await asyncio.gather(*(maker.fit(png(shade=shade)) for shade in range(5)))
    assert [each.data for each in shown] == [png(shade=shade) for shade in range(5)]


# --- documents


async def test_the_text_of_a_document_comes_page_by_page() -> None:
    data = pdf(["first", "second " * 20, "third"])
    whole = await pdf_text(data, page=1, offset=0, max_chars=5000)
    assert (whole.pages, whole.next_page) == (3, None)
    assert whole.text.startswith("[page 1 of 3]\nfirst\n\n[page 2 of 3]\nsecond second")
    part = await pdf_text(data, page=2, offset=7, max_chars=20)
    assert part == PdfText("[page 2 of 3]\nsecond second second", 3, 2, 27)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"%PDF-", "damaged"),
        (b"%PDF-1.4\n" + b"\x00" * 2000, "damaged"),
        (pdf(["a"])[:300], "damaged"),
        (locked_pdf("sesame"), "password"),
    ],
    ids=["head", "zeros", "cut", "locked"],
)
async def test_a_document_that_can_not_be_read_says_why(data: bytes, why: str) -> None:
    with pytest.raises(DocumentUnreadable, match=why):
        await pdf_text(data, page=1, offset=0, max_chars=100)


async def test_a_page_that_is_not_there() -> None:
    with pytest.raises(DocumentUnreadable, match="has 2 pages"):
        await pdf_text(pdf(["a", "b"]), page=7, offset=0, max_chars=100)


async def test_a_bomb_of_a_page_costs_that_page_only() -> None:
    data = pdf(["before", "x"], packed=zlib.compress(b"\x00" * 150_000_000, 9))
    found = await pdf_text(data, page=1, offset=0, max_chars=1000)
    assert "before" in found.text
    assert "can not be read" in found.text


async def test_a_slow_document_is_killed() -> None:
    with pytest.raises(DocumentUnreadable, match="too long"):
        await pdf_text(pdf(["a"]), page=1, offset=0, max_chars=9, deadline_seconds=0)


async def test_a_stop_ends_the_process() -> None:
    task = asyncio.ensure_future(pdf_text(pdf(["a"]), page=1, offset=0, max_chars=9))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="not on this system")
async def test_the_reader_of_a_document_is_the_one_to_go_when_memory_ends() -> None:
    """In a process of its own, as it is bound for good."""
    script = (
        "from pathlib import Path; import resource; from agent.media import pdf_reader;"
        "pdf_reader.bound_this_process();"
        "print(Path('/proc/self/oom_score_adj').read_text().strip(),"
        " resource.getrlimit(resource.RLIMIT_AS)[0])"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", script), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().split() == ["1000", str(MAX_MEMORY_BYTES)]
