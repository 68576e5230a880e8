"""Owns what micro-compaction does behind a turn: in a task of its own, so that nobody waits."""

from __future__ import annotations

import logging

from agent.errors import StoreError
from agent.loop import TurnResult
from agent.ports import Clock, TurnEnd
from gateway.tasks import TaskOwner
from gateway.turns.compactors import CompactorCache

log = logging.getLogger(__name__)


class MicroDesk:
    """Lets the compactor of a conversation do what is due once an answer is handed over.

    A message that comes meanwhile is not held up: what is not stored by then is kept for the next
    chance. Failures are logged; the next turn is another try.
    """

    def __init__(self, compactors: CompactorCache, clock: Clock) -> None:
        self._compactors = compactors
        self._tasks = TaskOwner(clock)
        self._open = True

    def __len__(self) -> int:
        """How many are at work."""
        return len(self._tasks)

    def answered(self, conversation_id: str, result: TurnResult) -> None:
        """A turn has come to its normal end here. Returns at once."""
        if self._open and result.loaded is not None:
            self._tasks.spawn(self._work(conversation_id, result), name=f"micro {conversation_id}")

    def hold(self) -> None:
        """Begin nothing more: the daemon goes down."""
        self._open = False

    async def close(self, seconds: float) -> None:
        """End what runs; what was bought by then is bought again."""
        self.hold()
        await self._tasks.cancel(seconds)

    async def _work(self, conversation_id: str, result: TurnResult) -> None:
        assert result.loaded is not None
        try:
            end = TurnEnd(result.turn_id, result.usage, result.model_calls)
            async with self._compactors.using(conversation_id) as compactor:
                await compactor.after_turn(result.loaded, result.final, end)
        except StoreError:
            log.warning("micro compaction found no store", exc_info=True)
        except Exception:  # the supervised border: it is only a favour to the next turns
            log.exception("micro compaction crashed")
