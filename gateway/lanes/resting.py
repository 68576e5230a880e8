"""Owns conversations at rest: nothing begins in them, and what runs there comes to its end."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from agent.ports import Clock
from gateway.lanes.lanes import SETTLE_SECONDS, Lanes
from gateway.tasks import StopReason, wait_all

OTHERS_SECONDS = 30.0
"""How long what works for somebody else may go on there."""


class Rest:
    """`gateway.forgetting.desk.Stopping` over the lanes."""

    def __init__(self, lanes: Lanes, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock

    def resting(self, keys: Collection[str]) -> AbstractContextManager[None]:
        return self._lanes.resting(keys)

    async def quiet(self, keys: Collection[str], owner: str) -> bool:
        runs = self._lanes.begun_under(keys)
        for run in runs:
            if run.job.items and run.job.items[-1].record.owner == owner:
                run.ask(StopReason.USER)
        await wait_all([run.over for run in runs], self._clock, OTHERS_SECONDS)
        late = [run for run in runs if not run.over.done()]
        for run in late:
            run.ask(StopReason.USER)
        return await wait_all([run.over for run in late], self._clock, SETTLE_SECONDS)
