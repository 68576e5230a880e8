"""What a picture costs: learned from the difference of two real prompts, never from a guess."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.image_tokens import MAX_SAMPLES, MAX_TOKENS, MIN_TOKENS, ImageTokens, sample
from agent.messages import Message, Row
from agent.model_metadata import (
    IMAGE_TOKENS,
    estimate_message_tokens,
    measure,
    messages_tokens,
)
from agent.sessions import CompressionState, LoadedSession, Session, SessionPrefix, UsageAnchor

IMAGE = {"type": "image_url", "image_url": {"url": "https://pictures.test/1.png"}}


def row(number: int, text: str, images: int = 0, role: str = "user") -> Row:
    content = [{"type": "text", "text": text}, *[dict(IMAGE) for _ in range(images)]]
    message: Message = {"role": role, "content": content}  # type: ignore[typeddict-item]
    return Row(number, "s", number, message, 0.0, tokens=estimate_message_tokens(message))


def loaded(*rows: Row, anchor: UsageAnchor | None = None) -> LoadedSession:
    session = Session(
        id="s",
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=SessionPrefix("t", "m", ""),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=len(rows),
        anchor=anchor,
        compression=CompressionState(),
    )
    return LoadedSession(session, rows)


@given(
    images=st.integers(1, 20),
    each=st.integers(MIN_TOKENS, MAX_TOKENS),
    words=st.integers(0, 40),
    wrong=st.floats(0.85, 1.15),
)
def test_the_remainder_is_what_the_pictures_took(
    images: int, each: int, words: int, wrong: float
) -> None:
    text = "word " * words
    rows = (row(1, "hi"), row(2, "hello", role="assistant"), row(3, text, images))
    estimate = rows[2].tokens - images * IMAGE_TOKENS
    real = round(wrong * estimate)
    found = sample(loaded(*rows, anchor=UsageAnchor(1000, 20, 2)), 1000 + 20 + real + images * each)
    error = abs(estimate - real) / images + 1
    if found is not None:
        assert abs(found - each) <= error
    else:
        assert (
            1.2 * estimate + 1 >= images * each
            or each - error < MIN_TOKENS
            or each + error > MAX_TOKENS
        )


@pytest.mark.parametrize(
    ("rows", "anchor", "prompt"),
    [
        ([row(1, "hi", 1)], None, 2000),  # nothing was measured before
        ([row(1, "hi"), row(2, "text")], UsageAnchor(1000, 0, 1), 2500),  # no picture came
        ([row(1, "hi"), row(2, "x", 1)], UsageAnchor(1000, 0, 7), 2500),  # another list
        ([row(1, "hi"), row(2, "x", 1)], UsageAnchor(1000, 0, 1), 0),
        ([row(1, "hi"), row(2, "x", 1)], UsageAnchor(1000, 0, 1), 900),  # the prompt shrank
        ([row(1, "hi"), row(2, "x", 1)], UsageAnchor(1000, 0, 1), 1020),  # too little
        ([row(1, "hi"), row(2, "x", 1)], UsageAnchor(1000, 0, 1), 100_000),  # too much
        ([row(1, "hi"), row(2, "word " * 4000, 1)], UsageAnchor(1000, 0, 1), 7000),  # lost in text
    ],
)
def test_what_tells_nothing(rows: list[Row], anchor: UsageAnchor | None, prompt: int) -> None:
    assert sample(loaded(*rows, anchor=anchor), prompt) is None


def test_one_odd_figure_moves_nothing() -> None:
    prices = ImageTokens()
    for figure in (300, 310, 7900, 305, 60):
        prices.learn("m", figure)
    assert prices.of("m") == 305
    assert prices.of("other") == IMAGE_TOKENS


def test_a_model_that_sees_otherwise_now_is_believed() -> None:
    prices = ImageTokens({"m": [300] * 50})
    for _ in range(MAX_SAMPLES // 2 + 1):
        prices.learn("m", 1200)
    assert prices.of("m") == 1200


def test_only_a_change_is_worth_writing_down() -> None:
    written: list[dict[str, tuple[int, ...]]] = []
    prices = ImageTokens(on_learned=lambda s: written.append({k: tuple(v) for k, v in s.items()}))
    prices.learn("m", None)
    for figure in (1510, 1500, 1505, 1490, 3000, 3000, 3000, 3000, 3000):
        prices.learn("m", figure)
    assert [len(w["m"]) for w in written] == [1, 8, 9]


def test_sizes_are_corrected_by_the_count_of_pictures() -> None:
    rows = (row(1, "hi", 2), row(2, "ok", role="assistant"), row(3, "and", 3))
    flat = measure(loaded(*rows), prefix_tokens=10)
    cheap = measure(loaded(*rows), prefix_tokens=10, image_tokens=200)
    assert flat.tokens - cheap.tokens == 5 * (IMAGE_TOKENS - 200)
    anchored = loaded(*rows, anchor=UsageAnchor(4000, 5, 2))
    assert measure(anchored, prefix_tokens=10, image_tokens=200).added_tokens == (
        rows[2].tokens - 3 * (IMAGE_TOKENS - 200)
    )
    waiting = replace(
        anchored.session, anchor=None, compression=CompressionState(awaiting_usage=True)
    )
    unknown = measure(LoadedSession(waiting, rows), prefix_tokens=10, image_tokens=200)
    assert (unknown.source, unknown.tokens) == ("unknown", cheap.tokens)


def test_an_engines_list_is_corrected_too() -> None:
    messages = [row(n, "x", n).message for n in range(3)]
    flat, dear = messages_tokens(messages), messages_tokens(messages, image_tokens=4000)
    assert [b - a for a, b in zip(flat, dear, strict=True)] == [0, 2500, 5000]
