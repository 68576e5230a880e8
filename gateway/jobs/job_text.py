"""Owns what people read of jobs that run: late ones, and those that stopped running."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from agent.jobs.nouns import Job

LATE_SECONDS = 300.0
"""From here on it is said that a job is late."""
NOT_ALLOWED = "whoever set it up may not use this bot here any more"
NOT_ALLOWED_BY_FILE = "whom it stands for in config.yaml may not use this bot here"
PLATFORM_OFF = "its platform is switched off"
CHAT_FORSAKEN = "its chat has taken nothing of this bot for a day: it is blocked, or gone"
FOR_GOOD = (NOT_ALLOWED, NOT_ALLOWED_BY_FILE, CHAT_FORSAKEN)
"""Reasons that do not pass by themselves: such a job is paused."""
OTHER_BOT = "the bot that it was set with is not the one that runs now"
RIGHTS_UNKNOWN = "it could not be asked whether whoever set it up may still use this bot here"
WAS_DOWN = "I was not running then"
COULD_NOT_ASK = "I could not ask then who may use me here"
BROKEN = "it can not be run; whoever runs this bot finds the reason in its log"


def due_text(job: Job, due_at: float) -> str:
    """When it was due, where it is from."""
    local = datetime.fromtimestamp(due_at, ZoneInfo(job.schedule.zone))
    return f"{local:%a %d %b, %H:%M} ({job.schedule.zone})"


def late(job: Job, due_at: float, why: str = WAS_DOWN) -> str:
    """A text that is sent late says so."""
    return f"(Due {due_text(job, due_at)}; {why}.)\n{job.action.text}"


def paused(job: Job, why: str) -> str:
    """Said where a job was to run that runs no more."""
    return f"Job {job.number} ({job.name}) is paused: {why}. /jobs shows what can be done."
