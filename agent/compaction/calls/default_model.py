"""Owns the side model of whoever builds an engine without one: what `call_llm` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from agent.messages import Message
from agent.ports import ModelResponse, Usage


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
        usage=_usage(getattr(answer, "usage", None)),
        model=str(getattr(answer, "model", "") or model),
    )


def _usage(usage: Any) -> Usage | None:
    prompt = getattr(usage, "prompt_tokens", None)
    output = getattr(usage, "completion_tokens", None)
    if not (isinstance(prompt, int) and isinstance(output, int)) or prompt + output <= 0:
        return None
    return Usage(input_tokens=prompt, output_tokens=output)


def _choices(answer: Any) -> Iterator[Any]:
    yield from getattr(answer, "choices", None) or ()
