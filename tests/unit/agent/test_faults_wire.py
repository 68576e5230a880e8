"""Faults that users reported, letter (a): requests that a provider refuses, for ever.

Covered elsewhere as well: any list at all (tests/property/test_wire.py), the strict model server
(tests/integration/test_agent_over_the_wire.py).
"""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any, Literal, cast

import pytest

from agent.compaction.plan.boundary import is_summary
from agent.compaction.plan.prune import prune_messages
from agent.context_compressor import ContextCompressor
from agent.llm.validator import ThinkingLedger, validate
from agent.llm.wire import build_body
from agent.messages import Draft, Message, ToolSchema, newest_real_user, public, text_of
from agent.model_metadata import estimate_messages_tokens_rough
from agent.ports import ModelRequest
from agent.sessions import RewriteRequest
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.conversations import conversation
from tests.fakes.fault_scene import Scene
from tests.fakes.scripted_model import ScriptedModel, answer, call, thought
from tests.fakes.side_model import ScriptedSideModel
from tests.fakes.stored import open_turn

Json = dict[str, Any]


def body_of(
    messages: list[Any], *, system: str = "You help.", ttl: Literal["5m", "1h"] | None = "5m"
) -> Json:
    return build_body(ModelRequest(system, messages, 100, cache_ttl=ttl), "m")


def calls(number: int, count: int = 1) -> list[Any]:
    ids = [f"toolu_{number}_{k}" for k in range(count)]
    made = [
        {"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}} for i in ids
    ]
    return [
        {"role": "assistant", "content": None, "tool_calls": made, "_row": number * 10},
        *(
            {"role": "tool", "tool_call_id": i, "content": "x" * 4000, "_row": number * 10 + 1 + k}
            for k, i in enumerate(ids)
        ),
    ]


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("tail_tokens", range(0, 31_000, 1000))
def test_b01_wherever_the_cut_falls_pairs_are_kept_or_summarised_whole(
    tail_tokens: int, parallel: int
) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "u1", "_row": 1},
        {"role": "assistant", "content": "a1", "_row": 2},
        *(m for k in range(1, 31) for m in calls(k, parallel)),
        {"role": "user", "content": "u_last", "_row": 9999},
    ]
    model = ScriptedSideModel("## Goal\nx")
    window = 2 * max(5 * tail_tokens, 2_000)
    engine = ContextCompressor(
        "m", config_context_length=window, side_model=model, clock=FakeClock(), protect_last_n=1
    )
    result = engine.compress(messages, force=True)
    assert validate(body_of(result)) == []
    kept = {m["_row"] for m in result if "_row" in m}
    assert kept <= {m["_row"] for m in messages}
    covered = engine.last_attempt.manifest.get("covered", {"messages": 0})["messages"]
    assert covered + len(kept) == len(messages)
    assert result[-1]["content"] == "u_last"


