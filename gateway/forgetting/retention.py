"""Owns deletion by age: what has been silent for long goes, in small steps, at night."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.counting import counted
from agent.forgetting import Answer, Cleared, Forgetting, PluginAnswer
from agent.jobs.nouns import Schedule
from agent.ports import Clock
from gateway.config.models import Config
from gateway.forgetting.leavings import Leavings, Others
from gateway.jobs.house import HouseJob, HouseMaker

log = logging.getLogger(__name__)

NAME = "retention"
AT = "40 3 * * *"
"""By the clock on the wall: in front of what writes the file anew."""
AT_ONCE = 5
"""Conversations in one transaction."""
TOLD_AT_ONCE = 500
"""Conversations that plugins are told of in one call."""
PAUSE_SECONDS = 0.05
"""Between two of them, for everybody else."""
DAY_SECONDS = 86_400.0


def retention(store: Forgetting, clock: Clock, leavings: Leavings) -> HouseMaker:
    """Once a night, if anything is not kept for ever."""

    def make(config: Config, zone: str) -> HouseJob | None:
        days = config.sessions.retention_days
        if days is None:
            return None

        async def run() -> str:
            return await clear(store, clock, clock.now() - days * DAY_SECONDS, leavings)

        return HouseJob(NAME, Schedule("cron", AT, zone), run)

    return make


async def clear(store: Forgetting, clock: Clock, before: float, leavings: Leavings) -> str:
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
    answers = await tell_plugins(store, leavings.plugins)
    names = await store.clear_files(before)
    files = leavings.files
    removed = await files.remove(names) if files is not None and names else 0
    log.info(
        "retention",
        extra={
            "conversations": total.conversations,
            "messages": total.messages,
            "text_bytes": total.text_bytes,
            "files": removed,
            "plugins": {each.name: str(each.answer) for each in answers},
        },
    )
    return (
        f"{counted(total.conversations, 'conversation')}, {counted(total.messages, 'message')}"
        f" ({counted(total.text_bytes, 'byte')} of text), {counted(removed, 'file')}"
        f"{_said(answers)}"
    )


async def tell_plugins(store: Forgetting, plugins: Others | None) -> Sequence[PluginAnswer]:
    """Have plugins erase what retention has taken away; what each said, the worst of it.

    What is told is struck out once none has failed: after a crash, or a failure, they are told
    again, at the next start or in the next night.
    """
    worst: dict[str, Answer] = {}
    while gone := await store.cleared(limit=TOLD_AT_ONCE):
        answers = await plugins.forget_sessions(gone) if plugins is not None else ()
        for each in answers:
            before = worst.get(each.name, each.answer)
            worst[each.name] = max(before, each.answer, key=_GRAVITY.index)
        if any(each.answer is Answer.FAILED for each in answers):
            break
        await store.strike_cleared([one.id for one in gone])
    for name, answer in worst.items():
        if answer is not Answer.ERASED:
            log.warning(_WARNINGS[answer], extra={"plugin": name})
    return [PluginAnswer(name, answer) for name, answer in worst.items()]


_GRAVITY = (Answer.ERASED, Answer.KEEPS, Answer.FAILED)
_WARNINGS = {
    Answer.KEEPS: "a plugin keeps what retention has deleted: it has no way to erase it",
    Answer.FAILED: "a plugin did not erase what retention has deleted: it is asked again",
}


def _said(answers: Sequence[PluginAnswer]) -> str:
    words = {
        Answer.ERASED: "has erased what it kept of them",
        Answer.KEEPS: "can not erase what it keeps of them",
        Answer.FAILED: "could not erase what it keeps of them now, and is asked again",
    }
    return "".join(f"; {each.name} {words[each.answer]}" for each in answers)
