"""Nothing that a summary model answers or a list holds costs a word or gives a secret away."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from agent.compaction.plan.boundary import is_summary
from agent.compaction.plan.frame import SummaryText, render_summary
from agent.context_compressor import ContextCompressor
from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelConnectionError,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
)
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import Message, text_of
from agent.model_metadata import estimate_messages_tokens_rough, estimate_tokens_rough
from agent.ports import ModelRequest, ModelResponse
from tests.fakes.clock import FakeClock
from tests.fakes.conversations import KINDS, broken, conversation
from tests.fakes.side_model import Answer, Asked, ScriptedSideModel, summary_response
from tests.fakes.stored import context_text

WINDOW = 24_000
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def engine(
    *answers: Answer, window: int = WINDOW, **options: Any
) -> tuple[ContextCompressor, ScriptedSideModel]:
    model = ScriptedSideModel(*answers)
    built = ContextCompressor(
        "main", config_context_length=window, side_model=model, clock=FakeClock(), **options
    )
    return built, model


def compress(compressor: ContextCompressor, messages: Sequence[Message], **options: Any) -> Any:
    size = estimate_messages_tokens_rough(messages)
    return compressor.compress(cast(Any, messages), size, **options)


def transcript(asked: Asked) -> str:
    return asked.prompt.partition("<conversation>\n")[2].partition("\n</conversation>")[0]


# --- answers that are no summary ----------------------------------------------------------------

FAILURES: dict[str, Answer] = {
    "401": ModelAuthError("invalid x-api-key"),
    "402": ModelQuotaError("credit balance is too low"),
    "429": ModelRateLimited("slow down", retry_after_seconds=30),
    "529": ModelOverloaded("overloaded"),
    "connection": ModelConnectionError("reset"),
    "timeout": ModelTimeout("late"),
    "no JSON": json.JSONDecodeError("Expecting value", "", 0),
    "a bug": KeyError("content"),
    "no content": summary_response(None),
    "empty": "",
    "blank": " \n\t ",
    "invisible": "\u200b\u2060\ufeff",
    "null": "null",
    "None": "None",
    "dots": "...",
    "tool only": summary_response(None, "tool_use", tool_calls=[CALL]),
    "text and tool": summary_response("Let me look.", "tool_use", tool_calls=[CALL]),
    "thinking only": summary_response(
        None, anthropic_content_blocks=[{"type": "thinking", "thinking": "hm", "signature": "s"}]
    ),
    "thinking in text": "<think>the user wants",
    "refused": summary_response("I can not help with that.", "refusal"),
    "truncated": summary_response("## Goal\nThey wanted to", "max_tokens"),
    "window full": summary_response("## Goal\nThey", "model_context_window_exceeded"),
    "no stop reason": summary_response("## Goal\nThey", cast(Any, None)),
    "html": "<!DOCTYPE html>\n<html><body>502 Bad Gateway</body></html>",
    "html behind a blank": "\n <HTML><head></head></HTML>",
    "json error": '{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}',
    "json": json.dumps({"summary": "They talked.", "goal": None}),
    "json list": '[{"role": "assistant", "content": "hi"}]',
    "only our titles": "[Earlier conversation, summarised: for reference only]\n[End of summary]",
    "larger than the text": lambda asked: "## Goal\n" + "word " * len(asked.prompt),
    "echo of the prompt": lambda asked: asked.prompt,
    "echo of the transcript": transcript,
}


@pytest.mark.parametrize("name", FAILURES)
def test_no_failure_of_the_summary_loses_a_word(name: str) -> None:
    for kind, force in (("chat", False), ("tools_zh", True), ("long_turn", True)):
        talk = conversation(kind, 3, tokens=20_000)
        compressor, model = engine(FAILURES[name], summary_model_override="side")
        frozen = copy.deepcopy(talk.messages)
        result = compress(compressor, talk.messages, force=force)
        assert model.asked
        assert result is talk.messages
        assert talk.messages == frozen
        assert compressor.last_attempt.outcome == "aborted"
        assert compressor.last_attempt.reason
        assert compressor.state.cooldown_until > 0
        assert compressor.state.count == 0


@pytest.mark.parametrize("name", FAILURES)
def test_an_earlier_summary_outlives_every_failure(name: str) -> None:
    compressor, model = engine("## Goal\nthe first summary", FAILURES[name])
    talk = conversation("chat", 4, tokens=20_000)
    once = compress(compressor, talk.messages, force=True)
    more = conversation("chat", 5, tokens=20_000).messages
    grown = [*once, *({**m, "_row": 9000 + i} for i, m in enumerate(more))]
    asked = len(model.asked)
    assert compress(compressor, grown, force=True) is grown
    assert len(model.asked) > asked
    assert "the first summary" in context_text(grown)


@pytest.mark.parametrize("name", FAILURES)
def test_a_proven_overflow_is_met_with_the_users_own_words(name: str) -> None:
    talk = conversation("tools", 6, tokens=40_000)
    compressor, _ = engine(FAILURES[name])
    compressor.overflow_proven = True
    result = compress(compressor, talk.messages)
    assert result is not talk.messages
    assert sum(map(is_summary, result)) == 1
    assert estimate_messages_tokens_rough(result) < compressor.threshold_tokens
    assert validate(build_body(ModelRequest("s", result, 100), "m")) == []
    assert "## Open User Requests" in context_text(result)


# --- secrets ------------------------------------------------------------------------------------

PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAcanaryPEM1\ncanaryPEM2qmX\n"
    "-----END RSA PRIVATE KEY-----"
)
SECRETS = {
    "sk-ant-api03-canaryANT0123456789": "canaryANT",
    "https://admin:canaryURLpw9@db.example.org/x": "canaryURLpw9",
    "postgres://app:canaryPG7x@10.0.0.5:5432/main": "canaryPG7x",
    PEM: "canaryPEM",
    "Authorization: Bearer canaryBEARER0123456789": "canaryBEARER",
    "AWS_SECRET_ACCESS_KEY=canaryAWS/0123456789abcd": "canaryAWS",
    "ghp_canaryGH0123456789abcdefghij01234567": "canaryGH",
    "password: canaryPASS99": "canaryPASS99",
    "密码：canaryZH12345": "canaryZH12345",
    "123456789:AAcanaryTELEGRAM0123456789abcdefghi": "canaryTELEGRAM",
}


def spread(secret: str) -> list[Message]:
    """A conversation with a secret in every place that a summary could take it from."""
    messages = copy.deepcopy(conversation("tools", 8, tokens=24_000).messages)
    long = "x" * 5990
    for i, message in enumerate(messages):
        if i % 9 == 0 and message["role"] != "tool" and isinstance(message["content"], str):
            message["content"] = f"{message['content']} {secret} end"
        if message["role"] == "tool" and i % 7 == 0:
            # also where a text would be cut, so that half of it could be left over
            message["content"] = f"{long[: 4340 - len(secret) // 2]}\n{secret} {long}"
        for call in message.get("tool_calls") or ():
            given = {"path": "/tmp/x", "content": f"{'y' * 1480}\n{secret}\n{'z' * 900}"}
            call["function"]["arguments"] = json.dumps(given, ensure_ascii=i % 2 == 0)
    old = SummaryText(f"## Goal\nuse {secret} for it", (f"{secret} (m1)",))
    return [
        cast(
            Message, {"role": "user", "content": render_summary(old), "_kind": "summary", "_row": 1}
        ),
        cast(Message, {"role": "assistant", "content": "ok", "_row": 2}),
        *messages,
    ]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("works", [True, False])
def test_no_secret_reaches_the_summary_model_or_the_summary(secret: str, works: bool) -> None:
    canary = SECRETS[secret]
    answer: Answer = f"## Goal\nthey use {secret} now" if works else ModelTimeout("late")
    compressor, model = engine(answer)
    compressor.overflow_proven = not works
    messages = spread(secret)
    result = compress(
        compressor,
        messages,
        force=True,
        focus_topic=f"keep {secret}",
        memory_context=f"it is {secret}",
    )
    assert model.asked
    for asked in model.asked:
        assert canary not in asked.system + asked.prompt
        assert "[REDACTED]" in asked.prompt
    assert result is not messages
    summary = next(text_of(m["content"]) for m in result if is_summary(m))
    assert canary not in summary
    assert "[REDACTED]" in summary
    assert canary not in str(compressor.state)
    assert canary not in json.dumps(compressor.last_attempt.manifest)
    stubs = [m for m in result if m.get("_kind") == "stub"]
    assert canary not in context_text(stubs)


# --- windows ------------------------------------------------------------------------------------


class Strict:
    """A summary model with windows of its own, counted denser than we estimate: it refuses."""

    def __init__(self, windows: dict[str | None, int], chars_per_token: float) -> None:
        self.windows = windows
        self.chars_per_token = chars_per_token
        self.asked: list[tuple[str | None, int]] = []
        self.refused = 0

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        window = self.windows[model]
        estimate = estimate_tokens_rough(system) + estimate_tokens_rough(prompt) + max_tokens
        self.asked.append((model, estimate))
        assert estimate <= window, f"{estimate} tokens by our own estimate for {window}"
        if len(system + prompt) / self.chars_per_token + max_tokens > window:
            self.refused += 1
            raise ContextOverflow(f"prompt is too long: maximum {window}", limit_tokens=window)
        return summary_response("## Goal\nfits")


@pytest.mark.parametrize("window", [4_000, 8_000, 16_000, 32_000])
@pytest.mark.parametrize("kind", ["chat", "tools_zh", "huge", "mixed"])
def test_no_request_is_larger_than_the_window_of_its_model(window: int, kind: str) -> None:
    model = Strict({"small": window, "main": 200_000, None: window}, 4.0)
    compressor = ContextCompressor(
        "main",
        config_context_length=200_000,
        side_model=cast(Any, model),
        clock=FakeClock(),
        summary_model_override="small",
        summary_window_tokens=window,
    )
    talk = conversation(kind, 2, tokens=142_000)
    result = compress(
        compressor, talk.messages, memory_context="note " * 4000, focus_topic="q " * 900
    )
    assert sum(map(is_summary, result)) == 1 or compressor.last_attempt.manifest["mode"] == "prune"


@pytest.mark.parametrize("window", [8_000, 32_000])
def test_the_main_model_as_second_try_is_asked_within_its_own_window(window: int) -> None:
    class Broken(Strict):
        def complete(self, *, model: str | None = None, **given: Any) -> ModelResponse:
            answer = super().complete(model=model, **given)
            if model == "large":
                raise ModelTimeout("late")
            return answer

    model = Broken({"large": 200_000, "main": window, None: window}, 4.0)
    compressor = ContextCompressor(
        "main",
        config_context_length=window,
        side_model=cast(Any, model),
        clock=FakeClock(),
        summary_model_override="large",
        summary_window_tokens=200_000,
    )
    talk = conversation("chat", 2, tokens=142_000)
    result = compress(compressor, talk.messages)
    assert sum(map(is_summary, result)) == 1
    assert {name for name, _ in model.asked} == {"large", "main"}


@pytest.mark.parametrize("chars_per_token", [3.0, 2.0, 1.4])
def test_dense_text_is_asked_for_with_less_until_it_fits(chars_per_token: float) -> None:
    model = Strict({None: 32_000, "main": 32_000}, chars_per_token)
    compressor = ContextCompressor(
        "main", config_context_length=32_000, side_model=cast(Any, model), clock=FakeClock()
    )
    talk = conversation("chat", 2, tokens=60_000)
    result = compress(compressor, talk.messages)
    assert sum(map(is_summary, result)) == 1
    assert model.refused <= 3


def test_a_cut_answer_is_asked_for_again_within_the_window() -> None:
    class Cut(Strict):
        def complete(self, **given: Any) -> ModelResponse:
            super().complete(**given)
            first = len(self.asked) == 1
            return summary_response("## Goal\nhalf", "max_tokens" if first else "end_turn")

    for window in (8_000, 24_000):
        model = Cut({None: window, "main": window}, 4.0)
        compressor = ContextCompressor(
            "main", config_context_length=window, side_model=cast(Any, model), clock=FakeClock()
        )
        compress(compressor, conversation("chat", 1, tokens=window).messages)
        assert compressor.last_attempt.outcome == "compressed"
        assert len(model.asked) >= 2


# --- lists that are broken ----------------------------------------------------------------------


@pytest.mark.parametrize("name", broken())
@pytest.mark.parametrize("answer", ["## Goal\nfine", ModelTimeout("late")])
@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("system", [True, False])
def test_a_broken_list_becomes_a_valid_request_or_an_abort_with_a_reason(
    name: str, answer: Answer, force: bool, system: bool
) -> None:
    messages = broken()[name]
    if system:
        messages = [cast(Message, {"role": "system", "content": "be kind"}), *messages]
    frozen = copy.deepcopy(messages)
    compressor, _ = engine(answer)
    compressor.overflow_proven = not force
    result = compress(compressor, messages, force=force)
    assert messages == frozen
    if result is messages:
        assert compressor.last_attempt.outcome in ("nothing_to_do", "aborted")
        assert compressor.last_attempt.reason
        return
    assert sum(map(is_summary, result)) <= 1
    body = build_body(ModelRequest("s", [m for m in result if m["role"] != "system"], 100), "m")
    assert validate(body) == []
    assert estimate_messages_tokens_rough(result) < estimate_messages_tokens_rough(messages)
    again = compress(compressor, result, force=force)
    assert sum(map(is_summary, again)) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_that_is_cut_anywhere_is_survived(kind: str) -> None:
    whole = conversation(kind, 9, tokens=16_000).messages
    for start in range(0, len(whole) // 4, 5):
        for end in (len(whole), len(whole) - 1, len(whole) - 2):
            compressor, _ = engine("## Goal\nfine", window=12_000)
            result = compress(compressor, whole[start:end], force=True)
            body = build_body(ModelRequest("s", result, 100), "m")
            assert validate(body) == []
            assert sum(map(is_summary, result)) <= 1
