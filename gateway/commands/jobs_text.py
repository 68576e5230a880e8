"""Owns how reminders and jobs read: made, listed, paused, ended (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.jobs.nouns import Job, JobRun, JobView
from agent.jobs.words import telling

PER_PAGE = 10
REMIND_USAGE = (
    "Tell me when, and what. For example:\n"
    "/remind tomorrow 9:00 call mum\n"
    "/remind in 20 minutes tea\n"
    "/remind every weekday at 8 standup\n"
    "/jobs lists what is set here, and ends it."
)
JOBS_USAGE = (
    "/jobs lists what is set here, /jobs 2 its second page. /jobs pause 3, /jobs resume 3 and "
    "/jobs cancel 3 are for the one with that number."
)
NO_JOBS = "Nothing is set here. /remind tomorrow 9:00 call mum would be a beginning."
NOT_TO_BE_HAD = "I keep no jobs in this place, so I can not remind you here."
NOT_YOURS = (
    "Somebody else has set that one, so it takes them, or an admin of this bot. /jobs lists all."
)
PAST_THE_END = "There is no such page; /jobs shows the first."


def made(job: Job, now: float, remark: str = "") -> str:
    """It is set: what, when, and for what comes again the two runs behind the next."""
    if job.next_run_at is None:
        return over(job)
    when = telling.next_run(job.next_run_at, job.schedule.zone, now)
    rhythm = telling.rhythm(job.schedule)
    if job.schedule.kind == "once":
        lines = [f"Set as job {job.number}: {job.name}", when + "."]
    else:
        more = telling.following(job.schedule, job.next_run_at, job.anchor_at, now)
        lines = [
            f"Set as job {job.number}, {rhythm}: {job.name}",
            f"First {when}; then {more}.",
        ]
    return "\n".join([*lines, *([remark] if remark else [])])


def cancelled(job: Job) -> str:
    """It is gone."""
    return f"Job {job.number} is cancelled: {job.name}"


def paused(job: Job) -> str:
    """It sleeps."""
    return f"Job {job.number} is paused: {job.name}. /jobs resume {job.number} lets it go on."


def resumed(job: Job, now: float) -> str:
    """It goes on."""
    if job.next_run_at is None:
        return over(job)
    when = telling.next_run(job.next_run_at, job.schedule.zone, now)
    return f"Job {job.number} goes on: {job.name}. Next {when}."


def over(job: Job) -> str:
    """Nothing comes of it any more."""
    return f"Job {job.number} is over: {job.name}"


def refused(text: str) -> str:
    """Why not, as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "”")) else ".")


def listing(views: Sequence[JobView], page: int, now: float) -> str:
    """The jobs of a place, ten to a page."""
    if not views:
        return NO_JOBS
    pages = -(-len(views) // PER_PAGE)
    if not 1 <= page <= pages:
        return PAST_THE_END
    shown = views[(page - 1) * PER_PAGE : page * PER_PAGE]
    head = f"Set here ({len(views)}):" if pages == 1 else f"Set here, page {page} of {pages}:"
    tail = f"/jobs {page + 1} shows more. " if page < pages else ""
    tail += "To end one: /jobs cancel and its number; /jobs pause and /jobs resume go the same way."
    return "\n".join([head, *(_entry(view, now) for view in shown), "", tail])


def _entry(view: JobView, now: float) -> str:
    job = view.job
    asks = "asks me: " if job.action.kind == "prompt" else ""
    rhythm = "" if job.schedule.kind == "once" else f" ({telling.rhythm(job.schedule)})"
    last = f"; last {_last(view.last, job.schedule.zone, now)}" if view.last is not None else ""
    # "3." would begin a list, which counts by itself.
    return f"{job.number}: {asks}{job.name}{rhythm}\n↳ {_next(job, now)}{last}"


def _next(job: Job, now: float) -> str:
    if job.state == "paused":
        return f"paused: {job.reason}" if job.reason else "paused"
    if job.next_run_at is None:
        return "over"
    if job.next_run_at <= now:
        return "now"
    return f"next {telling.next_run(job.next_run_at, job.schedule.zone, now)}"


def _last(run: JobRun, zone: str, now: float) -> str:
    at = telling.moment(run.due_at, zone, now, named=False)
    return f"{at}: {how_it_went(run)}"


def how_it_went(run: JobRun) -> str:
    """What became of a run, in words."""
    match run.state:
        case "claimed":
            words = "under way"
        case "done":
            words = "done"
        case "failed":
            words = "failed"
        case "missed":
            words = "missed" if run.count == 1 else f"missed, {run.count:,} times"
    return f"{words} ({run.reason})" if run.reason else words
