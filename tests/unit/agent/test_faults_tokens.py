"""Faults that users reported, letter (c): sizes that are misread, so that nothing or all is cut."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any, cast

import pytest

from agent.compaction.plan.boundary import CutRules, find_boundaries
from agent.context_compressor import ContextCompressor
from agent.llm.images import MANY_MAX_SIDE_PIXELS, pixel_size
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import Draft, Message, ToolSchema
from agent.model_metadata import (
    estimate_messages_tokens_rough,
    estimate_prefix_tokens,
    estimate_tokens_rough,
    messages_tokens,
)
from agent.ports import ModelRequest, Usage
from agent.sessions import SessionPrefix, TurnOpening
from tests.fakes.clock import FakeClock
from tests.fakes.conversations import conversation
from tests.fakes.fault_scene import Scene
from tests.fakes.scripted_model import ScriptedModel, answer
from tests.fakes.side_model import ScriptedSideModel
from tests.fakes.stored import KEY, OWNER


@pytest.mark.parametrize(
    ("usage", "prompt", "due"),
    [
        (Usage(12, 500, 15_000, 200), 15_212, True),
        (Usage(12, 500, 11_000, 200), 11_212, False),
        (Usage(15_000, 500), 15_000, True),
        (Usage(0, 0), 0, False),
    ],
)
async def test_b07_what_was_read_from_the_cache_is_part_of_the_prompt(
    usage: Usage, prompt: int, due: bool
) -> None:
    """Written and read parts count, each once; a usage of nothing leaves the estimate in force."""
    assert usage.prompt_tokens == prompt
    scene = Scene("## Goal\nx")
    model = ScriptedModel(answer("hello", usage=usage))
    await scene.turn(model, "hi")
    decision = scene.compactor.due(await scene.tip())
    assert decision.due == due
    assert decision.tokens >= prompt
    if not prompt:
        assert decision.tokens < 100  # the estimate of two short messages and the prompt


@pytest.mark.parametrize("usage", [None, Usage()])
async def test_b07_without_a_usage_a_long_history_is_still_found_long(usage: Usage | None) -> None:
    scene = Scene("## Goal\nx")
    loaded = await scene.talked(15_000, "chat")
    if usage is not None:
        loaded = await scene.compactor.note_usage(loaded, usage)
    assert scene.compactor.due(loaded).due


HAN = "我们需要在发布之前把所有的日志都检查一遍" * 500
HANGUL = "배포 전에 모든 로그를 확인해야 합니다 " * 500
KANA = "デプロイのまえにすべてのログをかくにんします" * 500
EXTENSION = "𠀀𠀁𠀂𠀃" * 2_500


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (HAN[:10_000], 6_000, 15_000),
        (KANA[:10_000], 6_000, 15_000),
        (EXTENSION[:10_000], 6_000, 15_000),
        (HANGUL[:10_000], 6_000, 15_000),
        ("a" * 10_000, 2_500, 2_500),
        ("a" * 10_001, 2_501, 2_501),
        (HAN[:5_000] + "a" * 5_000, 5_000, 7_500),
        ("👩‍👩‍👧‍👦" * 1_000, 1_000, 7_000),
        ("", 0, 0),
    ],
)
def test_b82_dense_scripts_are_counted_by_the_character(text: str, low: int, high: int) -> None:
    assert low <= estimate_tokens_rough(text) <= high


@pytest.mark.parametrize("kind", ["chat", "chat_zh", "chat_ja"])
async def test_b82_trigger_tail_net_and_budget_count_alike(kind: str) -> None:
    """One estimator: what the trigger sees is the sum of what the tail walk and the net see."""
    scene = Scene("## Goal\nx")
    talk = conversation(kind, 4, tokens=11_000).messages
    loaded = await scene.talked(11_000, kind, 4)
    total = sum(messages_tokens(talk))
    prefix = estimate_prefix_tokens(loaded.session.prefix)
    assert scene.compactor.due(loaded).tokens == total + prefix
    assert scene.compactor.measure(loaded).tokens == total + prefix
    assert sum(row.tokens for row in loaded.rows) == total
    cut = find_boundaries(talk, messages_tokens(talk), CutRules(3, 1, 2_000, 2_000))
    assert cut is not None
    assert 1_000 < sum(messages_tokens(talk[cut.tail.start :])) <= 3_000
    engine = ContextCompressor(
        "m",
        config_context_length=200_000,
        side_model=ScriptedSideModel("## Goal\nx"),
        clock=FakeClock(),
    )
    engine.compress(cast(Any, talk), total, None, True)
    assert engine.last_attempt.manifest.get("tokens_before", total) == total


async def test_b84_schemas_are_counted_once() -> None:
    """Fifty tools with about 25,000 tokens of schema: in every size, and never twice."""
    fields = {f"field_{k}": {"type": "string", "description": "d" * 60} for k in range(18)}
    tools = tuple(
        ToolSchema(f"tool_{k}", "what it does " * 10, {"type": "object", "properties": fields})
        for k in range(50)
    )
    by_hand = sum(
        (len(t.name) + len(t.description) + len(json.dumps(t.parameters))) / 4 for t in tools
    )
    assert 20_000 < by_hand < 30_000
    scene = Scene("## Goal\nx")
    prefix = SessionPrefix("test", "m", "s" * 4_000, tools)
    said = Draft(cast(Message, {"role": "user", "content": "u" * 8_000}))
    ticket = await scene.store.begin_turn(TurnOpening(KEY, OWNER, (), said, prefix))
    loaded = await scene.store.load(ticket.session_id)
    size = scene.compactor.due(loaded).tokens
    assert abs(size - (by_hand + 1_000 + 2_000)) < 0.15 * by_hand
    # a real size holds them already
    loaded = await scene.compactor.note_usage(loaded, Usage(27_000, 10))
    final = Draft(cast(Message, {"role": "assistant", "content": "ok"}))
    await scene.store.finish_turn(
        ticket, ticket.session_id, "done", final=final, anchor_usage=Usage(27_000, 10)
    )
    loaded = await scene.store.load(ticket.session_id)
    assert 27_000 <= scene.compactor.due(loaded).tokens < 27_100


def png(width: int, height: int) -> str:
    """A picture of that size, by its header; one row of it is really there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\x00" + b"\x7f" * width) * height, 9)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(raw).decode()}"


