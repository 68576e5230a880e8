"""Where the marks of the prompt cache stand."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from agent.prompt_caching import (
    apply_anthropic_cache_control,
    cache_line,
    cache_marks,
    min_cacheable_tokens,
    ttl_for,
)

Json = dict[str, Any]
MARK = {"type": "ephemeral"}


def said(role: str, content: Any = "x", **more: Any) -> Json:
    return {"role": role, "content": content, **more}


def marked(messages: list[Json], **options: Any) -> list[int]:
    result = apply_anthropic_cache_control(messages, **options)
    return [i for i, message in enumerate(result) if "cache_control" in repr(message)]


def test_one_on_the_system_prompt_and_three_at_the_end() -> None:
    talk = [said("system"), *[said("user"), said("assistant")] * 5, said("user")]
    assert marked(talk) == [0, 9, 10, 11]


def test_without_a_system_prompt_all_four_follow_the_talk() -> None:
    assert marked([said("user"), said("assistant")] * 4) == [4, 5, 6, 7]


def test_short_talks() -> None:
    assert marked([]) == []
    assert marked([said("system")]) == [0]
    assert marked([said("system", ""), said("user")]) == [1]


def test_text_becomes_one_block_and_lists_are_marked_on_their_last_block() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    result = apply_anthropic_cache_control([said("user"), said("user", parts)])
    assert result[0]["content"] == [{"type": "text", "text": "x", "cache_control": MARK}]
    assert result[1]["content"] == [parts[0], {**parts[1], "cache_control": MARK}]
    assert "cache_control" not in repr(parts)


def test_never_on_thinking_or_on_nothing() -> None:
    thinking = {"type": "thinking", "thinking": "t", "signature": "s"}
    text = {"type": "text", "text": "a"}
    result = apply_anthropic_cache_control(
        [
            said("user", ""),
            said("user", " \n"),
            said("user", [{"type": "text", "text": " "}]),
            said("user", []),
            said("assistant", None),
            said("assistant", [thinking]),
            said("assistant", [text, thinking, {"type": "redacted_thinking", "data": "d"}]),
        ],
        native_anthropic=True,
    )
    assert [i for i, m in enumerate(result) if "cache_control" in repr(m)] == [6]
    assert result[6]["content"][0] == {**text, "cache_control": MARK}


def test_native_messages_may_carry_the_mark_themselves() -> None:
    call = said("assistant", None, tool_calls=[{"id": "a"}])
    answer = said("tool", "r", tool_call_id="a")
    native = apply_anthropic_cache_control([call, answer], native_anthropic=True)
    assert [m.get("cache_control") for m in native] == [MARK, MARK]
    envelope = apply_anthropic_cache_control([call, answer])
    assert envelope[0] is call
    assert envelope[1]["content"] == [{"type": "text", "text": "r", "cache_control": MARK}]


@pytest.mark.parametrize(
    ("ttl", "mark"), [("1h", {**MARK, "ttl": "1h"}), ("5m", MARK), ("2h", MARK)]
)
def test_one_lifetime(ttl: str, mark: Json) -> None:
    result = apply_anthropic_cache_control([said("system"), said("user")], cache_ttl=ttl)
    assert [m["content"][0]["cache_control"] for m in result] == [mark, mark]


@pytest.mark.parametrize("calls", [5, 9, 25])
def test_a_large_step_keeps_a_mark_where_the_request_before_ended(calls: int) -> None:
    names = [{"id": str(n)} for n in range(calls)]
    results = [said("tool", "r", tool_call_id=str(n)) for n in range(calls)]
    before = [said("system"), said("user"), said("assistant"), said("user")]
    talk = [*before, said("assistant", "go", tool_calls=names), *results]
    found = marked(talk, native_anthropic=True)
    assert len(found) == 4
    assert found[-1] == len(talk) - 1
    # Within reach the marks stand at the end; out of reach one stays at the old end.
    assert (3 in found) == (calls > 9)


def test_the_input_is_never_changed() -> None:
    talk = [said("system"), said("user", [{"type": "text", "text": "a"}]), said("tool", "r")]
    before = copy.deepcopy(talk)
    apply_anthropic_cache_control(talk, native_anthropic=True)
    assert talk == before


def test_marking_marked_messages_adds_none() -> None:
    talk = [said("system"), *[said("user"), said("assistant")] * 4]
    once = apply_anthropic_cache_control(talk)
    assert apply_anthropic_cache_control(once) == once


def test_the_history_costs_no_more_than_a_copy_of_the_list() -> None:
    talk = [said("system"), *[said("user"), said("assistant")] * 5000]

    def best(work: Any) -> float:
        times = []
        for _ in range(50):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        return min(times)

    copying = best(lambda: list(talk))
    assert best(lambda: apply_anthropic_cache_control(talk)) < 4 * copying + 50e-6


# --- for whom, and for how long


@pytest.mark.parametrize(
    ("model", "base_url", "on"),
    [
        ("claude-sonnet-5-5", None, True),
        ("claude-sonnet-5-5", "https://api.anthropic.com", True),
        ("anthropic/claude-opus-5", "https://openrouter.test/api", True),
        ("Claude-Haiku-4-5", "http://127.0.0.1:8080", True),
        ("kimi-k3", "https://models.test/anthropic", False),
        ("qwen3-coder", "http://localhost:8080", False),
        ("offline", None, False),
        ("claude-sonnet-5-5", "not an address", True),
    ],
)
def test_marks_are_for_claude_models_wherever_they_are(
    model: str, base_url: str | None, on: bool
) -> None:
    assert cache_marks(model, base_url).on is on
    assert cache_line(model, base_url, "auto").startswith("on, 1h for people" if on else "off (")


def test_people_think_longer_than_jobs() -> None:
    assert ttl_for("auto", for_person=True) == "1h"
    assert ttl_for("auto", for_person=False) == "5m"
    for fixed in ("5m", "1h", None):
        assert ttl_for(fixed, for_person=False) == fixed  # type: ignore[arg-type]


def test_the_longest_part_of_a_name_says_what_is_too_short() -> None:
    assert [
        min_cacheable_tokens(name)
        for name in ("claude-opus-4-6", "claude-opus-5-5", "claude-sonnet-5-5", "kimi-k3")
    ] == [4096, 512, 1024, 0]
