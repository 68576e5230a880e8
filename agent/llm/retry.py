"""Owns the retry policy: the only place that sends a request again because the provider failed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from agent.errors import (
    CompactionRefused,
    ContextOverflow,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelUnavailable,
)
from agent.llm.native import NOT_KNOWN
from agent.llm.standing import Standing, StandingBook
from agent.ports import (
    Clock,
    CompactingModel,
    LanguageModel,
    LoadableModel,
    ModelRequest,
    ModelResponse,
    NativeSummary,
)

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long. Attempts and deadline count over the whole fallback chain."""

    attempts_per_model: int = 4
    deadline_seconds: float = 300.0
    """No attempt begins later than this after the first."""
    first_delay_seconds: float = 1.0
    max_delay_seconds: float = 30.0
    max_retry_after_seconds: float = 120.0
    """A provider that asks for more patience than this is given up for now."""
    auth_pause_seconds: float = 60.0
    """After a refused key, so long no request is sent at all."""
    probe_seconds: float = 5.0
    """Of that pause, what is left of it once a person has asked for another attempt."""

    def delay_seconds(self, failures: int, error: ModelUnavailable, dice: float) -> float | None:
        """How long to wait after so many failures, or None: no more on this model.

        ``dice``: 0 to 1. Never shorter than the provider asked for.
        """
        asked = error.retry_after_seconds or 0.0
        if failures >= self.attempts_per_model or asked > self.max_retry_after_seconds:
            return None
        ours = min(self.first_delay_seconds * 2.0 ** (failures - 1), self.max_delay_seconds)
        return max(asked + dice * self.first_delay_seconds if asked else 0.0, ours * (0.5 + dice))


_Asker = tuple[bool, str | None]
"""Is it a side task, and which model does it name."""
_CHAT: _Asker = (False, None)


@dataclass(slots=True)
class _Refused:
    """A refused key; until then, no request is sent. Both times are monotonic."""

    error: str
    asked_at: float
    until: float


