"""Owns which words a failed turn gets (pure)."""

from __future__ import annotations

from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelUnavailable,
    RequestTooLarge,
    SessionEnded,
    StoreError,
)
from gateway import texts


def words_for(error: BaseException) -> str:
    """What the user reads: what happened, and what to do next. No detail of the error itself."""
    match error:
        case ModelAuthError():
            return texts.AUTH_TROUBLE
        case ModelQuotaError():
            return texts.QUOTA_TROUBLE
        case ModelNotFound():
            return texts.MODEL_MISSING
        case ContextOverflow():
            return texts.OVERFLOW
        case RequestTooLarge():
            return texts.REQUEST_TOO_LARGE
        case ModelBadRequest():
            return texts.BAD_REQUEST
        case ModelRateLimited():
            return texts.with_wait(texts.RATE_LIMITED, error.retry_after_seconds)
        case ModelOverloaded():
            return texts.with_wait(texts.OVERLOADED, error.retry_after_seconds)
        case ModelUnavailable():
            return texts.with_wait(texts.UNREACHABLE, error.retry_after_seconds)
        case ModelError():
            return texts.TURN_FAILED
        case SessionEnded():
            return texts.CONVERSATION_MOVED
        case StoreError():
            return texts.STORE_TROUBLE_IN_TURN
        case _:
            return texts.TURN_FAILED
