"""Owns the errors of the core and the store; each class says who handles it.

PosthouseError
├── ConfigError                 the command line: exit 78, every line names a dotted path
├── StoreError
│   ├── DatabaseTooNew          start-up: refuse, exit 78
│   ├── DatabaseDamaged         start-up: refuse, exit 78; no restart heals it
│   ├── HomeInUse               start-up: refuse, exit 73
│   ├── StoreUnavailable        disk full, I/O error, failed COMMIT: outcome unknown; retry or tell
│   ├── SessionNotFound         caller: an id that never existed
│   ├── SessionEnded            loop and turns: somebody else moved the tip; adopt it
│   └── StaleTurn               loop and turns: this run is over; write nothing more
├── EngineError                 compaction: this turn goes on uncompressed, the reason is shown
├── ToolError                   the loop: becomes an error result that the model reads
└── ModelError                  the retry policy, then the turn
    ├── ModelAuthError          401, 403, missing key: not retried
    ├── ModelQuotaError         402 or a spent quota: not retried
    ├── ModelNotFound           404: next fallback
    ├── ModelBadRequest         400 and others that a repeat can not heal
    │   ├── ContextOverflow     the loop: compress, then try again
    │   ├── OutputLimitTooHigh  the loop: lower max_tokens, never compress
    │   ├── RequestTooLarge     413: media go first
    │   └── ThinkingMismatch    the loop: one retry without thinking blocks
    └── ModelUnavailable        may heal by itself: retried with back-off
        ├── ModelRateLimited    429; carries retry_after_seconds
        ├── ModelOverloaded     529, also in-band after a 200
        ├── ModelTimeout        no answer within the deadline
        └── ModelConnectionError   refused, cut off, ended without its end mark
"""

from __future__ import annotations


class PosthouseError(Exception):
    """Base of everything that this project raises on purpose."""


class ConfigError(PosthouseError):
    """The configuration can not be used. ``problems``: one line each, with file and dotted path."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StoreError(PosthouseError):
    """Base of the store's errors."""


class DatabaseTooNew(StoreError):
    """The database was written by a newer version."""


class DatabaseDamaged(StoreError):
    """The file can not be opened as a database: a person has to put a backup back."""


class HomeInUse(StoreError):
    """Another process holds this home."""


class StoreUnavailable(StoreError):
    """The write failed in a way that says nothing about whether it happened."""


class SessionNotFound(StoreError):
    """No session with this id."""


class SessionEnded(StoreError):
    """The session takes no more messages; its conversation goes on elsewhere."""


class StaleTurn(StoreError):
    """The turn is no longer running; whoever holds it must not write."""


class ImportRefused(StoreError):
    """A file can not be taken in; the text says where and why. Nothing was changed."""


class EngineError(PosthouseError):
    """A context engine failed, came late, or gave back a list that can not be used."""


class ToolError(PosthouseError):
    """A tool could not do its work; the text is for the model."""


class ModelError(PosthouseError):
    """The model gave no usable answer. ``request_id`` helps to ask the provider."""

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class ModelAuthError(ModelError):
    """The key is missing, wrong, or not allowed to use this model."""


class ModelQuotaError(ModelError):
    """The account can not pay."""


class ModelNotFound(ModelError):
    """The provider does not know this model."""


class ModelBadRequest(ModelError):
    """The request is wrong; a repeat would be wrong too."""


class ContextOverflow(ModelBadRequest):
    """The prompt does not fit. ``limit_tokens``: the window, if the provider named it."""

    def __init__(
        self,
        message: str,
        *,
        limit_tokens: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.limit_tokens = limit_tokens


class OutputLimitTooHigh(ModelBadRequest):
    """``max_tokens`` is too large (alone, or beside the prompt)."""

    def __init__(
        self,
        message: str,
        *,
        limit_tokens: int | None = None,
        of_model: bool = False,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.limit_tokens = limit_tokens
        """The largest ``max_tokens`` that would fit, if the provider's text allows to tell."""
        self.of_model = of_model
        """The limit holds for every prompt, not only beside this one."""


class RequestTooLarge(ModelBadRequest):
    """The body is too large in bytes."""


class ThinkingMismatch(ModelBadRequest):
    """A thinking block is bound to another prefix."""


class CompactionRefused(ModelBadRequest):
    """The provider's own compaction did not work, or its result was refused when it came back.

    ``code``: the provider's word for it (``compaction_…``), or one of `agent.llm.native`.
    """

    def __init__(self, message: str, *, code: str = "", request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)
        self.code = code


class BlockUnsendable(ModelBadRequest):
    """The list begins with a provider's summary that nobody but its maker can read."""


class ModelUnavailable(ModelError):
    """The provider can not answer now."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, request_id=request_id)
        self.retry_after_seconds = retry_after_seconds


class ModelRateLimited(ModelUnavailable):
    """Too many requests."""


class ModelOverloaded(ModelUnavailable):
    """The provider is overloaded."""


class ModelTimeout(ModelUnavailable):
    """No answer within the deadline."""


class ModelConnectionError(ModelUnavailable):
    """No connection, or one that broke before the answer was complete."""
