"""Owns the numbers of turns that run, and of the last ones: for `posthouse top`, nobody's words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.ports import Clock, Usage
from gateway.logs.work import work_at_hand

RECENT = 20


@dataclass(slots=True)
class RunningTurn:
    """One that runs; the numbers grow."""

    turn_id: str
    conversation_id: str
    key: str
    platform: str
    began_at: float
    """By the monotonic clock."""
    requests: int = 0
    prompt_tokens: int = 0
    """Of the last request."""
    output_tokens: int = 0
    """Of all."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """One that is over."""

    ended_at: float
    """Unix seconds."""
    platform: str
    conversation_id: str
    outcome: str
    seconds: float
    requests: int
    tool_calls: int
    compactions: int
    prompt_tokens: int
    cache_read_tokens: int
    output_tokens: int


@dataclass(slots=True)
class TurnBoard:
    """Told by turns and by the meter in front of the model, on the event loop."""

    clock: Clock
    _running: dict[str, RunningTurn] = field(default_factory=dict)
    _recent: deque[PastTurn] = field(default_factory=lambda: deque(maxlen=RECENT))

    @contextmanager
    def shown(self, turn_id: str, conversation_id: str, key: str, platform: str) -> Iterator[None]:
        """While the block runs, so does this turn."""
        began = self.clock.monotonic()
        self._running[turn_id] = RunningTurn(turn_id, conversation_id, key, platform, began)
        try:
            yield
        finally:
            self._running.pop(turn_id, None)

    def asked(self, usage: Usage) -> None:
        """A model has answered to whatever is being worked on here and now."""
        turn = self._running.get(work_at_hand().get("turn_id", ""))
        if turn is not None:
            turn.requests += 1
            turn.prompt_tokens = usage.prompt_tokens
            turn.output_tokens += usage.output_tokens

    def over(self, turn: PastTurn) -> None:
        """A turn is over and stored."""
        self._recent.append(turn)

    def running(self) -> list[RunningTurn]:
        """Those that run, the oldest first."""
        return list(self._running.values())

    def recent(self) -> list[PastTurn]:
        """The last ones, newest first."""
        return list(reversed(self._recent))