def pictures(*urls: str) -> list[Any]:
    messages: list[Any] = []
    for number, url in enumerate(urls):
        image = {"type": "image_url", "image_url": {"url": url}}
        text = {"type": "text", "text": f"picture {number}"}
        messages.append({"role": "user", "content": [text, image]})
        messages.append({"role": "assistant", "content": "seen"})
    return [*messages, {"role": "user", "content": "and now?"}]


@pytest.mark.parametrize(
    "urls",
    [
        [png(2_400, 10)] * 21,
        [png(1_440, 8_570)],
        ["data:image/png;base64,AAAA", "data:image/png;base64,§§§"],
        ["data:image/png;base64," + "A" * 36_000_000],
        ["file:///etc/passwd", "", "data:,"],
    ],
)
def test_b119_no_picture_blocks_a_session(urls: list[str]) -> None:
    messages = pictures(*urls)
    before = json.dumps(messages)
    body = build_body(ModelRequest("s", messages, 100), "m")
    assert validate(body) == []
    assert json.dumps(messages) == before
    assert "and now?" in json.dumps(body["messages"][-1])
    assert all(f"picture {k}" in json.dumps(body) for k in range(len(urls)))
    sent = [
        block
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "image"
    ]
    for block in sent:
        found = pixel_size(block["source"]["data"])
        assert found is not None
        if len(sent) > 20:
            assert max(found[1:]) <= MANY_MAX_SIDE_PIXELS


def test_a_picture_costs_the_same_wherever_it_is_counted() -> None:
    messages = pictures(png(10, 10), png(20, 20))
    one = estimate_messages_tokens_rough(cast(list[Message], messages[:1]))
    assert one == messages_tokens(cast(list[Message], messages))[0]
    assert one > 1_000