class RetryingModel:
    """A chain of models, tried in order, as one (`agent.ports.LanguageModel`)."""

    def __init__(
        self,
        models: Sequence[LanguageModel],
        *,
        clock: Clock,
        random: Callable[[], float],
        policy: RetryPolicy | None = None,
    ) -> None:
        if not models:
            raise ValueError("at least one model is needed")
        self._models = tuple(models)
        self._clock = clock
        self._random = random
        self._policy = policy if policy is not None else RetryPolicy()
        self._refused: dict[_Asker, _Refused] = {}
        self._book = StandingBook(clock)

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def standing(self) -> Standing:
        """What the provider said last of key, credit and models."""
        return self._book.standing

    def ask_anew(self) -> None:
        """A person wants to know whether the key is taken now: the next request is sent.

        Not before `RetryPolicy.probe_seconds` after the last one; until then it waits.
        """
        for refused in self._refused.values():
            refused.until = min(refused.until, refused.asked_at + self._policy.probe_seconds)

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        asker = (request.side_task, request.model)
        await self._until_allowed(asker)
        # A model that the request names is that one or none: who asked has an own plan B.
        chain = self._models[:1] if request.model is not None else self._models
        ends_at = self._clock.monotonic() + self._policy.deadline_seconds
        shown = _Shown(on_text)
        trouble: ModelError | None = None
        for n, model in enumerate(chain):
            asked = request.model or model.name
            try:
                with self._watched(asked):
                    response = await self._try_model(model, request, shown, ends_at)
            except (ModelUnavailable, ModelNotFound) as exc:
                self._key_worked(asker)  # whatever it is, it is not the key
                if n == len(chain) - 1 or self._clock.monotonic() >= ends_at:
                    raise
                trouble = trouble or exc
                log.warning(
                    "Falling back to the next model",
                    extra={"model": model.name, "reason": type(exc).__name__},
                )
                continue
            except ContextOverflow as exc:
                self._key_worked(asker)
                if trouble is None:
                    raise
                # A stand-in with a smaller window: no reason to shorten the conversation for ever,
                # nor does its limit say anything of the model that was meant.
                log.warning("A fallback has too small a window", extra={"model": model.name})
                if n == len(chain) - 1:
                    raise trouble from exc
                continue
            except ModelAuthError as exc:
                self._refused[asker] = self._refusal(exc)
                raise
            except ModelError:
                self._key_worked(asker)
                raise
            self._key_worked(asker)
            return response
        raise AssertionError("a chain is never empty")

    async def load(self) -> None:
        """As `agent.ports.LoadableModel`: of the first model; the others share its SDK."""
        model = self._models[0]
        if isinstance(model, LoadableModel):
            await model.load()

    async def compact(self, request: ModelRequest, *, instructions: str = "") -> NativeSummary:
        """As `agent.ports.CompactingModel`: by the first model only, whose block it is to be."""
        model = self._models[0]
        if not isinstance(model, CompactingModel):
            raise CompactionRefused("this model has no compaction of its own", code=NOT_KNOWN)
        compacting = model
        await self._until_allowed(_CHAT)
        ends_at = self._clock.monotonic() + self._policy.deadline_seconds
        try:
            with self._watched(model.name):
                summary = await self._persist(
                    lambda: compacting.compact(request, instructions=instructions),
                    model.name,
                    ends_at,
                )
        except ModelAuthError as exc:
            self._refused[_CHAT] = self._refusal(exc)
            raise
        except ModelError:
            self._key_worked(_CHAT)
            raise
        self._key_worked(_CHAT)
        return summary

    @property
    def missing_native(self) -> tuple[str, ...]:
        """What of native context management the first model's endpoint was found not to have."""
        return tuple(getattr(self._models[0], "missing_native", ()))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None if self._is_refused() else await self._models[0].count_tokens(request)

    async def window_tokens(self) -> int | None:
        return None if self._is_refused() else await self._models[0].window_tokens()

    async def aclose(self) -> None:
        for model in self._models:
            await model.aclose()

    async def _try_model(
        self, model: LanguageModel, request: ModelRequest, shown: _Shown, ends_at: float
    ) -> ModelResponse:
        async def ask() -> ModelResponse:
            shown.begin()
            return await model.respond(request, on_text=shown.on_text)

        return await self._persist(ask, model.name, ends_at)

    async def _persist(self, ask: Callable[[], Awaitable[T]], model: str, ends_at: float) -> T:
        failures = 0
        while True:
            try:
                return await ask()
            except ModelUnavailable as exc:
                failures += 1
                delay = self._policy.delay_seconds(failures, exc, self._random())
                if delay is None or self._clock.monotonic() + delay >= ends_at:
                    raise
                log.info(
                    "The model failed, trying again",
                    extra={
                        "model": model,
                        "reason": type(exc).__name__,
                        "delay_seconds": round(delay, 2),
                        "request_id": exc.request_id,
                    },
                )
                await self._clock.sleep(delay)

    def _is_refused(self) -> bool:
        refused = self._refused.get(_CHAT)
        return refused is not None and self._clock.monotonic() < refused.until

    async def _until_allowed(self, asker: _Asker) -> None:
        """One attempt per pause: whoever comes first after it, on behalf of all.

        Whoever comes in its last seconds waits for its end. What a conversation is refused, a side
        task would be too. The other way round says nothing: the key may be good for the chat's
        model and not for the one that summarises.

        Raises:
            ModelAuthError: the key was refused, and it is not time yet to try it again.
        """
        for who in dict.fromkeys((_CHAT, asker)):
            while (refused := self._refused.get(who)) is not None:
                now = self._clock.monotonic()
                left = refused.until - now
                if left <= 0:
                    refused.asked_at = now
                    refused.until = now + self._policy.auth_pause_seconds
                    break
                if left > self._policy.probe_seconds:
                    raise ModelAuthError(refused.error)
                await self._clock.sleep(left)

    def _key_worked(self, asker: _Asker) -> None:
        for who in (_CHAT, asker):
            self._refused.pop(who, None)

    def _refusal(self, error: ModelAuthError) -> _Refused:
        now = self._clock.monotonic()
        return _Refused(str(error), now, now + self._policy.auth_pause_seconds)

    @contextmanager
    def _watched(self, model: str) -> Iterator[None]:
        """What comes of a request is known from here on."""
        try:
            yield
        except ModelError as exc:
            self._book.failed(model, exc)
            raise
        self._book.answered(model)


class _Shown:
    """Knows whether text of a failed attempt was shown, and takes it back."""

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        self._on_text = on_text
        self._dirty = False

    def begin(self) -> None:
        """An attempt begins."""
        if self._dirty and self._on_text is not None:
            self._on_text("")
        self._dirty = False

    def on_text(self, delta: str) -> None:
        if self._on_text is not None:
            self._dirty = delta != ""
            self._on_text(delta)
