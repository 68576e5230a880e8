"""The offline model: honest, deterministic, able to call tools and to summarise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.compaction.calls.summary import SummaryMaterial, read_answer, system_text, user_text
from agent.errors import ContextOverflow
from agent.llm.offline import NOTICE, OfflineModel
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import Message, ToolSchema, text_of
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ModelRequest, ModelResponse

TOOLS = (ToolSchema("current_time", "Time."), ToolSchema("recall", "Look up."))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def request(*messages: Message, **fields: Any) -> ModelRequest:
    fields = {"system": "s", "max_tokens": 2000, "tools": TOOLS} | fields
    return ModelRequest(messages=messages, **fields)


async def ask(*messages: Message, **fields: Any) -> ModelResponse:
    asked = request(*messages, **fields)
    response = await OfflineModel().respond(asked)
    answered = [*messages, response.message]
    answered += [
        {"role": "tool", "tool_call_id": c["id"], "content": "r"}
        for c in response.message.get("tool_calls") or ()
    ]
    assert validate(build_body(request(*answered, user("next")), "m")) == []
    return response


def calls(response: ModelResponse) -> list[tuple[str, dict[str, Any]]]:
    return [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in response.message.get("tool_calls") or ()
    ]


async def test_the_first_answer_says_what_is_missing_and_how_to_configure_it() -> None:
    text = text_of((await ask(user("hello"))).message["content"])
    assert NOTICE in text
    assert "ANTHROPIC_API_KEY" in text
    assert "config.yaml" in text


async def test_later_answers_stay_short_and_repeat_what_was_said() -> None:
    first = await ask(user("hello"))
    text = text_of(
        (await ask(user("hello"), first.message, user("the door is blue"))).message["content"]
    )
    assert "the door is blue" in text
    assert NOTICE not in text
    assert "no provider is configured" in text


@pytest.mark.parametrize("text", ["", " \n", "😀" * 3000, "界" * 500, "a\ud83d", "x" * 50_000])
async def test_anything_is_answered(text: str) -> None:
    response = await ask(user(text))
    assert text_of(response.message["content"]).strip()
    assert response.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What time is it?", [("current_time", {})]),
        ("现在几点?", [("current_time", {})]),
        ("recall the blue door", [("recall", {"queries": ["the blue door"]})]),
        ("please search for 'tea'.", [("recall", {"queries": ["tea"]})]),
        ("搜索 蓝色的门", [("recall", {"queries": ["蓝色的门"]})]),
        ("recall ref m12", [("recall", {"ref": "m12"})]),
        (
            "what's the time, and recall tea",
            [("current_time", {}), ("recall", {"queries": ["tea"]})],
        ),
        ('use recall {"around": "m3", "after": 2}', [("recall", {"around": "m3", "after": 2})]),
        ("use the tool current_time", [("current_time", {})]),
        ("I use a hammer", []),
        ("recall", []),
    ],
)
async def test_tools_are_called_in_plain_words(
    text: str, expected: list[tuple[str, dict[str, Any]]]
) -> None:
    response = await ask(user(text))
    assert calls(response) == expected
    assert response.stop_reason == ("tool_use" if expected else "end_turn")


async def test_a_tool_that_is_not_there_is_not_called() -> None:
    response = await ask(user("what time is it"), tools=())
    assert calls(response) == []
    assert "no tool named current_time; I have none" in text_of(response.message["content"])
    response = await ask(user("use clock"))
    assert "no tool named clock; I have current_time, recall." in text_of(
        response.message["content"]
    )


async def test_results_are_told() -> None:
    asked = await ask(user("what time is it and recall tea"))
    first, second = asked.message["tool_calls"]
    response = await ask(
        user("what time is it and recall tea"),
        asked.message,
        {"role": "tool", "tool_call_id": first["id"], "name": "current_time", "content": "Sunday"},
        {"role": "tool", "tool_call_id": second["id"], "name": "recall", "content": "[error] no"},
    )
    assert text_of(response.message["content"]) == "It is Sunday.\n\nThat did not work: no"


async def test_the_same_conversation_gets_the_same_answer_and_another_one_other_ids() -> None:
    asked = [user("recall tea")]
    first, again = await ask(*asked), await ask(*asked)
    assert first == again
    later = await ask(*asked, first.message, *_results(first), user("recall tea"))
    assert later.message["tool_calls"][0]["id"] != first.message["tool_calls"][0]["id"]


def _results(response: ModelResponse) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": c["id"], "content": "r"}
        for c in response.message["tool_calls"]
    ]


async def test_the_text_comes_in_words() -> None:
    shown: list[str] = []
    response = await OfflineModel().respond(request(user("hello")), on_text=shown.append)
    assert "".join(shown) == response.message["content"]
    assert len(shown) > 20


async def test_the_window_is_honoured() -> None:
    model = OfflineModel(window_tokens=1000)
    with pytest.raises(ContextOverflow) as caught:
        await model.respond(request(user("x" * 8000)))
    assert caught.value.limit_tokens == 1000
    assert await model.window_tokens() == 1000


async def test_it_counts_nothing_better_than_everybody_does() -> None:
    asked = request(user("x" * 400))
    assert await OfflineModel().count_tokens(asked) is None
    response = await OfflineModel().respond(asked)
    assert response.usage is not None
    assert 100 < response.usage.prompt_tokens < 200


async def test_an_answer_is_cut_at_the_limit_like_any_other() -> None:
    response = await ask(user("hello"), max_tokens=5)
    assert response.stop_reason == "max_tokens"
    assert estimate_tokens_rough(text_of(response.message["content"])) <= 5


# --- summaries

TRANSCRIPT = """[USER]
Paint the door blue, see /home/a/plan.md

[ASSISTANT]
-> calls lookup (c1) with {"q": "paint"}

[TOOL RESULT c1]
paint costs 12.50

[ASSISTANT]
The door is blue now.

[USER]
And the window?"""


async def summary(transcript: str, previous: str = "", budget: int = 600) -> str:
    prompt = user_text(transcript, SummaryMaterial(budget_tokens=budget, previous=previous))
    response = await OfflineModel().respond(
        request(user(prompt), system=system_text(), tools=(), max_tokens=budget)
    )
    return read_answer(response)


async def test_a_summary_holds_what_was_said() -> None:
    text = await summary(TRANSCRIPT)
    assert text.startswith("## Goal\n")
    for said in ("Paint the door blue", "/home/a/plan.md", "paint costs 12.50", "is blue now"):
        assert said in text
    open_requests = text.split("## Open User Requests")[1].split("##")[0]
    assert "And the window?" in open_requests
    assert "Paint" not in open_requests


async def test_a_summary_is_updated_not_begun_again() -> None:
    first = await summary(TRANSCRIPT)
    second = await summary("[USER]\nNow the roof.\n\n[ASSISTANT]\nRed.", previous=first)
    assert "Paint the door blue" in second.split("## Progress")[0]
    assert "Red." in second
    assert "paint costs 12.50" in second
    assert second.count("## Goal") == 1


async def test_a_summary_stays_within_its_budget() -> None:
    talk = "\n\n".join(
        f"[USER]\nquestion {n} {'界' * 80}\n\n[ASSISTANT]\nanswer {n}" for n in range(60)
    )
    text = await summary(talk, budget=400)
    assert estimate_tokens_rough(text) <= 400
    assert "question 0" in text
    assert "question 59" in text


async def test_nothing_to_summarise_is_still_a_summary() -> None:
    assert await summary("")
