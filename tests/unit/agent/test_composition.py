"""What fills a window: the parts, their sum, what it leaves room for."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.composition import PARTS, compose, fill
from agent.messages import Message, MessageKind, Row, ToolSchema, wire_message
from agent.model_metadata import (
    TriggerRules,
    estimate_message_tokens,
    estimate_prefix_tokens,
    estimate_tokens_rough,
    estimate_tools_tokens,
    images_in,
    triggers_for,
)
from agent.sessions import (
    CompressionState,
    LoadedSession,
    Session,
    SessionPrefix,
    UsageAnchor,
)
from tests.fakes.message_lists import conversations

TOOLS = (ToolSchema("recall", "finds what was said"), ToolSchema("clock", "tells the time"))
PREFIX = SessionPrefix("console", "model-1", "be kind", TOOLS)
TRIGGERS = triggers_for(200_000, TriggerRules(), max_tokens=8_192)
KINDS: tuple[MessageKind | None, ...] = (None, None, None, "summary", "micro", "note", "stub")


def row(number: int, message: Any, **fields: Any) -> Row:
    """As a store makes it: with the estimate of the form as sent."""
    made = Row(number, "s_1", number, cast(Message, message), 1000.0 + number, **fields)
    if "tokens" in fields:
        return made
    tokens = estimate_message_tokens(wire_message(made))
    return Row(number, "s_1", number, made.message, made.created_at, tokens=tokens, **fields)


def loaded(rows: list[Row], **fields: Any) -> LoadedSession:
    session = Session(
        id="s_1",
        conversation_id="c_1",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=PREFIX,
        title=None,
        started_at=1000.0,
        ended_at=None,
        end_reason=None,
        message_count=len(rows),
        anchor=fields.get("anchor"),
        compression=fields.get("compression", CompressionState()),
    )
    return LoadedSession(session, tuple(rows))


@st.composite
def stored(draw: st.DrawFn) -> list[Row]:
    rows = []
    for number, message in enumerate(draw(conversations(rows=False, max_exchanges=3)), 1):
        wire = draw(st.sampled_from((None, None, "with the memory's notes: 记得")))
        rows.append(
            row(
                number,
                message,
                kind=draw(st.sampled_from(KINDS)),
                wire_content=wire if message["role"] == "user" else None,
            )
        )
    return rows


@settings(max_examples=60)
@given(stored(), st.text(max_size=200), st.integers(50, 8_000))
def test_the_parts_add_up_to_the_one_estimate(
    rows: list[Row], prompt: str, image_tokens: int
) -> None:
    prefix = SessionPrefix("console", "model-1", prompt, TOOLS)
    found = compose(prefix, rows)
    assert tuple(found.parts) == PARTS
    assert all(tokens >= 0 for tokens in found.parts.values())
    assert found.tokens == estimate_prefix_tokens(prefix) + sum(r.tokens for r in rows)
    filled = fill(loaded(rows), TRIGGERS, image_tokens=image_tokens)
    assert filled.composition.tokens == filled.measurement.tokens, "what the triggers see"
    pictures = sum(images_in(wire_message(r)["content"]) for r in rows)
    assert filled.composition.parts["pictures"] == pictures * image_tokens


@settings(max_examples=40)
@given(stored(), st.lists(st.integers(0, 2_000), min_size=1, max_size=9))
def test_rows_that_were_counted_otherwise_still_add_up(rows: list[Row], sizes: list[int]) -> None:
    """Another version's estimate stands in the row; it is what the triggers go by."""
    other = [
        row(r.id, r.message, kind=r.kind, tokens=size)
        for r, size in zip(rows, itertools.cycle(sizes), strict=False)
    ]
    found = compose(PREFIX, other)
    assert found.tokens == estimate_prefix_tokens(PREFIX) + sum(r.tokens for r in other)
    assert all(tokens >= 0 for tokens in found.parts.values())


