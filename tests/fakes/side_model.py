"""Owns the scripted side model: answers in order (or one for ever), and what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from agent.messages import Message
from agent.ports import ModelResponse


@dataclass(frozen=True, slots=True)
class Asked:
    """One call, as it came in."""

    system: str
    prompt: str
    max_tokens: int
    timeout_seconds: float
    model: str | None


Answer = str | Exception | ModelResponse | Callable[[Asked], str]


class ScriptedSideModel:
    """A side model (`agent.ports.SideModel`). The last answer is given again and again."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers) or ["## Goal\nthe summary"]
        self.asked: list[Asked] = []

    def heal(self, answer: Answer) -> None:
        """From now on, this is the answer."""
        self._answers = [answer]

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        asked = Asked(system, prompt, max_tokens, timeout_seconds, model)
        self.asked.append(asked)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ModelResponse):
            return answer
        return summary_response(answer if isinstance(answer, str) else answer(asked))


def summary_response(
    text: str | None, stop_reason: str = "end_turn", **fields: object
) -> ModelResponse:
    """A complete answer with this text; ``fields`` go into its message."""
    message = cast(Message, {"role": "assistant", "content": text, **fields})
    return ModelResponse(message=message, stop_reason=stop_reason, usage=None, model="side")