async def test_b02_a_kill_between_two_results_is_repaired_once_and_for_all() -> None:
    store = MemoryStore(FakeClock(), SequentialIds())
    ticket = await open_turn(store, "u1")
    made = [
        {"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}}
        for i in ("toolu_A", "toolu_B")
    ]
    asked = cast(Message, {"role": "assistant", "content": None, "tool_calls": made})
    result = cast(Message, {"role": "tool", "tool_call_id": "toolu_A", "content": "done"})
    await store.append(ticket, ticket.session_id, [Draft(asked), Draft(result)])
    await store.recover_turns()
    again = await open_turn(store, "hi")
    loaded = await store.load(again.session_id, ticket=again)
    body = body_of([row.message for row in loaded.rows])
    assert validate(body) == []
    answers = body["messages"][2]["content"]
    assert [b["tool_use_id"] for b in answers if b["type"] == "tool_result"] == [
        "toolu_A",
        "toolu_B",
    ]
    assert answers[1]["is_error"]
    assert "interrupted" in json.dumps(answers[1])
    assert "hi" in json.dumps(body["messages"][-1])
    assert (await store.load(again.session_id, ticket=again)).rows == loaded.rows


async def test_b21_thinking_is_whole_or_gone_and_never_in_a_summary_request() -> None:
    """Pruning, a summary, a rewrite: none leaves half a block or one behind another prefix."""
    scene = Scene("## Goal\nx")
    await scene.talked(8_000, "thinking")
    stored = [row.message for row in (await scene.tip()).rows]
    await scene.store.rewrite(await thinkless(scene))
    model = ScriptedModel(
        answer("", thought("first thought"), call("read")),
        answer("", thought("second thought"), call("read")),
        answer("", thought("third thought"), call("read")),
        answer("done", thought("last thought")),
    )
    assert await scene.turn(model) == "done"
    model.verify()  # its ledger knows behind which prefix each block was made
    tip = await scene.tip()
    assert len(await scene.store.lineage(tip.session.id)) > 1
    for asked in scene.side.asked:
        assert "thought" not in asked.prompt
        assert "sig" not in asked.prompt
    assert any("anthropic_content_blocks" in message for message in stored)


async def thinkless(scene: Scene) -> RewriteRequest:
    """The imported list without its thinking, which this provider has never issued."""
    tip = await scene.tip()
    entries = tuple(
        Draft(cast(Message, {k: v for k, v in row.message.items() if "anthropic" not in k}))
        for row in tip.rows
    )
    return RewriteRequest(tip.session.id, tip.session.revision, tip.last_row_id, entries)


def test_b21_a_block_with_a_changed_text_is_not_replayed() -> None:
    block = {"type": "thinking", "thinking": "t" * 3000, "signature": "S1"}
    message: Any = {
        "role": "assistant",
        "content": "as said",
        "anthropic_content_blocks": [block, {"type": "text", "text": "as said"}],
    }
    messages = [{"role": "user", "content": "u"}, message, {"role": "user", "content": "v"}]
    assert block in body_of(messages, ttl=None)["messages"][1]["content"]
    changed = [messages[0], {**message, "content": "changed"}, messages[2]]
    assert "thinking" not in json.dumps(body_of(changed))
    ledger = ThinkingLedger()
    first = body_of(messages[:1], ttl=None)
    ledger.record(first, [block])
    assert validate(body_of(messages, ttl=None), ledger=ledger) == []


@pytest.mark.parametrize("system_inside", [True, False])
def test_b75_one_request_and_forty_three_rows_begin_with_the_user(system_inside: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "the original request", "_row": 1}]
    for k in range(1, 22):
        messages.extend(calls(k))
    messages.append({"role": "assistant", "content": "so far so good", "_row": 5000})
    if system_inside:
        messages.insert(0, {"role": "system", "content": "be kind"})
    engine = ContextCompressor(
        "m",
        config_context_length=20_000,
        side_model=ScriptedSideModel("## Goal\nx"),
        clock=FakeClock(),
    )
    result = engine.compress(messages, force=True)
    assert result is not messages
    body = body_of([m for m in result if m["role"] != "system"])
    assert validate(body) == []
    assert body["messages"][0]["role"] == "user"
    assert "the original request" in json.dumps(result)


def test_b77_nothing_blank_is_sent_and_no_mark_stands_on_it() -> None:
    messages: list[Any] = [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PIXEL}},
                {"type": "text", "text": ""},
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "assistant", "content": " "},
        {"role": "user", "content": "\n"},
    ]
    for ttl in ("5m", "1h"):
        body = body_of(messages, system="  ", ttl=cast(Any, ttl))
        assert validate(body) == []
        assert "system" not in body
        assert "(no output)" in json.dumps(body)


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


def test_b78_ten_turns_with_the_same_objects_carry_four_marks_each() -> None:
    messages: list[Any] = list(conversation("tools", 1, tokens=4_000).messages)
    messages[0] = {**messages[0], "cache_control": {"type": "ephemeral"}}
    frozen = copy.deepcopy(messages)
    for _ in range(10):
        body = body_of(messages)
        assert validate(body) == []
        assert json.dumps(body).count("cache_control") == 4
        messages = [
            *messages,
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "yes"},
        ]
    assert messages[: len(frozen)] == frozen


