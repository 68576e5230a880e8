"""Whatever list comes, the request is valid; what was mapped once maps to the same again."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.llm.answers import message_of, raw_blocks
from agent.llm.clean import input_object
from agent.llm.validator import ThinkingLedger, validate
from agent.llm.wire import build_body, map_messages
from agent.messages import Message, ToolSchema, clean_text, without_thinking
from agent.ports import ModelRequest
from agent.prompt_caching import apply_anthropic_cache_control

Json = dict[str, Any]

# Everything that a person, a model or a broken import may write: halves of surrogate pairs too.
texts = st.one_of(
    st.text(max_size=12),
    st.text(alphabet=st.characters(categories=("Cs", "Lo", "Zs", "Cc")), max_size=5),
    st.sampled_from(["", " ", "\n\t", "😀", "界界", "\ud83d", "\ude00", "[error] no", "a\x00b"]),
)
ids = st.one_of(
    st.sampled_from(["a", "b", "c", "", "a b", "call:1", "é", "x" * 90]), st.text(max_size=4)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.one_of(
    json_values.map(lambda value: json.dumps(value)),
    st.dictionaries(texts, json_values, max_size=3).map(lambda value: json.dumps(value)),
    texts,
    st.sampled_from(["", "{", "[" * 5000, '{"n": 1e999}', '{"s": "\\ud83d"}', "NaN", "1" * 5000]),
)
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
urls = st.one_of(
    st.sampled_from(
        [
            f"data:image/png;base64,{PNG}",
            f"data:image/jpeg;base64,{PNG}",
            "data:image/png;base64,",
            "data:image/png;base64,AAAA",
            "data:text/plain,hello",
            "http://127.0.0.1/a.png",
            "ftp://x",
        ]
    ),
    texts,
)
parts = st.one_of(
    texts.map(lambda t: {"type": "text", "text": t}),
    urls.map(lambda u: {"type": "image_url", "image_url": {"url": u}}),
    st.just({"type": "input_audio", "data": "?"}),
)
contents = st.one_of(st.none(), texts, st.lists(parts, max_size=3))


@st.composite
def calls(draw: st.DrawFn) -> Json:
    return {
        "id": draw(ids),
        "type": "function",
        "function": {
            "name": draw(st.sampled_from(["f", "g.h", "", "é"])),
            "arguments": draw(arguments),
        },
    }


raw = st.lists(
    st.one_of(
        texts.map(lambda t: {"type": "text", "text": t, "cache_control": {"type": "ephemeral"}}),
        texts.map(lambda t: {"type": "thinking", "thinking": t, "signature": "s"}),
        st.builds(
            lambda i, a: {"type": "tool_use", "id": i, "name": "f", "input": a}, ids, json_values
        ),
        st.just({"type": "tool_result", "tool_use_id": "a", "content": []}),
        st.just({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}),
    ),
    max_size=4,
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["user", "assistant", "tool", "system"]))
    message: Json = {"role": role, "content": draw(contents)}
    if role == "assistant":
        if draw(st.booleans()):
            message["tool_calls"] = draw(st.lists(calls(), max_size=3))
        if draw(st.booleans()):
            message["anthropic_content_blocks"] = draw(raw)
    if role == "tool":
        message["tool_call_id"] = draw(ids)
    if draw(st.booleans()):
        message["_row"] = 7
        message["cache_control"] = {"type": "ephemeral"}
    return cast(Message, message)


broken_lists = st.lists(messages(), max_size=12)


def request(listed: list[Message], **fields: Any) -> ModelRequest:
    tools = (ToolSchema("f", "F."), ToolSchema("a", "A."))
    fields = {"system": "s", "max_tokens": 10, "tools": tools, "cache_ttl": "1h"} | fields
    return ModelRequest(messages=listed, **fields)


@given(broken_lists, texts, st.sampled_from([None, "5m", "1h"]), st.booleans())
@example([{"role": "tool", "content": "x", "tool_call_id": "a"}], "", None, False)
@settings(max_examples=400, deadline=None)
def test_any_list_becomes_a_valid_request(
    listed: list[Message], system: str, ttl: Any, pause: bool
) -> None:
    body = build_body(request(listed, system=system, cache_ttl=ttl, continues_pause=pause), "m")
    assert validate(body, continues_pause=pause) == []


@given(arguments)
@example('{"n": 1e999, "m": [NaN, {"x": -Infinity}]}')
@example('{"\\ud83d": "\\ud83d"}')
@example('{"a":' * 70 + "1" + "}" * 70)
@settings(max_examples=300, deadline=None)
def test_any_arguments_become_an_object_that_can_be_sent(text: str) -> None:
    value = input_object(text)
    assert isinstance(value, dict)
    sent = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    assert input_object(sent.decode()) == value


@given(broken_lists)
@settings(max_examples=150, deadline=None)
def test_mapping_changes_nothing_and_gives_the_same_bytes_again(listed: list[Message]) -> None:
    before = copy.deepcopy(listed)
    first = json.dumps(build_body(request(listed), "m"))
    assert repr(listed) == repr(before)  # NaN is not equal to itself
    assert json.dumps(build_body(request(copy.deepcopy(listed)), "m")) == first


@given(broken_lists, broken_lists)
@settings(max_examples=200, deadline=None)
def test_a_list_that_grows_keeps_its_beginning(older: list[Message], newer: list[Message]) -> None:
    # A request ends with the user; what answers it comes behind.
    older = [*older, {"role": "user", "content": "?"}]
    before = _blocks(map_messages(older))
    after = _blocks(map_messages([*older, *newer]))
    assert after[: len(before)] == before


def _blocks(turns: list[Json]) -> list[tuple[str, str]]:
    return [(t["role"], json.dumps(b)) for t in turns for b in t["content"]]


answer_blocks = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=8).map(lambda t: {"type": "text", "text": t}),
        texts.map(lambda t: {"type": "thinking", "thinking": t, "signature": "s" + t}),
        st.just({"type": "redacted_thinking", "data": "xx=="}),
        st.just({"type": "brand_new", "payload": {"a": [1, None]}}),
        st.builds(
            lambda n, i: {"type": "tool_use", "id": f"t{n}", "name": "f", "input": i},
            st.integers(0, 10**6),
            st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=5), max_size=3),
        ),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda b: json.dumps(b),
)


@given(answer_blocks)
@settings(max_examples=300, deadline=None)
def test_an_answer_goes_back_as_it_came(blocks: list[Json]) -> None:
    message = message_of(blocks)
    stored = json.loads(json.dumps(message))
    said = [b for b in blocks if b["type"] != "text" or b["text"].strip()]
    ids = [b["id"] for b in said if b["type"] == "tool_use"]
    listed: list[Message] = [{"role": "user", "content": "?"}, stored]
    listed += [{"role": "tool", "tool_call_id": i, "content": "r"} for i in ids]
    turns = map_messages([*listed, {"role": "user", "content": "and?"}])
    answers = [t for t in turns if t["role"] == "assistant"]
    only_thought = all(b["type"] in ("thinking", "redacted_thinking") for b in said)
    if only_thought or len(set(ids)) < len(ids):
        return
    assert answers[0]["content"] == [_clean(b) for b in said]


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


@given(answer_blocks, st.text(max_size=5))
@settings(max_examples=150, deadline=None)
def test_raw_blocks_are_dropped_once_the_visible_fields_say_otherwise(
    blocks: list[Json], other: str
) -> None:
    message = message_of(blocks)
    changed = cast(Message, {**message, "content": f"changed {other}"})
    assert raw_blocks(changed) is None
    assert "thinking" not in [b["type"] for b in map_messages([changed])[1]["content"]]
    assert raw_blocks(without_thinking(message)) is None or "signature" not in str(
        raw_blocks(without_thinking(message))
    )


@given(st.lists(answer_blocks, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_thinking_always_stands_behind_the_prefix_it_was_made_behind(
    answers: list[list[Json]],
) -> None:
    ledger = ThinkingLedger()
    listed: list[Message] = [{"role": "user", "content": "?"}]
    for n, blocks in enumerate(answers):
        body = build_body(request(listed), "m")
        assert validate(body, ledger=ledger) == []
        unique = [
            {**b, "id": f"{b['id']}_{n}_{i}"} if b["type"] == "tool_use" else b
            for i, b in enumerate(blocks)
        ]
        message = message_of(unique)
        # A blank text can not be sent back, so thinking behind one is bound to what never was.
        if any(b["type"] == "text" and not b["text"].strip() for b in unique):
            message = without_thinking(message)
        ledger.record(body, message.get("anthropic_content_blocks") or unique)
        listed.append(message)
        listed += [
            {"role": "tool", "tool_call_id": c["id"], "content": "r"}
            for c in message.get("tool_calls") or ()
        ]
        listed.append({"role": "user", "content": f"next {n}"})


marked_shapes = st.lists(
    st.one_of(
        messages(),
        st.builds(
            lambda role, blocks: {"role": role, "content": blocks},
            st.sampled_from(["user", "assistant"]),
            raw,
        ),
    ),
    max_size=30,
)


@given(marked_shapes, st.sampled_from(["5m", "1h", "2h"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_marks_change_no_input_and_are_four_at_most(
    listed: list[Any], ttl: str, native: bool
) -> None:
    plain = [_unmarked(m) for m in listed]
    before = copy.deepcopy(plain)
    marked = apply_anthropic_cache_control(plain, cache_ttl=ttl, native_anthropic=native)
    assert repr(plain) == repr(before)
    assert len(marked) == len(plain)
    touched = [i for i, (a, b) in enumerate(zip(plain, marked, strict=True)) if a is not b]
    assert len(touched) <= 4
    found = json.dumps(marked).count('"cache_control"')
    assert found == len(touched)
    assert json.dumps(marked).count('"ttl": "1h"') == (found if ttl == "1h" else 0)
    again = apply_anthropic_cache_control(marked, cache_ttl=ttl, native_anthropic=native)
    assert json.dumps(again).count('"cache_control"') == found


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(v) for v in value] if isinstance(value, list) else value
