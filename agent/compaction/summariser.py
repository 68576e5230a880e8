"""Owns the summary calls: parts, one retry of a cut answer, the main model as second try."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agent.compaction.summary import (
    Readable,
    SummaryMaterial,
    SummaryRejected,
    in_parts,
    read_answer,
    system_text,
    user_text,
)
from agent.errors import ContextOverflow, ModelError
from agent.messages import Message
from agent.model_metadata import estimate_tokens_rough
from agent.ports import ModelResponse, SideModel

log = logging.getLogger(__name__)

CALL_TIMEOUT_SECONDS = 120.0
MIN_OUTPUT_TOKENS = 1024
INPUT_SHARE = 0.97
"""Of what the window leaves, this much is filled. Where the estimate was too low the provider says
so at once, and it is tried again with less: cheaper than always paying for one more part."""
OVERFLOW_RETRIES = 2
_FRAME_TOKENS = 200


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary's body, and how many calls it took."""

    body: str
    calls: int


class Summariser:
    """Makes one summary, on whatever worker thread it is called. Keeps nothing between calls."""

    def __init__(
        self,
        side_model: SideModel,
        *,
        models: Sequence[str | None],
        window_tokens: int,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> None:
        """Take the models to try, in order.

        Args:
            side_model: Who is asked.
            models: Names to try in order; None is the side model's own choice.
            window_tokens: Of the smallest of them.
            timeout_seconds: For each call.
        """
        self._side_model = side_model
        self._models = models
        self._window_tokens = window_tokens
        self._timeout_seconds = timeout_seconds

    def summarise(self, items: Sequence[Readable], material: SummaryMaterial) -> Summary:
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
                    extra={"summary_model": model or "default", "error": type(exc).__name__},
                )
        raise last if last is not None else SummaryRejected("empty")

    def _with_model(
        self, items: Sequence[Readable], material: SummaryMaterial, model: str | None
    ) -> Summary:
        window = self._window_tokens
        for attempt in range(OVERFLOW_RETRIES + 1):
            try:
                return self._in_parts(items, material, model, window)
            except ContextOverflow as exc:
                if attempt == OVERFLOW_RETRIES:
                    raise
                stated = exc.limit_tokens or window
                window = max(512, min(stated, window) // (1 if stated < window else 2))
        raise AssertionError("unreachable")

    def _in_parts(
        self,
        items: Sequence[Readable],
        material: SummaryMaterial,
        model: str | None,
        window_tokens: int,
    ) -> Summary:
        output = self._output_tokens(material.budget_tokens, window_tokens)
        fixed = (
            estimate_tokens_rough(system_text())
            + estimate_tokens_rough(material.previous)
            + estimate_tokens_rough(material.memory)
            + _FRAME_TOKENS
        )
        limit = int((window_tokens - output) * INPUT_SHARE) - fixed
        parts = in_parts(items, limit)
        if len(parts) > 1:  # from the second one on, the summary so far takes room
            parts = in_parts(items, limit - material.budget_tokens)
        body, calls = material.previous, 0
        for transcript in parts:
            body = self._ask(transcript, replace(material, previous=body), model, output)
            calls += 1
        return Summary(body, calls)

    def _output_tokens(self, budget_tokens: int, window_tokens: int) -> int:
        """Room for the answer: generous, because a tight limit cuts summaries off."""
        return max(64, min(max(MIN_OUTPUT_TOKENS, 2 * budget_tokens), window_tokens // 4))

    def _ask(
        self, transcript: str, material: SummaryMaterial, model: str | None, output_tokens: int
    ) -> str:
        prompt = user_text(transcript, material)
        for max_tokens in (output_tokens, output_tokens * 2):
            response = self._side_model.complete(
                system=system_text(),
                prompt=prompt,
                max_tokens=max_tokens,
                timeout_seconds=self._timeout_seconds,
                model=model,
            )
            try:
                return read_answer(response)
            except SummaryRejected as exc:
                if exc.kind not in ("truncated", "thinking_only") or max_tokens != output_tokens:
                    raise
        raise AssertionError("unreachable")


class AuxiliarySideModel:
    """The side model of whoever builds an engine without one: `agent.auxiliary_client.call_llm`."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._connection = {key: value for key, value in connection.items() if value}

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        # imported here: the client builds an SDK, and most engines are given their model
        from agent.auxiliary_client import call_llm  # noqa: PLC0415

        answer = call_llm(
            "compression",
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": prompt},
            ],
            max_tokens=max_tokens,
            timeout=timeout_seconds,
            model=model,
            **self._connection,
        )
        return _as_response(answer, model or "")


_FINISH = {
    None: "end_turn",
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def _as_response(answer: Any, model: str) -> ModelResponse:
    choice = next(iter(_choices(answer)), None)
    message: Any = getattr(choice, "message", None)
    content = getattr(message, "content", None)
    reason = getattr(choice, "finish_reason", None)
    return ModelResponse(
        message=cast(Message, {"role": "assistant", "content": content}),
        stop_reason=_FINISH.get(reason, str(reason)),
        usage=None,
        model=model,
    )


def _choices(answer: Any) -> Iterator[Any]:
    yield from getattr(answer, "choices", None) or ()
