"""Owns which words a failed turn gets, in the chat and on the log."""

from __future__ import annotations

import logging

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
from gateway.turns.settling import Ending

log = logging.getLogger(__name__)

MOST_REASON_CHARS = 500


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


def failed(error: Exception, session_id: str) -> Ending:
    """How a turn ends that this error has ended; the log is told, if it is no bug of ours."""
    name = type(error).__name__
    if isinstance(error, ModelError):  # of the outside world: no place in the code tells anything
        told = {"error": name, "reason": reason_of(error)}
        log.log(level_of(error), "turn failed", extra=told)
    elif isinstance(error, StoreError):
        log.warning("turn failed", extra={"error": name}, exc_info=error)
    return Ending("failed", session_id, words_for(error), error=name)


def level_of(error: ModelError) -> int:
    """How loud it is: an error where only the log can say what an admin has to mend.

    A passing trouble and a prompt that is too large are told in the chat, and that is enough.
    """
    told = isinstance(error, ModelUnavailable | ContextOverflow | RequestTooLarge)
    return logging.WARNING if told else logging.ERROR


def reason_of(error: ModelError) -> str:
    """What the provider said, in one line for the log, with the id that it knows the request by."""
    said = " ".join(str(error).split())[:MOST_REASON_CHARS]
    return f"{said} ({error.request_id})" if error.request_id else said
