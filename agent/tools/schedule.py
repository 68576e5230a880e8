"""Owns the tool `schedule`: jobs that the model makes for the place it talks in, and their list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from agent.errors import ToolError
from agent.jobs import schedules
from agent.jobs.nouns import (
    Action,
    Job,
    JobPlace,
    JobRefused,
    JobView,
    Origin,
    Schedule,
)
from agent.jobs.words.bringing_in import bring_in_words
from agent.messages import ToolSchema, is_blank
from agent.ports import ToolContext, ToolResult

MIN_PROMPT_SECONDS = 300
"""Between two runs of a job that asks the model: each is paid for, while nobody looks."""
_LOOKED_AHEAD = 24
"""Runs of a cron whose distances are looked at."""
_UNKNOWN = "it is not known who asks here, so no job can be kept"
_BY_ITSELF = (
    "this turn is a job's own: a job makes no other jobs and lets none go on, so that they never "
    "grow by themselves. List, pause and cancel are possible; tell the person what you would set."
)


class Jobs(Protocol):
    """What the tool does to jobs; `JobRefused` says why something can not be."""

    @property
    def zone(self) -> str:
        """Of people who say none."""
        ...

    def now(self) -> float:
        """By the clock that jobs go by."""
        ...

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        """Where a turn was asked for, and by whom."""
        ...

    async def add(
        self, place: JobPlace, schedule: Schedule, action: Action, *, name: str, origin: Origin
    ) -> Job:
        """Make one."""
        ...

    async def of(self, place: JobPlace) -> Sequence[JobView]:
        """Those of a place that are not over, by number."""
        ...

    async def pause(self, place: JobPlace, number: int) -> Job:
        """Let it not run until it is resumed."""
        ...

    async def resume(self, place: JobPlace, number: int) -> Job:
        """Let it run again."""
        ...

    async def cancel(self, place: JobPlace, number: int) -> Job:
        """End it for good."""
        ...


class ScheduleTool:
    """Jobs of this place (`agent.ports.Tool`).

    No approval is asked for: a job only talks, in the chat in which it was made, where everybody
    sees it in /jobs and its owner can end it. Several calls in one answer go one after the other
    (`agent.ports.OrderedTool`): what is set already, or how much is, counts for the next.
    """

    in_order = "jobs"
    schema = ToolSchema(
        name="schedule",
        description=(
            "Set something for later in this chat, or look after what is set: a reminder (a text "
            "that is sent as it stands) or a prompt (a task that you are asked at that time, here, "
            "and answer). Only what the person asked for. The answer names the next run in their "
            "time zone: tell them that. When a time can be read in two ways you get a question: "
            "ask it, do not guess."
        ),
        parameters={
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["create", "list", "pause", "resume", "cancel"],
                },
                "when": {
                    "type": "string",
                    "description": (
                        "For create, in plain words or exactly: tomorrow 9:00, in 20 minutes, "
                        "every weekday at 8, on the 1st of every month at 9, 2026-12-24 18:00, "
                        "cron 0 9 * * 1-5; another zone behind it: 9:00 New York time."
                    ),
                },
                "what": {
                    "type": "string",
                    "description": "For create: the text that is sent, or the prompt.",
                },
                "kind": {
                    "type": "string",
                    "enum": ["text", "prompt"],
                    "description": "For create: text (the default) or prompt.",
                },
                "job": {
                    "type": "integer",
                    "description": "For pause, resume and cancel: its number, as in the list.",
                },
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    )

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = await self._jobs.place_of_turn(context.turn_id)
        if place is None:
            raise ToolError(_UNKNOWN)
        action = str(arguments["action"])
        if action in ("create", "resume") and not context.for_person:
            raise ToolError(_BY_ITSELF)
        try:
            match action:
                case "create":
                    return await self._create(place, arguments)
                case "list":
                    return ToolResult(self._listed(await self._jobs.of(place)))
                case _:
                    return await self._change(action, place, arguments, context)
        except JobRefused as refused:
            raise ToolError(str(refused)) from refused

    async def _create(self, place: JobPlace, arguments: Mapping[str, Any]) -> ToolResult:
        await bring_in_words()
        from agent.jobs.words import telling  # noqa: PLC0415 - brought in just now
        from agent.jobs.words.nouns import TimeUnclear  # noqa: PLC0415
        from agent.jobs.words.reading import read_when  # noqa: PLC0415

        when, what = (str(arguments.get(name) or "").strip() for name in ("when", "what"))
        is_prompt = arguments.get("kind") == "prompt"
        if not when or is_blank(what):
            raise ToolError("to create a job, say when and what")
        now = self._jobs.now()
        try:
            meant = read_when(when, now, self._jobs.zone)
        except TimeUnclear as unclear:
            raise ToolError(str(unclear)) from unclear
        if is_prompt and (seconds := _shortest(meant.schedule, now)) < MIN_PROMPT_SECONDS:
            raise ToolError(
                f"that would ask you every {round(seconds)} seconds: a prompt can come every "
                f"{MIN_PROMPT_SECONDS // 60} minutes at most"
            )
        action = Action("prompt", what) if is_prompt else Action("text", f"⏰ {what}")
        for job in (view.job for view in await self._jobs.of(place)):
            if (job.schedule, job.action) == (meant.schedule, action) and job.state == "active":
                return ToolResult(f"That is set already, as job {job.number}.")
        job = await self._jobs.add(place, meant.schedule, action, name=what, origin="tool")
        told = [f"Job {job.number} is set, {telling.rhythm(job.schedule)}."]
        if job.next_run_at is not None:
            told.append(f"Next run: {telling.next_run(job.next_run_at, job.schedule.zone, now)}.")
            more = telling.following(job.schedule, job.next_run_at, job.anchor_at, now)
            told.append(f"Then {more}." if more else "")
        told.append(meant.remark)
        told.append(f"/jobs cancel {job.number} ends it.")
        return ToolResult(" ".join(filter(None, told)))

    def _listed(self, views: Sequence[JobView]) -> str:
        from agent.jobs.words import telling  # noqa: PLC0415 - as above

        now = self._jobs.now()
        lines = []
        for job in (view.job for view in views):
            when = "paused"
            if job.state == "active" and job.next_run_at is not None:
                when = f"next {telling.next_run(job.next_run_at, job.schedule.zone, now)}"
            kind, rhythm = job.action.kind, telling.rhythm(job.schedule)
            lines.append(f"{job.number}. {kind}, {rhythm}, {when}: {job.name}")
        return "\n".join(lines) or "Nothing is set here."

    async def _change(
        self, action: str, place: JobPlace, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult:
        number = arguments.get("job")
        if not isinstance(number, int):
            raise ToolError(f"to {action} a job, say which: its number, as in the list")
        jobs = {view.job.number: view.job for view in await self._jobs.of(place)}
        job = jobs.get(number)
        if job and not context.direct_chat and job.place.owner != context.owner:
            raise ToolError(
                f"job {number} is somebody else's: they can ask for it themselves, or an admin can "
                f"send /jobs {action} {number}"
            )
        match action:
            case "pause":
                job = await self._jobs.pause(place, number)
                return ToolResult(f"Job {number} is paused: {job.name}")
            case "resume":
                job = await self._jobs.resume(place, number)
                return ToolResult(f"Job {number} goes on: {job.name}")
            case _:
                job = await self._jobs.cancel(place, number)
                return ToolResult(f"Job {number} is cancelled: {job.name}")


def _shortest(schedule: Schedule, now: float) -> float:
    """The shortest while between two of its next runs, in seconds."""
    runs = schedules.upcoming(schedule, now, _LOOKED_AHEAD, now)
    return min((after - before for before, after in pairwise(runs)), default=1e9)
