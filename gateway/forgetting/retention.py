"""Owns deletion by age: what has been silent for long goes, in small steps, at night."""

from __future__ import annotations

import logging

from agent.forgetting import Cleared, Forgetting
from agent.jobs.nouns import Schedule
from agent.ports import Clock
from gateway.config.models import Config
from gateway.forgetting.desk import Files
from gateway.jobs.house import HouseJob, HouseMaker

log = logging.getLogger(__name__)

NAME = "retention"
AT = "40 3 * * *"
"""By the clock on the wall: in front of what writes the file anew."""
AT_ONCE = 5
"""Conversations in one transaction."""
PAUSE_SECONDS = 0.05
"""Between two of them, for everybody else."""
DAY_SECONDS = 86_400.0


def retention(store: Forgetting, clock: Clock, files: Files | None = None) -> HouseMaker:
    """Once a night, if anything is not kept for ever."""

    def make(config: Config, zone: str) -> HouseJob | None:
        days = config.sessions.retention_days
        if days is None:
            return None

        async def run() -> str:
            return await clear(store, clock, clock.now() - days * DAY_SECONDS, files)

        return HouseJob(NAME, Schedule("cron", AT, zone), run)

    return make


async def clear(store: Forgetting, clock: Clock, before: float, files: Files | None = None) -> str:
    """Delete what has been silent since before this time; what that was, in numbers."""
    total = Cleared()
    while True:
        step = await store.clear_silent(before, conversations=AT_ONCE)
        total = Cleared(
            total.conversations + step.conversations,
            total.messages + step.messages,
            total.text_bytes + step.text_bytes,
        )
        if not step.more:
            break
        await clock.sleep(PAUSE_SECONDS)
    names = await store.clear_files(before)
    removed = await files.remove(names) if files is not None and names else 0
    log.info(
        "retention",
        extra={
            "conversations": total.conversations,
            "messages": total.messages,
            "text_bytes": total.text_bytes,
            "files": removed,
        },
    )
    return (
        f"{total.conversations} conversations, {total.messages} messages"
        f" ({total.text_bytes} bytes of text), {removed} files"
    )
