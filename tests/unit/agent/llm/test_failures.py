"""Wordings of refusals, from several servers, and what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from agent.llm.failures import (
    MAX_READ_CHARS,
    MAX_TEXT_CHARS,
    Refusal,
    classify,
    retry_after,
    without_secret,
)


def refused(text: str, status: int = 400, kind: str = "invalid_request_error") -> ModelError:
    return classify(Refusal(status, kind, text))


OVERFLOWS: list[tuple[str, str, int | None]] = [
    # Whose wording, the text, the window that it names.
    ("Anthropic", "prompt is too long: 233153 tokens > 200000 maximum", 200_000),
    ("Anthropic", "prompt is too long: 233,153 tokens > 200,000 maximum", 200_000),
    ("Anthropic", "prompt is too long: 30 tokens > 20 maximum", None),
    ("Anthropic, a sum whose prompt alone is too much",
     "input length and `max_tokens` exceed context limit: 210000 + 8000 > 200000", 200_000),
    ("Bedrock", "Input is too long for requested model.", None),
    ("Bedrock", "The model returned the following errors: prompt is too long: 903884 tokens > "
     "200000 maximum", 200_000),
    ("Bedrock Mantle", "prompt tokens (1200008) exceed model maximum (1050000) for gpt", 1_050_000),
    ("Bedrock Nova", "Input Tokens Exceeded: Number of input tokens exceeds maximum length. "
     "Please update the input to try again.", None),
    ("Vertex", "The input token count (1200293) exceeds the maximum number of tokens allowed "
     "(1048576).", 1_048_576),
    ("Gemini", "The input token count exceeds the maximum number of tokens allowed 1048576.",
     1_048_576),
    ("OpenRouter", "This endpoint's maximum context length is 32768 tokens. However, you requested "
     "about 42832 tokens (42832 of text input). Please reduce the length of either one.", 32_768),
    ("LiteLLM", "litellm.ContextWindowExceededError: litellm.BadRequestError: This model's maximum "
     "context length is 4097 tokens. However, your messages resulted in 4294 tokens.", 4097),
    ("OpenAI", "This model's maximum context length is 128000 tokens. However, your messages "
     "resulted in 204308 tokens. Please reduce the length of the messages.", 128_000),
    ("OpenAI", "This model's maximum context length is 8191 tokens, however you requested 8238 "
     "tokens (8238 in your prompt; 0 for the completion).", 8191),
    ("OpenAI", "Your input exceeds the context window of this model. Please adjust your input.",
     None),
    ("OpenAI", "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted "
     "in 309641 tokens. Please reduce the length of the messages.", 272_000),
    ("OpenAI", "context_length_exceeded", None),
    ("llama.cpp", "the request exceeds the available context size (8192 tokens), try increasing it",
     8192),
    ("llama.cpp", "request (66202 tokens) exceeds the available context size (65536 tokens), try "
     "increasing it", 65_536),
    ("llama-cpp-python", "Requested tokens (9000) exceed context window of 8192", 8192),
    ("vLLM", "This model's maximum context length is 8192 tokens. However, you requested 10000 "
     "tokens (9000 in the messages, 1000 in the completion).", 8192),
    ("vLLM", "This model's maximum context length is 262144 tokens. However, you requested 0 output"
     " tokens and your prompt contains at least 262145 input tokens, for a total of at least"
     " 262145 tokens.", 262_144),
    ("vLLM", "The decoder prompt (length 9000) is longer than the maximum model length of 8192. "
     "Make sure that `max_model_len` is no smaller than the number of text tokens.", 8192),
    ("SGLang", "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
     59_862),
    ("SGLang", "Requested token count exceeds the model's maximum context length of 8192 tokens. "
     "You requested a total of 9500 tokens: 9000 tokens from the input messages and 500 tokens "
     "for the completion.", 8192),
    ("SGLang", "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
     8192),
    ("TGI", "Input validation error: `inputs` must have less than 8192 tokens. Given: 9000", 8192),
    ("TGI", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32768. Given: "
     "33000 `inputs` tokens and 1024 `max_new_tokens`", 32_768),
    ("Ollama", "prompt too long; exceeded max context length by 4321 tokens", None),
    ("Ollama", "the input length exceeds the context length", None),
    ("LM Studio", "Trying to keep the first 10136 tokens when context the overflows. However, the "
     "model is loaded with context length of only 7866 tokens, which is not enough.", 7866),
    ("LM Studio", "The number of tokens to keep from the initial prompt is greater than the context"
     " length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length",
     4096),
    ("DeepSeek", "This model's maximum context length is 65536 tokens. However, you requested 69648"
     " tokens (69648 in the messages, 0 in the completion).", 65_536),
    ("Mistral", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
     "maximum context length", 32_768),
    ("Qwen", "<400> InternalError.Algo.InvalidParameter: Range of input length should be "
     "[1, 204800]", 204_800),
    ("Kimi", "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
     131_072),
    ("MiniMax", "invalid params, context window exceeds limit (2013)", None),
    ("GLM", "Prompt exceeds max length", None),
    ("xAI", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
     131_072),
    ("Cerebras", "Please reduce the length of the messages or completion. Current length is 70000 "
     "while limit is 65536", 65_536),
    ("Copilot", "prompt token count of 128001 exceeds the limit of 128000", 128_000),
    ("Cohere", "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received"
     " 7000.", 4081),
    ("Fireworks", "The prompt is too long: 267657, model maximum context length: 262143", 262_143),
    ("Databricks", "Your input is too long. Max input length is 4096 tokens, but you supplied 5441",
     4096),
    ("Cloudflare", "The estimated number of input and maximum output tokens (140000) exceeded this "
     "model context window limit (131072).", 131_072),
    ("Volcengine", "Total tokens of image and text exceed max message tokens.", None),
    ("others", "Prompt too long: 120451 tokens exceeds max context window of 120000 tokens",
     120_000),
    ("others", "Input length 9000 exceeds the maximum context length of 8192 tokens.", 8192),
    ("others", "too many tokens in the prompt", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "limit"), [case[1:] for case in OVERFLOWS], ids=[case[0] for case in OVERFLOWS]
)
def test_overflow(text: str, limit: int | None) -> None:
    error = refused(text)
    assert type(error) is ContextOverflow
    assert error.limit_tokens == limit


SHREDS = sorted({word for _, text, _ in OVERFLOWS for word in text.split()})


@given(
    st.integers(100, 599),
    st.sampled_from(["", "invalid_request_error", "api_error", "rate_limit_error", "odd"]),
    st.lists(st.sampled_from(SHREDS) | st.integers(0, 10**30).map(str), max_size=60),
)
def test_any_shreds_of_texts_are_some_error_of_ours(
    status: int, kind: str, shreds: list[str]
) -> None:
    error = refused(" ".join(shreds), status, kind)
    if isinstance(error, ContextOverflow):
        assert error.limit_tokens is None or 1024 <= error.limit_tokens <= 10_000_000
    if isinstance(error, OutputLimitTooHigh):
        assert error.limit_tokens is None or error.limit_tokens >= 0


@pytest.mark.parametrize("status", [413, 422, 500])
def test_overflow_under_another_status(status: int) -> None:
    error = refused("prompt is too long: 233153 tokens > 200000 maximum", status, "")
    assert type(error) is ContextOverflow
    assert error.limit_tokens == 200_000


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested "
         "11027, please reduce your message size and try again.", ModelRateLimited),
        (429, "Request too large for gpt on tokens per min (TPM): Limit 30000, Requested 342389.",
         ModelRateLimited),
        (400, "This request would exceed your organization's rate limit of 40,000 input tokens per "
         "minute.", ModelRateLimited),
        (400, "ThrottlingException: Too many tokens, please wait before trying again.",
         ModelBadRequest),
        (503, "Too many tokens, please wait before trying again.", ModelUnavailable),
        (400, "tools.0.custom.description: String should have at most 1024 characters",
         ModelBadRequest),
        (400, "Invalid 'tools[0].function.description': string too long. Expected a string with "
         "maximum length 1024, but got a string with length 1500 instead.", ModelBadRequest),
        (400, "Invalid 'tools': array too long. Expected an array with maximum length 128.",
         ModelBadRequest),
        (400, "tools.3.custom.input_schema: JSON schema is too large", ModelBadRequest),
        (400, "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
         ModelBadRequest),
        (400, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
         ModelBadRequest),
        (400, "`max_tokens` must be greater than `thinking.budget_tokens`", ModelBadRequest),
        (400, "A maximum of 4 blocks with cache_control may be provided. Found 5.",
         ModelBadRequest),
        (400, "Request payload size exceeds the limit: 20971520 bytes.", RequestTooLarge),
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes"
         " > 5242880 bytes", RequestTooLarge),
        (413, "Request exceeds the maximum size", RequestTooLarge),
        (500, "Internal server error", ModelUnavailable),
        (500, 'could not handle {"model": "m", "max_tokens": 8192, "n": 1}', ModelUnavailable),
        (500, "the conversation service is too large a problem today", ModelUnavailable),
    ],
)  # fmt: skip
def test_what_is_no_overflow(status: int, text: str, expected: type[ModelError]) -> None:
    assert type(refused(text, status, "")) is expected


@pytest.mark.parametrize(
    "text",
    [
        f"prompt is too long: {'9' * 5000} tokens > {'9' * 5000}",
        f"prompt is too long: {'9' * 200_000}",
        "maximum context length is 1 tokens, requested 1 in the messages " * 5000,
        "prompt is too long: 1 " + ">" * 5000,
        "too many tokens exceeds" + " max maximum available" * 500,
        "too many tokens. " + "context length is 9 tokens requested " * 500,
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
        (
            "This endpoint's maximum context length is 262144 tokens. However, you requested about"
            " 284283 tokens (8963 of text input, 13176 of tool input, 262144 in the output).",
            262_144 - 8963 - 13_176,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum"
            " context length is 32768 tokens and your request has 30000 input tokens"
            " (8192 > 32768 - 30000).",
            2768,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 1000 output"
            " tokens and your prompt contains at least 7193 input tokens, for a total of at least"
            " 8193 tokens.",
            999,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 163840 tokens. You"
            " requested a total of 183491 tokens: 19651 tokens from the input messages and 163840"
            " tokens for the completion.",
            163_840 - 19_651,
        ),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32768. Given:"
            " 32000 `inputs` tokens and 1024 `max_new_tokens`",
            768,
        ),
        ("Range of max_tokens should be [1, 8192]", 8192),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        (
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the"
            " supported range is from 1 (inclusive) to 65537 (exclusive).",
            65_536,
        ),
        (
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`"
            " is less than the `context_window` for this model",
            8192,
        ),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a"
            " maximum tokens value that is lower than 4096.",
            4096,
        ),
        (
            "500 Internal Server Error: max_tokens (32000) exceeds model's maximum output tokens"
            " (16384)",
            16_384,
        ),
        (
            "max_completion_tokens is too large: 1298829. This model supports at most 1048576",
            1_048_576,
        ),
        ("max_tokens is too large: 5000", None),
    ],
)
def test_too_long_an_answer_asked_for_is_no_overflow(text: str, limit: int | None) -> None:
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
        (
            400,
            "invalid_request_error",
            "Too much media: 0 document pages + 101 images > 100",
            RequestTooLarge,
        ),
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


def test_of_a_huge_refusal_only_the_beginning_is_looked_at() -> None:
    key = "sk-ant-" + "abcdefgh" * 12
    for before in range(MAX_READ_CHARS - len(key) - 1, MAX_READ_CHARS + 1):
        told = without_secret("." * before + key + "x" * 1_000_000, key)
        assert len(told) <= MAX_READ_CHARS + len("[key]")
        assert "abcdefgh" not in told
