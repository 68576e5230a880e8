"""Owns the meter in front of the model: every request is counted, whoever asks for whatever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from agent.errors import CompactionRefused, ModelError
from agent.llm.native import NOT_KNOWN
from agent.ports import (
    Clock,
    CompactingModel,
    LanguageModel,
    ModelRequest,
    ModelResponse,
    NativeSummary,
    Usage,
)
from gateway.monitoring.metrics import Metrics


class MeteredModel:
    """Another `agent.ports.LanguageModel`, and what it takes."""

    def __init__(
        self,
        model: LanguageModel,
        metrics: Metrics,
        clock: Clock,
        *,
        on_usage: Callable[[Usage], None] = lambda usage: None,
    ) -> None:
        """``on_usage`` is told of each answer, where it was asked for."""
        self._on_usage = on_usage
        self._model = model
        self._metrics = metrics
        self._clock = clock

    @property
    def name(self) -> str:
        return self._model.name

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        started = self._clock.monotonic()
        with self._watched(request.model or self._model.name, request):
            response = await self._model.respond(request, on_text=on_text)
        usage = response.usage or Usage()
        model = usage.model or response.model or self._model.name
        hour = usage.cache_write_tokens if request.cache_ttl == "1h" else 0
        usage = replace(usage, model=model, cache_write_1h_tokens=hour)
        self._metrics.answered(usage, request.purpose, self._clock.monotonic() - started)
        if request.purpose == "turn":
            self._on_usage(usage)
        if response.cleared_tokens:
            self._metrics.cleared.add(model, by=response.cleared_tokens)
        return response

    async def compact(self, request: ModelRequest, *, instructions: str = "") -> NativeSummary:
        """As `agent.ports.CompactingModel`; refused where the model is none."""
        if not isinstance(self._model, CompactingModel):
            raise CompactionRefused("this model has no compaction of its own", code=NOT_KNOWN)
        started = self._clock.monotonic()
        with self._watched(self._model.name, request):
            summary = await self._model.compact(request, instructions=instructions)
        usage = replace(summary.usage or Usage(), model=summary.model or self._model.name)
        self._metrics.answered(usage, request.purpose, self._clock.monotonic() - started)
        return summary

    @contextmanager
    def _watched(self, asked: str, request: ModelRequest) -> Iterator[None]:
        """Count what comes to nothing: refused, broken, or nobody waits for it any more."""
        try:
            yield
        except ModelError as error:
            self._metrics.failed(asked, request.purpose, type(error).__name__)
            raise
        except asyncio.CancelledError:
            self._metrics.failed(asked, request.purpose, "cancelled")
            raise

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self._model.count_tokens(request)

    async def window_tokens(self) -> int | None:
        return await self._model.window_tokens()

    async def aclose(self) -> None:
        await self._model.aclose()
