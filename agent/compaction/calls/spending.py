"""Owns what the calls for one summary took, thrown-away ones included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent.ports import ModelResponse


@dataclass(slots=True)
class Spending:
    """Adds up calls; belongs to one compression."""

    calls: int = 0
    failed_calls: int = 0
    """Those of them whose answer was not used, or never came."""
    unmeasured_calls: int = 0
    """Those that were answered without any usage."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    seconds: float = 0.0
    models: list[str] = field(default_factory=list)
    """Who answered, each once, in order."""

    def answered(self, response: ModelResponse, asked_model: str | None, seconds: float) -> None:
        """A call came back."""
        self.calls += 1
        self.seconds += seconds
        model = response.model or asked_model or ""
        if model and model not in self.models:
            self.models.append(model)
        usage = response.usage
        if usage is None:
            self.unmeasured_calls += 1
            return
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cache_write_tokens += usage.cache_write_tokens

    def lost(self, seconds: float) -> None:
        """A call ended in an error: what it took, nobody says."""
        self.calls += 1
        self.failed_calls += 1
        self.seconds += seconds

    def as_dict(self) -> dict[str, Any]:
        """For the manifest and the log."""
        return {
            "models": list(self.models),
            "calls": self.calls,
            "failed_calls": self.failed_calls,
            "unmeasured_calls": self.unmeasured_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "seconds": round(self.seconds, 3),
        }
