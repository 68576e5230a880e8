"""Owns the summary calls: parts, one retry of a cut answer, the main model as second try."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.compaction.calls.spending import Spending
from agent.compaction.calls.summary import (
    Readables,
    SummaryMaterial,
    SummaryRejected,
    focus_text,
    in_parts,
    read_answer,
    system_text,
    user_text,
)
from agent.compaction.plan.clip import clip_to_tokens
from agent.errors import ContextOverflow, ModelError, OutputLimitTooHigh, RequestTooLarge
from agent.model_metadata import estimate_tokens_rough
from agent.ports import Clock, ModelResponse, SideModel

log = logging.getLogger(__name__)

CALL_TIMEOUT_SECONDS = 240.0
"""The longest summary, 12,000 tokens, takes 150 s at 80 tokens a second; a connection that falls
silent is given up much sooner, by whoever holds it."""
MIN_OUTPUT_TOKENS = 1024
MAX_OUTPUT_SHARE = 6
"""An answer gets at most this part of the window, and twice as much when it was cut off."""
WORTH_RETRYING = 0.7
"""A cut answer had less than this much of the room that there is: it is asked for again at once."""
INPUT_SHARE = 0.97
"""Of what the window leaves, this much is filled. Where the estimate was too low the provider says
so at once, and it is tried again with less: cheaper than always paying for one more part."""
OVERFLOW_RETRIES = 3
MIN_LOWERED_TOKENS = 64
_FRAME_TOKENS = 200
_MATERIAL_SHARE = 5
"""The summary so far and the memory's text each get at most this part of the window, and what the
user wants to be kept half as much."""


@dataclass(frozen=True, slots=True)
class SummaryModel:
    """A model that may be asked for a summary."""

    name: str | None
    """None: the side model's own choice."""
    window_tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary's body, and how many calls went into it."""

    body: str
    calls: int