def test_each_part_gets_its_own() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "c1", "function": {"name": "recall", "arguments": '{"query": "locker"}'}}
    thinking = [{"type": "thinking", "thinking": "hm " * 40, "signature": "S" * 40}]
    compacted = [{"type": "compaction", "content": "what was said before " * 10}]
    text = [{"type": "text", "text": "look at this, please"}]
    rows = [
        row(1, {"role": "user", "content": "summary " * 50}, kind="summary"),
        row(2, {"role": "user", "content": [*text, picture]}),
        row(
            3,
            {
                "role": "assistant",
                "content": "I look it up",
                "tool_calls": [call],
                "anthropic_content_blocks": [*thinking, *compacted],
            },
        ),
        row(4, {"role": "tool", "tool_call_id": "c1", "name": "recall", "content": "x" * 4000}),
        row(5, {"role": "assistant", "content": "It is 47."}),
        row(6, {"role": "user", "content": "a note"}, kind="note"),
    ]
    plain = estimate_message_tokens(cast(Message, {"role": "user", "content": text}))
    whole = estimate_message_tokens
    said = cast(Message, {"role": "assistant", "content": "I look it up"})
    with_call = cast(Message, {**said, "tool_calls": [call]})
    with_thinking = cast(Message, {**said, "anthropic_content_blocks": thinking})
    with_block = cast(Message, {**said, "anthropic_content_blocks": compacted})
    found = compose(PREFIX, rows)
    assert found.messages == 6
    assert found.parts == {
        "system": estimate_tokens_rough("be kind"),
        "tools": estimate_tools_tokens(TOOLS),
        "summary": rows[0].tokens + rows[5].tokens + whole(with_block) - whole(said),
        "user": plain,
        "assistant": whole(said) + rows[4].tokens,
        "tool_calls": whole(with_call) - whole(said),
        "tool_results": rows[3].tokens,
        "pictures": rows[1].tokens - plain,
        "thinking": whole(with_thinking) - whole(said),
    }
    assert all(found.parts.values())
    assert [(m.row_id, m.role, m.part) for m in found.largest] == [
        (2, "user", "pictures"),
        (4, "tool", "tool_results"),
        (3, "assistant", "summary"),
    ]
    assert found.largest[1].tool_name == "recall"


def test_an_empty_session_holds_its_prefix() -> None:
    found = fill(loaded([]), TRIGGERS)
    assert found.composition.tokens == estimate_prefix_tokens(PREFIX) == found.measurement.tokens
    assert found.composition.largest == ()
    assert found.measured is None
    assert found.room_tokens == 200_000 - found.measurement.tokens


def test_what_was_measured_and_what_came_since() -> None:
    rows = [row(n, {"role": "user", "content": "word " * 40}) for n in range(1, 6)]
    found = fill(loaded(rows, anchor=UsageAnchor(90_000, 500, 3)), TRIGGERS)
    assert found.measurement.source == "usage"
    assert found.measurement.tokens == 90_500 + rows[3].tokens + rows[4].tokens
    assert found.measured is not None
    assert (found.measured.at, found.measured.rows_since) == (1003.0, 2)
    assert found.room_tokens == 200_000 - found.measurement.tokens
    assert found.answer_tokens == 8_192


@pytest.mark.parametrize("anchor", [None, UsageAnchor(90_000, 500, 99)])
def test_without_a_measurement_everything_is_estimated(anchor: UsageAnchor | None) -> None:
    """An anchor on a row that is not there any more measures nothing."""
    rows = [row(1, {"role": "user", "content": "hi"})]
    found = fill(loaded(rows, anchor=anchor), TRIGGERS)
    assert found.measured is None
    assert found.measurement.source == "estimate"


def test_a_window_that_is_over_full_has_no_room() -> None:
    rows = [row(1, {"role": "user", "content": "hi"}, tokens=300_000)]
    found = fill(loaded(rows), TRIGGERS)
    assert (found.room_tokens, found.answer_tokens) == (0, 0)
