"""Owns who hears of a turn that is over and stored: the log, the numbers, and what comes behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.loop import TurnResult
from gateway.turns.companions import Companions
from gateway.turns.settling import Ending, report
from gateway.turns.task import Task


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What follows each turn."""

    companions: Companions
    on_over: Callable[[str], None]
    """Told of each conversation whose turn has ended."""
    on_ended: Callable[[Task, Ending, float], None]
    """Told how each turn ended, and how many seconds it took."""
    on_answered: Callable[[str, TurnResult], None]
    """Told of each that came to its normal end, when its answer is handed over."""

    async def of(self, task: Task, ending: Ending, seconds: float) -> None:
        """Tell them."""
        report(ending, seconds)
        self.on_ended(task, ending, seconds)
        self.on_over(task.ticket.conversation_id)
        if ending.outcome == "done" and ending.result is not None:
            self.on_answered(task.ticket.conversation_id, ending.result)
        await self.companions.over(
            task,
            ending.session_id,
            (ending.text or "") if ending.outcome == "done" else "",
            stopped=ending.outcome == "stopped",
        )
