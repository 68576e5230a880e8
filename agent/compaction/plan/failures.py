"""Owns what kind of failure a summary call met, and how a user reads it. Pure."""

from __future__ import annotations

import re
from typing import Literal

from agent.compaction.calls.summary import SummaryRejected
from agent.errors import (
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
)

FailureKind = Literal[
    "missing_key",
    "auth",
    "quota",
    "timeout",
    "rate_limit",
    "overload",
    "connection",
    "not_found",
    "bad_request",
    "unusable",
    "other",
]

_MISSING_KEY = re.compile(r"\b(?:no|missing|without)\b.{0,30}\bkey\b|not configured", re.IGNORECASE)


def classify(error: Exception) -> FailureKind:
    """What kind of failure of the summary call this is."""
    match error:
        case ModelAuthError():
            return "missing_key" if _MISSING_KEY.search(str(error)) else "auth"
        case ModelQuotaError():
            return "quota"
        case ModelNotFound():
            return "not_found"
        case ModelRateLimited():
            return "rate_limit"
        case ModelOverloaded():
            return "overload"
        case ModelTimeout() | TimeoutError():
            return "timeout"
        case ModelConnectionError() | ConnectionError() | ValueError():
            return "connection"  # ValueError: a body that is no JSON, like a stream that broke
        case ModelUnavailable():
            return "overload"
        case ModelBadRequest():
            return "bad_request"
        case SummaryRejected():
            return "unusable"
        case _:
            return "other"


def describe(kind: FailureKind, error: Exception) -> str:
    """The failure in words that a user may read: no keys, no address, no stack."""
    match kind:
        case "missing_key":
            return "no key is configured for the summary model"
        case "auth":
            return "the provider refused the key of the summary model"
        case "quota":
            return "the provider's quota is used up"
        case "timeout":
            return "the summary model did not answer in time"
        case "rate_limit":
            return "the provider is limiting the rate"
        case "overload":
            return "the provider is overloaded"
        case "connection":
            return "the connection to the summary model broke"
        case "not_found":
            return "the provider does not know the summary model"
        case "bad_request":
            return "the provider refused the summary request"
        case "unusable":
            return str(error)
        case "other":
            return f"the summary failed ({type(error).__name__})"
