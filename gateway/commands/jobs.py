"""Owns /remind and /jobs: what happens here at set times, made and taken back by people."""

from __future__ import annotations

from agent.jobs.nouns import Action, Job, JobPlace, JobRefused, Schedule, place_in
from agent.jobs.words.bringing_in import bring_in_words
from agent.mail import Button, InboxRecord
from gateway.commands import jobs_text as texts
from gateway.commands.contract import Call, CommandHost, Said
from gateway.intake.commands import whole_argument
from gateway.jobs.desk import JobDesk

BELL = "⏰"
_NAME_CHARS = 40
_LATE_SECONDS = 120.0
_LATEST_SECONDS = 8 * 86_400.0
"""No platform keeps a message for longer: that is a wrong clock."""
_VERBS = {
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "delete": "cancel",
    "remove": "cancel",
    "stop": "cancel",
}


async def remind(host: CommandHost, call: Call) -> str | Said:
    """Say a text at a time.

    Times count from when it was said: given again after a crash the command means the same, and
    finds what it has made already.
    """
    desk = host.jobs
    if desk is None:
        return texts.NOT_TO_BE_HAD
    argument = whole_argument(call.record.text)
    if not argument:
        return texts.REMIND_USAGE
    await bring_in_words()
    from agent.jobs.words.nouns import TimeUnclear  # noqa: PLC0415 - brought in just now
    from agent.jobs.words.reading import split  # noqa: PLC0415

    try:
        found = split(argument, said_at(call.record), desk.zone)
    except TimeUnclear as unclear:
        return str(unclear)
    place = place_in(call.record)
    action = Action("text", f"{BELL} {_called(call)}{found.text}")
    schedule = found.meant.schedule
    job = await _made_already(desk, place, schedule, action, call.record.received_at)
    if job is None:
        try:
            job = await desk.add(place, schedule, action, name=found.text)
        except JobRefused as refused:
            return texts.refused(str(refused))
    text = texts.made(job, desk.now(), found.meant.remark)
    return Said(text, (Button("Cancel", f"/jobs cancel {job.number}"),))


async def jobs(host: CommandHost, call: Call) -> str | Said:
    """List what is set here; pause, resume or cancel one."""
    desk = host.jobs
    if desk is None:
        return texts.NOT_TO_BE_HAD
    place = place_in(call.record)
    words = call.argument.lower().replace("#", " ").split()
    match words:
        case []:
            return texts.listing(await desk.of(place), 1, desk.now())
        case [page] if _number(page):
            return texts.listing(await desk.of(place), _number(page), desk.now())
        case [verb, number] if verb in _VERBS and _number(number):
            return await _change(desk, call, place, _VERBS[verb], _number(number))
        case _:
            return texts.JOBS_USAGE


async def _change(desk: JobDesk, call: Call, place: JobPlace, verb: str, number: int) -> Said:
    """Where several people talk, a job is whoever has set it's, and the admins'."""
    views = {view.job.number: view.job for view in await desk.of(place)}
    job = views.get(number)
    if job and call.shared and not call.admin and job.place.owner != call.record.owner:
        return Said(texts.NOT_YOURS, aside=True)
    try:
        match verb:
            case "pause":
                return Said(texts.paused(await desk.pause(place, number)))
            case "resume":
                return Said(texts.resumed(await desk.resume(place, number), desk.now()))
            case _:
                return Said(texts.cancelled(await desk.cancel(place, number)), decides=True)
    except JobRefused as refused:
        return Said(texts.refused(str(refused)), decides=job is None, aside=True)


def said_at(record: InboxRecord) -> float:
    """When somebody has said it: of what came late, by the platform's clock.

    "Tomorrow" of yesterday evening is today. What came at once goes by our clock, as jobs do.
    """
    late = record.received_at - record.sent_at
    return record.sent_at if _LATE_SECONDS < late < _LATEST_SECONDS else record.received_at


async def _made_already(
    desk: JobDesk, place: JobPlace, schedule: Schedule, action: Action, since: float
) -> Job | None:
    """What this very message has made before it was answered."""
    for view in await desk.of(place):
        job = view.job
        same = job.schedule == schedule and job.action == action
        if same and job.created_at >= since and job.place.owner == place.owner:
            return job
    return None


def _called(call: Call) -> str:
    """Among others a reminder says for whom it is."""
    name = " ".join(str(call.record.payload.get("sender_name") or "").split())
    return "" if call.direct or not name else f"{name[:_NAME_CHARS]}: "


def _number(word: str) -> int:
    """0: it is none."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else 0
