"""Owns what a provider's refusal means: status, error type and wording in, one of our errors out.

Pure: knows no SDK. Wordings are data, collected from several servers that speak this API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from agent.errors import (
    CompactionRefused,
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

MAX_TEXT_CHARS = 300
MAX_READ_CHARS = 2000
"""Of a refusal; what a stranger's server sends must not keep the event loop busy."""
LONG_CONTEXT_TIER_TOKENS = 200_000
COMPACTION_UNAVAILABLE = "compaction_unavailable"
"""The one of them that a repeat may heal."""
_MIN_LIMIT_TOKENS, _MAX_LIMIT_TOKENS = 1024, 10_000_000
_SECRET = re.compile(r"\bsk-[\w.*…-]+|\bBearer\s+\S+", re.IGNORECASE)
_KEY_PIECE_CHARS = 8
_WEB_PAGE = re.compile(r"<[a-z!?]", re.IGNORECASE)

_QUOTA = (
    "credit balance",
    "insufficient_quota",
    "quota exceeded",
    "quota_exceeded",
    "out of funds",
    "out of credit",
    "out of extra usage",
)
_OVERFLOW = re.compile(
    r"(prompt|\binputs?|request|conversation|messages?) (is |are )?too (long|large|many tokens)"
    r"|too many (input )?tokens(?! per|, please wait)|too large for model"
    r"|context[_ ](length|window|size)[_ ]?(is |was )?exceed"
    r"|exceed(s|ed)?( the| your| its| this)?( model'?s?)?"
    r"( max(imum)?| available| allowed| configured| number of)*"
    r" (context|input|prompt|token|length \(|message tokens|limit of \d+ ?tokens)"
    r"|(prompt|input) exceeds? max(imum)? length"
    r"|(prompt|input) (tokens?|length)( \(?\d+( tokens)?\)?)? exceeds? (the )?(model|max|context)"
    r"|token count of \d+ exceeds"
    r"|max(imum)? (context|prompt|input|model) (length|size|window)"
    r"|exceed_context_size|context limit"
    r"|(larger|greater|longer) than the (model'?s? )?context"
    r"|when (the )?context (the )?overflows"
    r"|range of input length should be|`inputs` must have less than"
    r"|current length is \d+ while limit is"
    r"|tokens in the prompt cannot exceed",
    re.IGNORECASE,
)
"""Each line is somebody's wording; the table of the tests says whose."""
_RATE = re.compile(
    r"\b(input |output |total )?(tokens?|requests?) per[ -](min(ute)?|day|hour|second)\b"
    r"|\b(TPM|RPM|TPD)\b|rate[ _-]?limit",
    re.IGNORECASE,
)
_ABOUT_TOKENS = re.compile(r"token|context", re.IGNORECASE)
_BODY = re.compile(
    r"payload size exceeds|entity too large|body (is )?too large|too many total text bytes"
    r"|exceeds? .{0,40}\d+ ?(bytes|[kmg]i?b)\b",
    re.IGNORECASE,
)

