"""The mapping to the wire: images, ids, ends, repaired pairs."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from agent.llm import images
from agent.llm.answers import message_of, visible_text
from agent.llm.validator import validate
from agent.llm.wire import GO_ON, NO_RESULT, OPENING, build_body, map_messages, map_tools
from agent.messages import Message, ToolSchema
from agent.ports import ModelRequest

Json = dict[str, Any]


def user(content: Any = "hi") -> Message:
    return {"role": "user", "content": content}


def calling(*ids: str, text: str | None = None) -> Message:
    calls = [{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": text, "tool_calls": calls}  # type: ignore[typeddict-item]


def result(call_id: str, content: Any = "r") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def picture(raw: bytes, kind: str = "image/png") -> Json:
    url = f"data:{kind};base64,{base64.b64encode(raw).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def png(width: int = 10, height: int = 10, size: int = 0) -> bytes:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return head + b"\0" * (size or 20)


def jpeg(width: int, height: int, *, exif: int = 0) -> bytes:
    frame = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + b"\0" * 20
    extra = b"\xff\xe1" + struct.pack(">H", exif) + b"\0" * (exif - 2) if exif else b""
    return b"\xff\xd8" + extra + frame


def test_results_stand_in_the_next_turn_before_what_the_user_says() -> None:
    turns = map_messages([user(), calling("a", "b"), result("b"), result("a", ""), user("more")])
    assert [t["role"] for t in turns] == ["user", "assistant", "user"]
    kinds = [(b["type"], b.get("tool_use_id")) for b in turns[2]["content"]]
    assert kinds == [("tool_result", "b"), ("tool_result", "a"), ("text", None)]
    assert turns[2]["content"][1]["content"] == [{"type": "text", "text": "(no output)"}]


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_goes() -> None:
    turns = map_messages([user(), calling("a"), user("?"), result("a"), result("z")])
    assert turns[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": NO_RESULT}],
        "is_error": True,
    }
    assert [b["type"] for b in turns[2]["content"]] == ["tool_result", "text"]


def test_repairs_are_logged_and_sound_lists_are_not(caplog: pytest.LogCaptureFixture) -> None:
    map_messages([user(), calling("a"), result("a"), {"role": "assistant", "content": ""}])
    assert caplog.records == []
    map_messages([{"role": "assistant", "content": "x"}, calling("a b"), result("z")])
    (record,) = caplog.records
    assert record.__dict__["repairs"] == {
        "first turn": 1,
        "call id": 1,
        "call without result": 1,
        "result without call": 1,
    }


def test_a_result_behind_an_answer_without_calls_is_dropped_aloud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    map_messages([user(), {"role": "assistant", "content": "x"}, result("z"), user()])
    (record,) = caplog.records
    assert record.__dict__["repairs"] == {"result without call": 1}


def test_ids_are_made_fit_and_unique_in_the_order_of_the_list() -> None:
    turns = map_messages([user(), calling("a b", "a b"), result("a b", "1"), result("a b", "2"),
                          calling("a_b"), result("a_b", "3")])  # fmt: skip
    uses = [b["id"] for t in turns for b in t["content"] if b["type"] == "tool_use"]
    results = [(b["tool_use_id"], b["content"][0]["text"])
               for t in turns for b in t["content"] if b["type"] == "tool_result"]  # fmt: skip
    assert uses == ["a_b", "a_b-2", "a_b-3"]
    assert results == [("a_b", "1"), ("a_b-2", "2"), ("a_b-3", "3")]


def test_errors_are_marked_as_errors() -> None:
    said = ["[error] no", "[interrupted, outcome unknown: x]", "an [error] inside"]
    turns = map_messages([user(), calling("a", "b", "c"),
                          *[result(i, t) for i, t in zip("abc", said, strict=True)]])  # fmt: skip
    assert [b.get("is_error", False) for b in turns[2]["content"]] == [True, True, False]


def test_ends_are_the_users() -> None:
    turns = map_messages([{"role": "assistant", "content": "a"}])
    assert [t["content"][0]["text"] for t in turns] == [OPENING, "a", GO_ON]
    paused = map_messages([user(), {"role": "assistant", "content": "a "}], continues_pause=True)
    assert paused[-1] == {"role": "assistant", "content": [{"type": "text", "text": "a "}]}


def test_a_compaction_block_may_stand_first() -> None:
    first = message_of([{"type": "compaction", "content": "c", "encrypted_content": "e"}])
    turns = map_messages([first, user()])
    assert turns[0]["content"] == [{"type": "compaction", "content": "c", "encrypted_content": "e"}]


def test_a_message_of_thinking_alone_is_left_out() -> None:
    thought = message_of([{"type": "thinking", "thinking": "hm", "signature": "s"}])
    turns = map_messages([user("a"), thought, user("b")])
    assert [b["text"] for b in turns[0]["content"]] == ["a", "b"]
    assert len(turns) == 1


def test_only_known_fields_are_sent() -> None:
    message: Any = {**user(), "_row": 1, "_kind": "note", "name": "x", "timestamp": 3}
    body = build_body(ModelRequest("s", [message], 10), "m")
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert list(body) == ["model", "max_tokens", "system", "messages"]


def test_tools_are_sorted_and_named_once() -> None:
    tools = [ToolSchema("b", "2"), ToolSchema("a", "1"), ToolSchema("b", "3")]
    assert [(t["name"], t["description"]) for t in map_tools(tools)] == [("a", "1"), ("b", "3")]


def test_fragments_of_one_text_are_one_and_separate_texts_are_apart() -> None:
    a, b = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    assert visible_text([a, b]) == "ab"
    assert visible_text([a, {"type": "tool_use"}, b]) == "a\n\nb"


def test_pictures_by_what_their_bytes_say() -> None:
    parts = [
        picture(png(30, 20), "image/jpeg"),
        picture(jpeg(640, 480)),
        picture(jpeg(640, 480, exif=60_000)),
        picture(b"GIF89a" + struct.pack("<HH", 5, 6) + b"\0" * 5),
        picture(b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x63\0\0\x31\0\0"),
        {"type": "image_url", "image_url": "http://127.0.0.1/x.png"},
    ]
    blocks = map_messages([user(parts)])[0]["content"]
    kinds = [b["source"].get("media_type", b["source"]["type"]) for b in blocks]
    assert kinds == ["image/png", "image/jpeg", "image/jpeg", "image/gif", "image/webp", "url"]
    webp = blocks[4]["source"]["data"]
    assert images.pixel_size(webp) == ("image/webp", 100, 50)


def test_pictures_that_can_not_be_sent_leave_a_note() -> None:
    parts = [
        picture(png(8001, 10)),
        picture(jpeg(1440, 8570)),
        picture(b"no picture at all"),
        picture(png(10, 10, size=6 << 20)),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,****"}},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    ]
    blocks = map_messages([user(parts)])[0]["content"]
    assert [b["type"] for b in blocks] == ["text"] * 7
    assert all(b["text"].startswith("[image left out") for b in blocks)


def test_many_large_pictures_give_way_and_the_small_stay() -> None:
    parts = [picture(png(2400, 10)), *[picture(png())] * 20]
    body = build_body(ModelRequest("s", [user(parts)], 10), "m")
    assert validate(body) == []
    assert [b["type"] for b in body["messages"][0]["content"]] == ["text", *["image"] * 20]


def test_the_newest_pictures_stay_within_the_size_of_a_request() -> None:
    parts = [picture(png(10, 10, size=4 << 20)) for _ in range(7)]
    body = build_body(
        ModelRequest("s", [user(), calling("a"), result("a", parts[:3]), user(parts[3:])], 10), "m"
    )
    assert validate(body) == []
    nested = body["messages"][2]["content"][0]["content"]
    assert [b["type"] for b in nested] == ["text", "text", "text"]
    assert [b["type"] for b in body["messages"][2]["content"][1:]] == ["image"] * 4


def test_calls_that_share_an_id_are_told_apart() -> None:
    call = {"type": "tool_use", "name": "clock", "input": {}}
    message = message_of([{**call, "id": "a"}, {**call, "id": "a"}, {**call, "id": "a_2"}])
    assert [c["id"] for c in message["tool_calls"]] == ["a", "a_2", "a_2_2"]
    assert "anthropic_content_blocks" not in message
