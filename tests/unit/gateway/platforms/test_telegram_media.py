from __future__ import annotations

from typing import Any

import pytest

from gateway.platforms.contract import Attachment
from gateway.platforms.telegram.media import attachments, in_words

HERE = {"latitude": 1, "longitude": 2}


def size(file_id: str, edge: int, file_size: int | None = None) -> dict[str, Any]:
    value: dict[str, Any] = {"file_id": file_id, "width": edge, "height": edge}
    return value if file_size is None else {**value, "file_size": file_size}


@pytest.mark.parametrize(
    ("sizes", "ref"),
    [
        ([size("s", 90, 1_000), size("m", 320, 9_000), size("l", 1280, 90_000)], "l"),
        ([size("l", 1280, 90_000), size("s", 90, 1_000)], "l"),
        ([size("s", 90, 1_000), size("huge", 9000, 30_000_000)], "s"),
        ([size("huge", 9000, 30_000_000), size("huger", 9999, 40_000_000)], "huge"),
        ([size("only", 90)], "only"),
        ([{"file_id": "bare"}], "bare"),
    ],
)
def test_of_a_photo_the_largest_that_can_be_had(sizes: list[dict[str, Any]], ref: str) -> None:
    (photo,) = attachments({"photo": sizes})
    assert (photo.kind, photo.ref, photo.label) == ("image", ref, "photo")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {"document": {"file_id": "d", "file_name": "a.PDF", "mime_type": "application/pdf",
                          "file_size": 9, "thumbnail": size("t", 90)}},
            Attachment("file", "d", "a.PDF", "application/pdf", 9),
        ),
        (
            {"document": {"file_id": "d", "mime_type": "image/PNG"}},
            Attachment("image", "d", "", "image/PNG"),
        ),
        (
            {"document": {"file_id": "d", "mime_type": "image/svg+xml"}},
            Attachment("file", "d", "", "image/svg+xml"),
        ),
        (
            {"document": {"file_id": "d", "mime_type": "audio/flac"}},
            Attachment("audio", "d", "", "audio/flac"),
        ),
        (
            {"document": {"file_id": "d", "file_name": "a\nb\u202e\ud800", "file_size": "9"}},
            Attachment("file", "d", "a b\u202e\ufffd"),
        ),
        (
            {"animation": {"file_id": "a", "mime_type": "video/mp4"}, "document": {"file_id": "a"}},
            Attachment("video", "a", "", "video/mp4", None, "animation"),
        ),
        (
            {"audio": {"file_id": "a", "title": "Song", "file_size": 2**40}},
            Attachment("audio", "a", "Song", "", 2**40),
        ),
        (
            {"voice": {"file_id": "v", "mime_type": "audio/ogg"}},
            Attachment("audio", "v", "", "audio/ogg", None, "voice message"),
        ),
        ({"video_note": {"file_id": "v"}}, Attachment("video", "v", label="video message")),
        (
            {"live_photo": {"file_id": "v", "photo": [size("p", 9)]}, "photo": [size("p", 9)]},
            Attachment("image", "p", "", "image/jpeg", None, "photo"),
        ),
        ({"live_photo": {"file_id": "v"}}, Attachment("video", "v", label="live photo")),
        (
            {"sticker": {"file_id": "s", "emoji": "👨‍👩‍👧", "is_animated": False}},
            Attachment("image", "s", "", "image/webp", None, "sticker 👨‍👩‍👧"),
        ),
    ],
)  # fmt: skip
def test_files(message: dict[str, Any], expected: Attachment) -> None:
    assert attachments(message) == (expected,)
    assert in_words(message) is None


def test_names_have_an_end() -> None:
    (file,) = attachments({"document": {"file_id": "d", "file_name": "n" * 5000}})
    assert len(file.file_name) <= 201


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"sticker": {"file_id": "s", "emoji": "😀", "is_animated": True}}, "[moving sticker 😀]"),
        ({"sticker": {"file_id": "s", "is_video": True}}, "[moving sticker]"),
        ({"location": {"latitude": 52, "longitude": -13.4}}, "[location: 52.000000, -13.400000]"),
        (
            {"location": {"latitude": 1, "longitude": 2, "live_period": 60}},
            "[live location: 1.000000, 2.000000]",
        ),
        (
            {"venue": {"title": "Inn", "address": "Road 1", "location": HERE}, "location": HERE},
            "[place: Inn, Road 1 (1.000000, 2.000000)]",
        ),
        (
            {"contact": {"first_name": "Ada", "last_name": "L", "phone_number": "+49 1"}},
            "[contact: Ada L, +49 1]",
        ),
        (
            {"poll": {"question": "Why\nnot?", "options": [{"text": "a"}, {"text": "b"}]}},
            "[poll: Why not? - options: a / b]",
        ),
        ({"dice": {"emoji": "🎯", "value": 6}}, "[dice 🎯: 6]"),
        (
            {"checklist": {"title": "Buy", "tasks": [
                {"id": 1, "text": "tea", "completion_date": 9}, {"id": 2, "text": "milk"}]}},
            "[checklist: Buy - [x] tea, [ ] milk]",
        ),
        ({"story": {"id": 3, "chat": {}}}, "[story]"),
        ({"paid_media": {"star_count": 3}}, "[paid media]"),
        ({"game": {"title": "Chess"}}, "[game: Chess]"),
        ({"invoice": {"title": "Hat", "total_amount": 5}}, "[invoice: Hat]"),
        ({"hologram": {"id": 1}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_what_can_not_be_fetched_becomes_words(message: dict[str, Any], said: str | None) -> None:
    assert in_words(message) == said
    assert attachments(message) == ()


def test_words_have_an_end() -> None:
    options = [{"text": "o" * 500} for _ in range(1000)]
    said = in_words({"poll": {"question": "q" * 9000, "options": options}})
    assert said is not None
    assert len(said) < 3_000
