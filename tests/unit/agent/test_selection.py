"""A list that an engine chooses for one request: taken whole and valid, or not at all."""

from __future__ import annotations

import copy
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from agent.compaction.plan.selection import selected
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import Message, pairs_are_whole
from agent.ports import ModelRequest

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def said(role: str, content: Any, **more: Any) -> Message:
    return cast(Message, {"role": role, "content": content, **more})


def calling(call_id: str, *blocks: dict[str, Any]) -> Message:
    function = {"name": "f", "arguments": "{}"}
    use = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
    return said(
        "assistant",
        None,
        tool_calls=[{"id": call_id, "function": function}],
        anthropic_content_blocks=[*blocks, use],
    )


SENT = (
    said("user", "one"),
    said(
        "assistant", "first", anthropic_content_blocks=[THOUGHT, {"type": "text", "text": "first"}]
    ),
    said("user", "two"),
    calling("c1", THOUGHT),
    said("tool", "found", tool_call_id="c1"),
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
message = st.one_of(
    st.sampled_from(SENT),
    st.builds(said, st.sampled_from(["system", "user", "assistant", "tool", "wizard"]), plain),
    st.builds(
        lambda content, name: said("tool", content, tool_call_id=name), plain, st.sampled_from("ab")
    ),
    plain,
)


@given(st.lists(message, max_size=7) | plain)
def test_whatever_comes_back_the_request_is_valid(result: Any) -> None:
    before = copy.deepcopy(SENT)
    chosen = selected(copy.deepcopy(result), SENT)
    assert before == SENT
    assert pairs_are_whole(chosen)
    body = build_body(ModelRequest("be kind", chosen, 100), "claude-sonnet-5-5")
    assert not [v for v in validate(body) if v.rule in ("W1", "W2", "W3", "W4", "W7")]


def test_thinking_stays_as_far_as_nothing_before_it_is_another_one() -> None:
    def thinks(messages: Any) -> list[bool]:
        return [THOUGHT in m.get("anthropic_content_blocks", []) for m in messages]

    assert thinks(SENT) == [False, True, False, True, False]
    inserted = [*SENT[:2], said("user", "also"), *SENT[2:]]
    assert thinks(selected(inserted, SENT)) == [False, True, False, False, False, False]
    assert thinks(selected([*SENT[2:]], SENT)) == [False, False, False]


def test_a_list_that_does_not_fit_counts_only_if_it_is_not_larger() -> None:
    larger = [*SENT[:2], said("user", "x" * 4000), *SENT[3:]]
    assert selected(larger, SENT, room_tokens=500) is SENT
    assert selected(larger, SENT, room_tokens=5000) is not SENT
    assert len(selected(list(SENT[2:]), SENT, room_tokens=1)) == 3


def test_one_that_ends_with_the_assistant_is_none() -> None:
    assert selected(list(SENT[:2]), SENT) is SENT
