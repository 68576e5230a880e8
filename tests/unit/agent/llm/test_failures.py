"""Wordings of refusals, from several servers, and what they mean."""

from __future__ import annotations

import pytest

from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    OutputLimitTooHigh,
    RequestTooLarge,
    ThinkingMismatch,
)
from agent.llm.failures import MAX_TEXT_CHARS, Refusal, classify, retry_after, without_secret


def refused(text: str, status: int = 400, kind: str = "invalid_request_error") -> ModelError:
    return classify(Refusal(status, kind, text))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("prompt is too long: 233153 tokens > 200000 maximum", 200_000),
        ("Prompt too long: 120451 tokens exceeds max context window of 120000 tokens", 120_000),
        ("prompt is too long: 233,153 tokens > 200,000 maximum", 200_000),
        ("input is too long for requested model", None),
        ("Input length 9000 exceeds the maximum context length of 8192 tokens.", 8192),
        ("the request exceeds the available context size (8192 tokens), try increasing it", 8192),
        ("request (5031 tokens) exceeds the available context size (4096 tokens), try", 4096),
        ("context_length_exceeded", None),
        ("This model's maximum context length is 8192 tokens, you sent 9000", 8192),
        ("too many tokens in the prompt", None),
        ("prompt is too long: 30 tokens > 20 maximum", None),
        ("input length and `max_tokens` exceed context limit: 210000 + 8000 > 200000", 200_000),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 10000"
            " tokens (9000 in the messages, 1000 in the completion).",
            8192,
        ),
    ],
)
def test_overflow(text: str, limit: int | None) -> None:
    error = refused(text)
    assert type(error) is ContextOverflow
    assert error.limit_tokens == limit


@pytest.mark.parametrize(
    "text",
    [
        f"prompt is too long: {'9' * 5000} tokens > {'9' * 5000}",
        f"prompt is too long: {'9' * 200_000}",
        "maximum context length is 1 tokens, requested 1 in the messages " * 5000,
    ],
)
def test_a_text_made_to_hurt_is_classified_at_once(text: str) -> None:
    """Unbounded, these ran into Python's limit for numbers or held the event loop for minutes."""
    assert type(refused(text)) is ContextOverflow


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease"
            " input length or `max_tokens` and try again",
            11_760,
        ),
        (
            "max_tokens: 70000 > 64000, which is the maximum allowed number of output tokens for m",
            64_000,
        ),
        (
            "max_tokens is too large: 5000. This model supports at most 4096 completion tokens",
            4096,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"
            " (8000 in the messages, 1000 in the completion).",
            192,
        ),
    ],
)
def test_too_long_an_answer_asked_for_is_no_overflow(text: str, limit: int) -> None:
    error = refused(text)
    assert type(error) is OutputLimitTooHigh
    assert error.limit_tokens == limit


@pytest.mark.parametrize(
    ("status", "kind", "text", "expected"),
    [
        (401, "authentication_error", "invalid x-api-key", ModelAuthError),
        (403, "", "<html>blocked</html>", ModelAuthError),
        (402, "billing_error", "pay", ModelQuotaError),
        (400, "invalid_request_error", "Your credit balance is too low", ModelQuotaError),
        (429, "rate_limit_error", "would exceed your organization's rate limit", ModelRateLimited),
        (429, "", "insufficient_quota", ModelQuotaError),
        (429, "rate_limit_error", "usage quota exceeded for this minute", ModelRateLimited),
        (429, "rate_limit_error", "Extra usage is required for long context", ContextOverflow),
        (404, "not_found_error", "model: nope", ModelNotFound),
        (413, "request_too_large", "too large", RequestTooLarge),
        (413, "", "<html>", RequestTooLarge),
        (529, "overloaded_error", "Overloaded", ModelOverloaded),
        (200, "overloaded_error", "Overloaded", ModelOverloaded),
        (200, "api_error", "Internal server error", ModelUnavailable),
        (200, "", "", ModelConnectionError),
        (408, "", "", ModelTimeout),
        (504, "timeout_error", "", ModelTimeout),
        (409, "", "", ModelUnavailable),
        (502, "", "<html>Bad gateway</html>", ModelUnavailable),
        (599, "", "", ModelUnavailable),
        (400, "invalid_request_error", "messages.0.foo: Extra inputs", ModelBadRequest),
        (400, "invalid_request_error", "Could not process image", RequestTooLarge),
        (500, "server_error", "image input is not supported - hint: mmproj", RequestTooLarge),
        (400, "", "this model doesn't support images", RequestTooLarge),
        (400, "", "content.0: this `thinking` block is bound to a different conversation",
         ThinkingMismatch),
        (400, "", "content.0: Invalid `signature` in `thinking` block", ThinkingMismatch),
        (400, "", "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
         " `text`", ThinkingMismatch),
        (400, "", "messages.1: `thinking` or `redacted_thinking` blocks in the latest assistant"
         " message cannot be modified.", ThinkingMismatch),
        (400, "", "This model does not support assistant message prefill.", ModelBadRequest),
    ],
)  # fmt: skip
def test_status_type_and_wording(
    status: int, kind: str, text: str, expected: type[ModelError]
) -> None:
    assert type(classify(Refusal(status, kind, text))) is expected


def test_a_web_page_is_not_repeated() -> None:
    error = classify(Refusal(502, "", "<!DOCTYPE html><html>secret things</html>"))
    assert "web page" in str(error)
    assert "secret" not in str(error)


def test_texts_are_cut_and_the_request_id_kept() -> None:
    error = classify(Refusal(500, "api_error", "word " * 500, request_id="req_1"))
    assert len(str(error)) <= MAX_TEXT_CHARS
    assert error.request_id == "req_1"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Sun, 29 Nov 2026 20:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 19:00:00 GMT"}, 0.0),
        (
            {
                "retry-after": "Sun, 29 Nov 2026 10:00:09 GMT",
                "date": "Sun, 29 Nov 2026 10:00:00 GMT",
            },
            9.0,
        ),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9" * 400}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1_795_982_400.0) == seconds


def test_no_piece_of_a_key_stays() -> None:
    key = "sk-ant-api03-abcdefghijklmnop"
    for text in (key, f"'{key}'", f"…{key[6:20]}…", "Bearer abcdef", f"sk-ant-…{key[-4:]}"):
        assert not any(key[i : i + 8] in without_secret(text, key) for i in range(len(key) - 7))
        assert "Bearer a" not in without_secret(text, None)
    assert without_secret("task-force is fine", None) == "task-force is fine"
