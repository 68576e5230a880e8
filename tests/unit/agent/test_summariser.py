"""The calls for a summary: what reaches the model, within which window, and what they cost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agent.compaction.calls.summary import MAX_PARTS
from agent.compaction.plan.frame import Quote, SummaryText
from agent.compaction.plan.manifest import Loss, build_manifest, missing_from
from agent.context_compressor import ContextCompressor
from agent.errors import ContextOverflow, ModelTimeout, OutputLimitTooHigh, RequestTooLarge
from agent.messages import Message
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ModelResponse, Usage
from tests.fakes.clock import FakeClock
from tests.fakes.side_model import Answer, Asked, ScriptedSideModel, summary_response

Messages = list[dict[str, Any]]


def make(
    *answers: Answer, window: int = 200_000, **options: Any
) -> tuple[ContextCompressor, ScriptedSideModel]:
    model = ScriptedSideModel(*answers)
    options = {"side_model": model, "clock": FakeClock(), **options}
    return ContextCompressor("main-model", config_context_length=window, **options), model


def chat(count: int, chars: int = 2000, letter: str = "q") -> Messages:
    messages: Messages = []
    for k in range(count):
        messages.append({"role": "user", "content": f"{k} " + letter * chars, "_row": 2 * k + 1})
        messages.append(
            {"role": "assistant", "content": f"{k} " + letter * chars, "_row": 2 * k + 2}
        )
    return messages


def tools(count: int, chars: int) -> Messages:
    """Results with a fact every 100 characters."""
    messages: Messages = []
    for k in range(count):
        call = {"id": f"toolu_{k}", "function": {"name": "read", "arguments": "{}"}}
        facts = "".join(f"FACT-{k}-{at} " + "x" * 85 + "\n" for at in range(chars // 100))
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [call], "_row": 1000 + 2 * k}
        )
        messages.append(
            {"role": "tool", "tool_call_id": call["id"], "content": facts, "_row": 1001 + 2 * k}
        )
    return messages


def size(asked: Asked) -> int:
    """The whole request: prompt, and the room for its answer."""
    return estimate_tokens_rough(asked.system + asked.prompt) + asked.max_tokens


def answered(text: str, usage: Usage | None, stop_reason: str = "end_turn") -> ModelResponse:
    plain = summary_response(text, stop_reason)
    return ModelResponse(plain.message, plain.stop_reason, usage, "claude-small-1")


# --- what reaches it


@pytest.mark.parametrize(("count", "chars"), [(4, 24_000), (30, 8_000), (60, 4_000)])
def test_nine_of_ten_facts_in_tool_results_reach_the_summary_model(count: int, chars: int) -> None:
    engine, model = make()
    messages = [*chat(2, 10), *tools(count, chars), *chat(40, 3000)]
    engine.compress(messages, current_tokens=150_000, force=True)
    facts = set(re.findall(r"FACT-\d+-\d+", str(messages)))
    read = set(re.findall(r"FACT-\d+-\d+", "".join(asked.prompt for asked in model.asked)))
    assert len(model.asked) == 1
    assert len(read) >= 0.9 * len(facts)


def test_where_it_does_not_fit_into_one_call_there_are_parts_of_less_each() -> None:
    engine, model = make(window=32_000)
    messages = [*chat(1, 10), *tools(12, 24_000), *chat(20, 1000)]
    engine.compress(messages, current_tokens=80_000, force=True)
    assert 1 <= len(model.asked) <= MAX_PARTS
    assert all(size(asked) <= 32_000 for asked in model.asked)
    seen = "".join(asked.prompt for asked in model.asked)
    assert all(f"FACT-{k}-0 " in seen for k in range(12))
    assert all(f"FACT-{k}-239 " in seen for k in range(12))


# --- no request larger than its model's window


@pytest.mark.parametrize("window", [2000, 4000, 8000, 32_000])
@pytest.mark.parametrize("letter", ["q", "漢", "é"])
def test_no_request_is_larger_than_the_window(window: int, letter: str) -> None:
    def wordy(asked: Asked) -> str:  # far longer than it was asked to be
        return "## Goal\n" + letter * (asked.max_tokens * (1 if letter == "漢" else 3))

    engine, model = make(wordy, summary_response("cut", "max_tokens"), wordy, window=window)
    messages = chat(60, window // 8, letter)
    once = engine.compress(
        messages,
        current_tokens=window,
        force=True,
        focus_topic=letter * 2000,
        memory_context=letter * 20_000,
    )
    again = [*once, *chat(60, window // 8, letter)]
    for at, message in enumerate(again):
        message["_row"] = at + 1000
    engine.compress(again, current_tokens=window, force=True, memory_context=letter * 20_000)
    assert len(model.asked) > 1
    assert max(size(asked) for asked in model.asked) <= window


def test_each_model_has_its_own_window() -> None:
    engine, model = make(
        ModelTimeout("late"),
        "## Goal\nby the main one",
        window=200_000,
        summary_model_override="small-model",
        summary_window_tokens=32_000,
    )
    engine.compress(chat(100, 3000), current_tokens=150_000, force=True)
    assert [asked.model for asked in model.asked] == ["small-model", "main-model"]
    assert size(model.asked[0]) <= 32_000
    assert 100_000 < size(model.asked[1]) <= 200_000


def test_the_window_of_a_known_summary_model_is_looked_up() -> None:
    engine, model = make(window=1_000_000, summary_model_override="claude-haiku-4-5")
    engine.compress(chat(120, 4000), current_tokens=900_000, force=True)
    assert len(model.asked) > 1
    assert all(size(asked) <= 200_000 for asked in model.asked)
    # one that nobody knows is not believed to be larger than the conversation's
    engine, model = make(window=20_000, summary_model_override="home-made")
    engine.compress(chat(60, 1000), current_tokens=30_000, force=True)
    assert all(size(asked) <= 20_000 for asked in model.asked)


def test_a_window_that_was_named_once_is_remembered() -> None:
    overflow = ContextOverflow("too long", limit_tokens=32_000)
    engine, model = make(overflow, "## Goal\nfine")
    engine.compress(chat(60), current_tokens=120_000)
    assert size(model.asked[0]) > 32_000
    assert all(size(asked) <= 32_000 for asked in model.asked[1:])
    before = len(model.asked)
    engine.compress(chat(60), current_tokens=120_000)
    assert all(size(asked) <= 32_000 for asked in model.asked[before:])


def test_text_that_the_estimate_takes_for_small_is_sent_in_smaller_pieces() -> None:
    def dense(asked: Asked) -> str:  # this provider counts two tokens for each character
        if 2 * len(asked.prompt) + asked.max_tokens > 200_000:
            raise ContextOverflow("prompt is too long")
        return "## Goal\nnumbers"

    engine, model = make(dense)
    result = engine.compress(chat(60, 3000, "7"), current_tokens=150_000)
    assert engine.last_attempt.outcome == "compressed"
    assert len(result) < 120
    assert engine.last_attempt.manifest["cost"]["failed_calls"] >= 1
    assert len(model.asked) <= MAX_PARTS + 4


def test_a_request_that_is_too_large_in_bytes_is_sent_in_smaller_pieces() -> None:
    engine, model = make(RequestTooLarge("413"), "## Goal\nsmall")
    engine.compress(chat(60), current_tokens=120_000)
    assert engine.last_attempt.outcome == "compressed"
    assert all(len(asked.prompt) < len(model.asked[0].prompt) for asked in model.asked[1:])


# --- answers that were cut


@pytest.mark.parametrize(
    "cut",
    [
        summary_response("half a summ", "max_tokens"),
        summary_response(None, "max_tokens"),
        summary_response(None, anthropic_content_blocks=[{"type": "thinking", "thinking": "h"}]),
        summary_response("<think>h", "max_tokens"),
    ],
)
def test_one_that_was_cut_or_only_thought_is_asked_for_once_more(cut: ModelResponse) -> None:
    engine, model = make(cut, "## Goal\nwhole")
    engine.compress(chat(60), current_tokens=120_000)
    assert engine.last_attempt.outcome == "compressed"
    first, second = model.asked
    assert second.max_tokens > 1.4 * first.max_tokens
    assert engine.last_attempt.manifest["cost"]["failed_calls"] == 1
    # twice cut is a failure, and nothing is dropped
    engine, model = make(cut)
    messages = chat(60)
    assert engine.compress(messages, current_tokens=120_000) is messages
    assert len(model.asked) == 2


def test_one_that_was_cut_on_a_full_window_gets_a_shorter_prompt() -> None:
    cut = summary_response("half a summ", "max_tokens")
    engine, model = make(cut, "## Goal\npart", window=20_000)
    messages = chat(24, 3000)
    result = engine.compress(messages, current_tokens=40_000, force=True)
    assert result is not messages
    assert model.asked[1].max_tokens == 2 * model.asked[0].max_tokens
    assert all(size(asked) <= 20_000 for asked in model.asked)


def test_a_model_that_gives_shorter_answers_only_is_asked_for_those() -> None:
    engine, model = make(OutputLimitTooHigh("no", limit_tokens=4096), "## Goal\nshort")
    engine.compress(chat(60), current_tokens=120_000)
    assert engine.last_attempt.outcome == "compressed"
    assert [asked.max_tokens for asked in model.asked][1:] == [4096]


# --- what they cost


def test_the_manifest_says_what_was_paid_failed_calls_included() -> None:
    engine, _ = make(
        answered("half", Usage(1000, 50, 20, 10), "max_tokens"),
        answered("## Goal\nwhole", Usage(1100, 70, 30, 5)),
    )
    engine.compress(chat(60), current_tokens=120_000)
    cost = engine.last_attempt.manifest["cost"]
    assert cost == {
        "models": ["claude-small-1"],
        "calls": 2,
        "failed_calls": 1,
        "unmeasured_calls": 0,
        "input_tokens": 2100,
        "output_tokens": 120,
        "cache_read_tokens": 50,
        "cache_write_tokens": 15,
        "seconds": 0.0,
    }
    assert engine.last_attempt.manifest["at"] == FakeClock().now()


def test_both_models_are_in_the_bill() -> None:
    engine, _ = make(
        answered("null", Usage(500, 5)), "## Goal\nfine", summary_model_override="small-model"
    )
    engine.compress(chat(60), current_tokens=120_000)
    cost = engine.last_attempt.manifest["cost"]
    assert cost["models"] == ["claude-small-1", "side"]
    assert (cost["calls"], cost["failed_calls"], cost["unmeasured_calls"]) == (2, 1, 1)
    assert cost["input_tokens"] == 500


def test_pruning_alone_costs_nothing() -> None:
    engine, model = make()
    messages = [*chat(1, 10), *tools(30, 16_000), *chat(14, 400)]
    engine.compress(messages, current_tokens=125_000)
    assert model.asked == []
    assert "cost" not in engine.last_attempt.manifest


# --- what must not be missing


def test_a_user_message_without_a_word_is_listed() -> None:
    engine, _ = make()
    engine.protect_first_n = 0
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages: Messages = [
        {"role": "user", "content": "", "_row": 901},
        {"role": "assistant", "content": "?", "_row": 902},
        {"role": "user", "content": [image], "_row": 903},
        {"role": "assistant", "content": "a picture", "_row": 904},
        {"role": "user", "content": "\n\n", "_row": 905},
        {"role": "assistant", "content": "??", "_row": 906},
        *chat(60),
    ]
    engine.compress(messages, current_tokens=120_000)
    assert engine.last_attempt.outcome == "compressed"
    named = engine.last_attempt.manifest["user_messages"]
    assert {901, 903, 905} <= {*named["quoted"], *named["listed"]}


def test_a_list_that_lost_something_is_refused() -> None:
    covered: list[Message] = [{"role": "user", "content": "do B", "_row": 7}]
    planned = SummaryText("## Goal\nx", ("/a/b (m7)",), (Quote("do B", 7),), (3, 5))
    manifest = build_manifest(
        Loss("summary", 10, 5, 2, 1), covered, SummaryText("x", not_quoted=(7,))
    )
    assert missing_from(planned, planned, manifest, covered) == ""
    forgotten = build_manifest(Loss("summary", 10, 5, 2, 1), covered, SummaryText("x"))
    assert "neither quoted nor listed" in missing_from(planned, planned, forgotten, covered)
    for lost in (
        SummaryText("## Goal\nx", ("/a/b (m7)",), (), (3, 5)),
        SummaryText("## Goal\nx", ("/a/b (m7)",), (Quote("do B", 7),), (3,)),
        SummaryText("## Goal\nx", (), (Quote("do B", 7),), (3, 5)),
    ):
        assert "read back" in missing_from(lost, planned, manifest, covered)