@pytest.mark.parametrize("ttls", [("1h", "5m"), ("5m", "1h")])
def test_b79_lifetimes_never_rise_within_a_request(ttls: tuple[Any, Any]) -> None:
    """Also after the configured lifetime was switched in mid-session."""
    messages = conversation("tools", 2, tokens=4_000).messages
    for ttl in ttls:
        body = body_of(cast(list[Any], messages), ttl=ttl)
        assert validate(body) == []
        marks = json.dumps(body).count('"ttl": "1h"')
        assert marks == (4 if ttl == "1h" else 0)


def test_b70_pruned_arguments_stay_an_object_with_the_same_keys_and_types() -> None:
    """B70 and W12: what is sent as input is never half a JSON text."""
    given = {"path": "/x", "content": "界" * 5000, "n": 3, "deep": {"list": ["y" * 900, True]}}
    messages: list[Any] = [
        {"role": "user", "content": "write it", "_row": 1},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "w",
                    "function": {
                        "name": "write",
                        "arguments": json.dumps(given, ensure_ascii=False),
                    },
                }
            ],
            "_row": 2,
        },
        {"role": "tool", "tool_call_id": "w", "content": "k" * 200, "_row": 3},
        {"role": "assistant", "content": "written", "_row": 4},
    ]
    changes = prune_messages(messages, range(4))
    assert set(changes) == {1}  # a result of 200 characters stays
    text = changes[1]["tool_calls"][0]["function"]["arguments"]
    after = json.loads(text)
    assert (after["path"], after["n"]) == ("/x", 3)
    assert after["content"].startswith("界")
    assert "\\u" not in text
    assert after["deep"]["list"][1] is True
    assert len(text) < 1500
    shorter = [changes.get(i, m) for i, m in enumerate(messages)]
    assert validate(body_of(shorter)) == []


async def test_b139_the_prefix_is_the_same_bytes_in_every_request_until_a_compression() -> None:
    """And over a restart; a compression changes the messages only."""
    scene = Scene("## Goal\nx")
    bodies: list[Json] = []
    for number in range(5):
        model = ScriptedModel(answer("", call("read")), f"answer {number}")
        await scene.turn(model, f"question {number}")
        bodies.extend(model.bodies)
        if number == 2:
            scene.restart()
    for earlier, later in pairwise(map(plain, bodies)):
        assert dumped(later["system"]) == dumped(earlier["system"])
        grown = later["messages"][: len(earlier["messages"])]
        assert dumped(grown) == dumped(earlier["messages"])
    result = await scene.compactor.compact(await scene.tip(), "manual")
    assert result.outcome == "compressed"
    model = ScriptedModel("as before")
    await scene.turn(model, "and now?")
    assert plain(model.bodies[0])["system"] == plain(bodies[0])["system"]


def plain(body: Json) -> Json:
    """Without cache marks."""
    return cast(Json, json.loads(json.dumps(body), object_hook=_unmarked))


def _unmarked(found: Json) -> Json:
    return {k: v for k, v in found.items() if k != "cache_control"}


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def test_tools_stand_in_one_order_whoever_lists_them() -> None:
    """B139: a set of plugins has no order of its own."""
    tools = tuple(ToolSchema(name, "x") for name in ("b", "c", "a"))
    said: Any = [{"role": "user", "content": "u"}]
    one = build_body(ModelRequest("s", said, 100, tools=tools), "m")
    other = build_body(ModelRequest("s", said, 100, tools=tools[::-1]), "m")
    assert dumped(one) == dumped(other)


def test_private_keys_of_an_engine_never_leave() -> None:
    """B22, W14."""
    talk = conversation("tools", 3, tokens=24_000)
    engine = ContextCompressor(
        "m",
        config_context_length=20_000,
        side_model=ScriptedSideModel("## Goal\nx"),
        clock=FakeClock(),
    )
    result = engine.compress(cast(Any, talk.messages), force=True)
    assert any("_row" in m for m in result)
    sent = dumped(body_of(result))
    assert not any(f'"{key}"' in sent for key in ("_row", "_kind", "_origin"))
    assert all(set(public(cast(Message, m))) <= set(m) for m in result)
    assert newest_real_user(cast(list[Message], result)) is not None
    assert sum(is_summary(cast(Message, m)) for m in result) == 1
    assert estimate_messages_tokens_rough(cast(list[Message], result)) < 10_000
    assert text_of(result[-1]["content"])
