"""Owns `ctx.llm`: how a plugin asks the configured side model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.auxiliary_client import call_llm


@dataclass(frozen=True, slots=True)
class Completion:
    """What `PluginLlm.complete` gives."""

    text: str


class PluginLlm:
    """``ctx.llm``: the configured side model, for the plugin's own questions."""

    def __init__(self, task: str, model: str | None) -> None:
        self._task = task
        self._model = model

    def complete(
        self,
        messages: str | list[dict[str, Any]],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        **ignored: Any,
    ) -> Completion:
        """Ask and wait: on the plugin's threads only.

        Raises:
            ModelError: as `agent.auxiliary_client.call_llm`.
        """
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        answer = call_llm(
            self._task,
            messages=asked,
            model=model or self._model,
            max_tokens=max_tokens,
            timeout=timeout,
        )
        return Completion(str(answer.choices[0].message.content or ""))
