"""Owns what a provider's refusal means: status, error type and wording in, one of our errors out.

Pure: knows no SDK. Wordings are data, collected from several servers that speak this API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

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

MAX_TEXT_CHARS = 300
MAX_READ_CHARS = 2000
"""Of a refusal; what a stranger's server sends must not keep the event loop busy."""
LONG_CONTEXT_TIER_TOKENS = 200_000
_MIN_LIMIT_TOKENS, _MAX_LIMIT_TOKENS = 1024, 10_000_000
_SECRET = re.compile(r"\bsk-[\w.*…-]+|\bBearer\s+\S+", re.IGNORECASE)
_KEY_PIECE_CHARS = 8

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
    r"(prompt|input|request|conversation|messages?) (is |are )?too (long|large|many tokens)"
    r"|too many (input )?tokens"
    r"|context[_ ](length|window|size)[_ ]?(is |was )?exceed"
    r"|exceeds?( the| your| its| this)?( model'?s?)?( max(imum)?| available| allowed)*"
    r" (context|input|prompt|token)"
    r"|maximum (context|prompt|input) (length|size|window)"
    r"|exceed_context_size|context limit|larger than the (model's )?context"
    r"|exceeds the limit of \d+ tokens",
    re.IGNORECASE,
)
_SUM_TOO_HIGH = re.compile(r"(?<!\d)(\d+) \+ (\d+) > (\d+)")
_OPENAI_SUM = re.compile(
    r"maximum context length is (\d+) tokens.*?requested.*?(\d+) in the messages.*?(\d+) in the",
    re.IGNORECASE | re.DOTALL,
)
_OUTPUT_TOO_HIGH = re.compile(
    r"max_(?:completion_)?tokens['`\"]?\s*(?::|is too large:)\s*(\d+)", re.IGNORECASE
)
_OVER = re.compile(r"(?<!\d)(\d+)[^\d]*?(?:>|exceeds?|over|larger than)[^\d]*(\d+)", re.IGNORECASE)
_LIMIT_WORD = re.compile(r"(?:max(?:imum)?|limit|window|context)[^\d]{0,40}?(\d+)", re.IGNORECASE)
_THINKING = re.compile(
    r"bound to a different conversation"
    r"|`?thinking`? or `?redacted_thinking`? blocks in the latest assistant message"
    r"|invalid `?(signature|data)`? in `?(redacted_)?thinking"
    r"|expected `thinking` or `redacted_thinking`",
    re.IGNORECASE,
)
_IMAGE = re.compile(
    r"could not process image|image (exceeds|dimensions)|many-image requests"
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
    limited = kind == "rate_limit_error" or status == 429
    if kind == "billing_error" or status == 402 or (not limited and _has(text, _QUOTA)):
        return ModelQuotaError(f"the account can not pay: {said}", request_id=rid)
    if limited:
        if "insufficient_quota" in text:
            return ModelQuotaError(f"the quota is spent: {said}", request_id=rid)
        if "long context" in text.lower():
            return ContextOverflow(said, limit_tokens=LONG_CONTEXT_TIER_TOKENS, request_id=rid)
        return ModelRateLimited(said, retry_after_seconds=retry, request_id=rid)
    if kind == "overloaded_error" or status == 529:
        return ModelOverloaded(said, retry_after_seconds=retry, request_id=rid)
    if kind == "timeout_error" or status in (408, 504):
        return ModelTimeout(said, retry_after_seconds=retry, request_id=rid)
    if kind == "request_too_large" or status == 413:
        return RequestTooLarge(said, request_id=rid)
    if kind == "not_found_error" or status == 404:
        return ModelNotFound(said, request_id=rid)
    if _NO_IMAGES.search(text):
        # Of a model without eyes, and not always with a 400: no repeat gives it any.
        return RequestTooLarge(said, request_id=rid)
    if kind == "api_error" or status == 409 or status >= 500:
        return ModelUnavailable(said, retry_after_seconds=retry, request_id=rid)
    if kind or status >= 400:
        return _bad_request(text, said, rid)
    return ModelConnectionError(f"the stream broke off: {said}", request_id=rid)


def _bad_request(text: str, said: str, rid: str | None) -> ModelError:
    text = re.sub(r"(?<=\d)[,_](?=\d{3})", "", text)
    sums = _SUM_TOO_HIGH.search(text) or None
    if sums is None and (asked := _OPENAI_SUM.search(text)):
        window, prompt = int(asked[1]), int(asked[2])
    elif sums is not None:
        prompt, window = int(sums[1]), int(sums[3])
    else:
        prompt = window = 0
    if window:
        if prompt < window:
            return OutputLimitTooHigh(said, limit_tokens=window - prompt, request_id=rid)
        return ContextOverflow(said, limit_tokens=_plausible(window), request_id=rid)
    if asked := _OUTPUT_TOO_HIGH.search(text):
        numbers = [int(n) for n in re.findall(r"\d+", text[asked.end() :])]
        smaller = [n for n in numbers if n < int(asked[1])]
        limit = smaller[0] if smaller else None
        return OutputLimitTooHigh(said, limit_tokens=limit, request_id=rid)
    if _THINKING.search(text):
        return ThinkingMismatch(said, request_id=rid)
    if _IMAGE.search(text):
        return RequestTooLarge(said, request_id=rid)
    if _OVERFLOW.search(text):
        return ContextOverflow(said, limit_tokens=limit_in(text), request_id=rid)
    return ModelBadRequest(said, request_id=rid)


def limit_in(text: str) -> int | None:
    """The window that an overflow text names, if it names one."""
    text = re.sub(r"(?<=\d)[,_](?=\d{3})", "", text)
    if over := _OVER.search(text):
        return _plausible(int(over[2]))
    limits = [n for m in _LIMIT_WORD.finditer(text) if (n := _plausible(int(m[1])))]
    return min(limits) if limits else None


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
    """The text without anything that looks like a key, and without any piece of this one."""
    text = _SECRET.sub("[key]", text)
    if key:
        text = text.replace(key, "[key]")
        for at in range(len(key) - _KEY_PIECE_CHARS + 1):
            text = text.replace(key[at : at + _KEY_PIECE_CHARS], "[key]")
    return text


def _short(text: str) -> str:
    stripped = text.lstrip()
    if stripped[:1] == "<":
        return "the server answered with a web page (is the address right, is a proxy between?)"
    flat = " ".join(stripped.split())
    return flat if len(flat) <= MAX_TEXT_CHARS else flat[: MAX_TEXT_CHARS - 1] + "…"


def _has(text: str, markers: tuple[str, ...]) -> bool:
    lowered = text.lower()
    return any(m in lowered for m in markers)