@dataclass(frozen=True, slots=True)
class _Room:
    """How a model's window is shared between a request and its answer."""

    window_tokens: int
    output_tokens: int
    widened: bool = False
    """The answer was cut before: it has twice the room from the start."""

    @staticmethod
    def of(window_tokens: int, budget_tokens: int) -> _Room:
        """Room for the answer is generous, because a tight limit cuts summaries off."""
        wanted = max(MIN_OUTPUT_TOKENS, 2 * budget_tokens)
        return _Room(window_tokens, max(64, min(wanted, window_tokens // MAX_OUTPUT_SHARE)))

    def widest_answer(self, prompt: str) -> int:
        """How long an answer to this prompt may get if it has to be asked for again."""
        if self.widened:
            return self.output_tokens
        left = (
            self.window_tokens
            - estimate_tokens_rough(system_text())
            - estimate_tokens_rough(prompt)
        )
        return max(self.output_tokens, min(2 * self.output_tokens, left))


class _Cramped(SummaryRejected):
    """The answer was cut, and a longer one needs a shorter prompt."""


class Summariser:
    """Makes one summary, on whatever worker thread it is called. Keeps nothing between calls."""

    def __init__(
        self,
        side_model: SideModel,
        *,
        models: Sequence[SummaryModel],
        clock: Clock,
        spending: Spending | None = None,
        on_limit: Callable[[SummaryModel, int], None] = lambda model, tokens: None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> None:
        """Take the models to try, in order.

        Args:
            side_model: Who is asked.
            models: To be tried in order, each within its own window.
            clock: Time.
            spending: Where the calls are added up.
            on_limit: Told when a model has named a smaller window.
            timeout_seconds: For each call.
        """
        self._side_model = side_model
        self._models = models
        self._clock = clock
        self._spending = spending if spending is not None else Spending()
        self._on_limit = on_limit
        self._timeout_seconds = timeout_seconds
        self._sent_tokens = 0
        """The newest request with the room for its answer, by estimate."""

    def summarise(self, items: Readables, material: SummaryMaterial) -> Summary:
        """Summarise these messages.

        Raises:
            ModelError: The last model to be tried could not be asked.
            SummaryRejected: It answered, but with nothing usable.
            TimeoutError, ConnectionError, ValueError: From a side model that maps no errors.
        """
        last: Exception | None = None
        for model in self._models:
            try:
                return self._with_model(items, material, model)
            except (ModelError, SummaryRejected, OSError, ValueError) as exc:
                last = exc
                log.warning(
                    "summary failed",
                    extra={"summary_model": model.name or "default", "error": type(exc).__name__},
                )
        raise last if last is not None else SummaryRejected("empty")

    def _with_model(
        self, items: Readables, material: SummaryMaterial, model: SummaryModel
    ) -> Summary:
        room = _Room.of(model.window_tokens, material.budget_tokens)
        overflows = 0
        while True:
            try:
                return self._in_parts(items, material, model.name, room)
            except _Cramped:
                if room.widened:
                    raise
                room = replace(room, output_tokens=2 * room.output_tokens, widened=True)
            except (ContextOverflow, RequestTooLarge) as exc:
                overflows += 1
                if overflows > OVERFLOW_RETRIES:
                    raise
                limit = exc.limit_tokens if isinstance(exc, ContextOverflow) else None
                if limit is not None and limit < room.window_tokens:
                    self._on_limit(model, limit)
                # half of what was sent, unless the limit alone makes it smaller: whatever the
                # estimate took this text for
                sent = min(self._sent_tokens, room.window_tokens)
                window = limit if limit is not None and limit < sent else sent // 2
                room = _Room.of(max(512, window), material.budget_tokens)

    def _in_parts(
        self,
        items: Readables,
        material: SummaryMaterial,
        model: str | None,
        room: _Room,
    ) -> Summary:
        share = room.window_tokens // _MATERIAL_SHARE
        material = replace(
            material,
            previous=clip_to_tokens(material.previous, share),
            memory=clip_to_tokens(material.memory, share),
            focus=clip_to_tokens(focus_text(material.focus), share // 2),
        )
        fixed = (
            estimate_tokens_rough(system_text())
            + estimate_tokens_rough(material.memory)
            + estimate_tokens_rough(material.focus)
            + _FRAME_TOKENS
        )
        limit = int((room.window_tokens - room.output_tokens) * INPUT_SHARE) - fixed
        so_far = estimate_tokens_rough(material.previous)
        # from the second part on, the summary so far takes room
        so_far_later = max(so_far, min(2 * material.budget_tokens, share))
        parts = in_parts(items, limit - so_far, limit_of_many=limit - so_far_later)
        if len(parts) > 1:
            so_far = so_far_later
        body, calls = material.previous, 0
        for transcript in parts:
            previous = clip_to_tokens(body, so_far) if calls else body
            prompt = user_text(transcript, replace(material, previous=previous))
            body = self._ask(prompt, model, room)
            calls += 1
        return Summary(body, calls)

    def _ask(self, prompt: str, model: str | None, room: _Room) -> str:
        """One answer; once more with more room if it was cut, with less if that was too much.

        Raises:
            _Cramped: It was cut, and the request leaves no room for a longer one.
        """
        max_tokens = room.output_tokens
        asked_again = lowered = False
        while True:
            try:
                response = self._complete(prompt, max_tokens, model)
            except OutputLimitTooHigh as exc:
                lower = min(exc.limit_tokens or max_tokens // 2, max_tokens - 1)
                if lowered or asked_again or lower < MIN_LOWERED_TOKENS:
                    raise
                max_tokens = lower
                lowered = True
                continue
            try:
                return read_answer(response, prompt=prompt, max_tokens=max_tokens)
            except SummaryRejected as exc:
                self._spending.failed_calls += 1
                if exc.kind not in ("truncated", "thinking_only") or asked_again or lowered:
                    raise
                ceiling = room.widest_answer(prompt)
                if max_tokens >= WORTH_RETRYING * ceiling:
                    raise _Cramped(exc.kind) from exc
                max_tokens, asked_again = ceiling, True

    def _complete(self, prompt: str, max_tokens: int, model: str | None) -> ModelResponse:
        started = self._clock.monotonic()
        self._sent_tokens = estimate_tokens_rough(system_text() + prompt) + max_tokens
        try:
            response = self._side_model.complete(
                system=system_text(),
                prompt=prompt,
                max_tokens=max_tokens,
                timeout_seconds=self._timeout_seconds,
                model=model,
            )
        except Exception:
            self._spending.lost(self._clock.monotonic() - started)
            raise
        self._spending.answered(response, model, self._clock.monotonic() - started)
        return response