_SUMS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"(?<!\d)(?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",
        r"context length is (?P<window>\d+) tokens.{0,60}?requested.{0,40}?"
        r"(?P<prompt>\d+) in (?:the messages|your prompt)",
        r"context length is (?P<window>\d+) tokens.{0,60}?requested \d+ output tokens.{0,60}?"
        r"(?P<prompt>\d+) input tokens",
        r"context length is (?P<window>\d+) tokens and your request has (?P<prompt>\d+) input",
        r"context length of (?P<window>\d+) tokens.{0,60}?requested.{0,40}?"
        r"(?P<prompt>\d+) tokens from the input",
        r"must be <= (?P<window>\d+)\. given: (?P<prompt>\d+) `inputs` tokens",
    )
)
"""Prompt and answer together are too much: how large each of the two is decides."""
_PARTS_WINDOW = re.compile(r"maximum context length is (\d+) tokens", re.IGNORECASE)
_PARTS = re.compile(r"(?<!\d)(\d+) of \w{1,20} input", re.IGNORECASE)
_MAX_TOKENS = r"max_?(?:(?:completion|output|new)_?)?tokens['`\"]?"
_OUTPUT_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"{_MAX_TOKENS}: \d+ > (?P<limit>\d+)",
        rf"{_MAX_TOKENS} is too large: \d+\..{{0,60}}?at most (?P<limit>\d+)",
        rf"{_MAX_TOKENS} \(\d+\) exceeds? (?:the )?model'?s? max(?:imum)? output tokens"
        r" \(?(?P<limit>\d+)",
        rf"range of [`']?{_MAX_TOKENS} (?:is|should be) \[\d+, ?(?P<limit>\d+)\]",
        rf"{_MAX_TOKENS} value of \d+ but the supported range is from \d+ \(inclusive\) to"
        r" (?P<beyond>\d+) \(exclusive\)",
        rf"{_MAX_TOKENS} (?:must be |should be |cannot |can not |may not )"
        r"(?:less than or equal to|at most|<=|exceed|be larger than) [`']?(?P<limit>\d+)",
        r"maximum tokens you requested exceeds the model limit of (?P<limit>\d+)",
    )
)
_OUTPUT_TOO_HIGH = re.compile(rf"{_MAX_TOKENS}\s*(?::|is too large:|\()\s*(\d+)", re.IGNORECASE)
_OVER = re.compile(
    r"(?<!\d)(\d+)[^\d]{0,120}?(?:>|exceeds?|over|(?:larger|longer|greater) than)"
    r"[^\d]{0,120}(\d+)",
    re.IGNORECASE,
)
_LIMIT_WORD = re.compile(
    r"(?:max(?:imum)?|limit|window|context|n_ctx|cannot exceed|less than)[^\d]{0,40}?(\d+)"
    r"|(?<!\d)(\d+) maximum",
    re.IGNORECASE,
)
_RANGE = re.compile(r"length should be \[\d+, ?(\d+)\]", re.IGNORECASE)
_NO_LIMIT = re.compile(r"exceeded max context length by \d+|limit \(\d{4}\)", re.IGNORECASE)
"""By how much it was too long, and an error's number: neither is a window."""
_THINKING = re.compile(
    r"bound to a different conversation"
    r"|`?thinking`? or `?redacted_thinking`? blocks in the latest assistant message"
    r"|invalid `?(signature|data)`? in `?(redacted_)?thinking"
    r"|expected `thinking` or `redacted_thinking`",
    re.IGNORECASE,
)
_COMPACTION_CODE = re.compile(r"\bcompaction_[a-z_]+")
_IMAGE = re.compile(
    r"could not process image|image (exceeds|dimensions)|many-image requests|too much media"
    r"|does not match the provided media type",
    re.IGNORECASE,
)
_NO_IMAGES = re.compile(
    r"images? (input )?(is|are) not supported|(does not|doesn't) support images?( input)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What came back instead of an answer."""

    status: int
    """200 for an error event inside a stream."""
    kind: str = ""
    """The provider's error type, "" if the body was not in its format."""
    text: str = ""
    code: str = ""
    """The provider's name of the cause, where its type says too little."""
    request_id: str | None = None
    retry_after_seconds: float | None = None


def classify(refusal: Refusal) -> ModelError:
    """The error of ours that this refusal is."""
    kind, status, rid = refusal.kind, refusal.status, refusal.request_id
    text, retry = refusal.text[:MAX_READ_CHARS], refusal.retry_after_seconds
    said = _short(text) or f"status {status}"
    if kind in ("authentication_error", "permission_error") or status in (401, 403):
        # Nothing of the provider's text: some servers repeat a piece of the key in it.
        return ModelAuthError(f"the provider refused the key (status {status})", request_id=rid)
    if (code := compaction_code(refusal)) and code != COMPACTION_UNAVAILABLE:
        return CompactionRefused(said, code=code, request_id=rid)
    limited = kind == "rate_limit_error" or status == 429
    if kind == "billing_error" or status == 402 or (not limited and _has(text, _QUOTA)):
        return ModelQuotaError(f"the account can not pay: {said}", request_id=rid)
    if limited:
        if "insufficient_quota" in text:
            return ModelQuotaError(f"the quota is spent: {said}", request_id=rid)
        if "long context" in text.lower():
            return ContextOverflow(said, limit_tokens=LONG_CONTEXT_TIER_TOKENS, request_id=rid)
        return ModelRateLimited(said, retry_after_seconds=retry, request_id=rid)
    if kind == "overloaded_error" or status == 529 or code:
        return ModelOverloaded(said, retry_after_seconds=retry, request_id=rid)
    if kind == "timeout_error" or status in (408, 504):
        return ModelTimeout(said, retry_after_seconds=retry, request_id=rid)
    if kind == "request_too_large" or status == 413:
        return _too_large(text, said, retry, rid)
    if kind == "not_found_error" or status == 404:
        return ModelNotFound(said, request_id=rid)
    if _NO_IMAGES.search(text):
        # Of a model without eyes, and not always with a 400: no repeat gives it any.
        return RequestTooLarge(said, request_id=rid)
    if kind == "api_error" or status == 409 or status >= 500:
        # Gateways and home-made servers send some as their own fault; no repeat would heal those.
        meant = _bad_request(text, said, rid)
        if isinstance(meant, OutputLimitTooHigh) and (meant.of_model or _prompt_and_window(text)):
            return meant
        if isinstance(meant, ContextOverflow) and _ABOUT_TOKENS.search(text):
            return meant
        return ModelUnavailable(said, retry_after_seconds=retry, request_id=rid)
    if kind or status >= 400:
        return _bad_request(text, said, rid)
    return ModelConnectionError(f"the stream broke off: {said}", request_id=rid)


def compaction_code(refusal: Refusal) -> str:
    """Which of the errors about its own compaction the provider names; "": none."""
    if refusal.code.startswith("compaction_"):
        return refusal.code
    # In the text only where it is the code and nothing else: some gateways drop the details.
    found = _COMPACTION_CODE.match(refusal.text.strip())
    return found[0] if found and not refusal.code else ""


def _too_large(text: str, said: str, retry: float | None, rid: str | None) -> ModelError:
    """A 413 is about bytes, unless its text is about tokens."""
    if _RATE.search(text):
        return ModelRateLimited(said, retry_after_seconds=retry, request_id=rid)
    if _OVERFLOW.search(text) and _ABOUT_TOKENS.search(text):
        return _bad_request(text, said, rid)
    return RequestTooLarge(said, request_id=rid)


def _bad_request(text: str, said: str, rid: str | None) -> ModelError:
    text = _without_separators(text)
    if sizes := _prompt_and_window(text):
        prompt, window = sizes
        if prompt < window:
            return OutputLimitTooHigh(said, limit_tokens=window - prompt, request_id=rid)
        return ContextOverflow(said, limit_tokens=_plausible(window), request_id=rid)
    if (stated := _output_limit(text)) is not None:
        return OutputLimitTooHigh(said, limit_tokens=stated, of_model=True, request_id=rid)
    if asked := _OUTPUT_TOO_HIGH.search(text):
        numbers = (int(n) for n in re.findall(r"\d+", text[asked.end() :]))
        guess = next((n for n in numbers if n < int(asked[1])), None)
        return OutputLimitTooHigh(said, limit_tokens=guess, request_id=rid)
    if _THINKING.search(text):
        return ThinkingMismatch(said, request_id=rid)
    if _IMAGE.search(text) or _BODY.search(text):
        return RequestTooLarge(said, request_id=rid)
    if _RATE.search(text):
        return ModelRateLimited(said, request_id=rid)
    if _OVERFLOW.search(text):
        return ContextOverflow(said, limit_tokens=limit_in(text), request_id=rid)
    return ModelBadRequest(said, request_id=rid)


def _prompt_and_window(text: str) -> tuple[int, int] | None:
    for pattern in _SUMS:
        if found := pattern.search(text):
            return int(found["prompt"]), int(found["window"])
    parts = [int(n) for n in _PARTS.findall(text)]
    window = _PARTS_WINDOW.search(text)
    return (sum(parts), int(window[1])) if parts and window else None


def _output_limit(text: str) -> int | None:
    """How long an answer of this model may be, where the text says just that."""
    for pattern in _OUTPUT_LIMITS:
        if found := pattern.search(text):
            groups = found.groupdict()
            return int(groups["beyond"]) - 1 if groups.get("beyond") else int(groups["limit"])
    return None


def limit_in(text: str) -> int | None:
    """The window that an overflow text names, if it names one."""
    text = _without_separators(text)
    if _NO_LIMIT.search(text):
        return None
    if stated_range := _RANGE.search(text):
        return _plausible(int(stated_range[1]))
    if over := _OVER.search(text):
        return _plausible(int(over[2]))
    stated = (int(m[1] or m[2]) for m in _LIMIT_WORD.finditer(text))
    return min((n for n in stated if _plausible(n)), default=None)


def _without_separators(text: str) -> str:
    return re.sub(r"(?<=\d)[,_](?=\d{3})", "", text)


def _plausible(tokens: int) -> int | None:
    return tokens if _MIN_LIMIT_TOKENS <= tokens <= _MAX_LIMIT_TOKENS else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by the answer's headers; the caller caps it."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        here = headers.get("date")
        # Measured by the server's own clock where it shows one: ours may be wrong.
        base = parsedate_to_datetime(here).timestamp() if here else now
        return max(0.0, at.timestamp() - base)
    except (ValueError, OverflowError):
        return None


def without_secret(text: str, key: str | None) -> str:
    """The beginning of a refusal, as much as is read, without anything that looks like a key.

    Nor with any piece of this ``key``, except one at the cut that is too short to be told.
    """
    text = _SECRET.sub("[key]", text[:MAX_READ_CHARS])
    if key:
        text = text.replace(key, "[key]")
        for at in range(len(key) - _KEY_PIECE_CHARS + 1):
            text = text.replace(key[at : at + _KEY_PIECE_CHARS], "[key]")
    return text


def _short(text: str) -> str:
    stripped = text.lstrip()
    if _WEB_PAGE.match(stripped):
        return "the server answered with a web page (is the address right, is a proxy between?)"
    flat = " ".join(stripped.split())
    return flat if len(flat) <= MAX_TEXT_CHARS else flat[: MAX_TEXT_CHARS - 1] + "…"


def _has(text: str, markers: tuple[str, ...]) -> bool:
    lowered = text.lower()
    return any(m in lowered for m in markers)
