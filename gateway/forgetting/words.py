"""Owns the words about being forgotten (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from agent.counting import counted
from agent.forgetting import Answer, Holdings, PluginAnswer
from gateway.backups.shelf import Backup

BUTTON = "Erase it all"
NOTHING = "I hold nothing of you: no messages, no notes, no files."
WRONG = (
    "That code is not valid, or not any more (it lasts 10 minutes, and only for whoever asked). "
    "Send /forget me to begin again."
)
USAGE = "Send /forget me to have everything erased that I hold of you."
NOT_HERE = "Nobody can be forgotten here."
SHOWN_BACKUPS = 5


def question(
    held: Holdings,
    backups: Sequence[Backup],
    plugin_files: Sequence[str],
    code: str,
    zone: tzinfo,
    able: Sequence[str] = (),
) -> str:
    """What will go, what stays, and how to go on."""
    goes = [
        f"{counted(held.messages, 'message')}: yours, and what I said and did for you",
        f"{counted(held.conversations, 'conversation')} of your own, with summaries and titles"
        if held.conversations
        else "",
        f"your part in {counted(held.shared, 'conversation')} with others, and every summary made "
        "there since"
        if held.shared
        else "",
        ", ".join(
            counted(number, what)
            for number, what in (
                (held.notes, "note"), (held.files, "file"), (held.jobs, "reminder"),
            )
            if number
        ),
        "your workspace folder, and anything still on its way to you",
        f"what {_together(able)} {'keeps' if len(able) == 1 else 'keep'} of these conversations"
        if able
        else "",
    ]  # fmt: skip
    stays = [
        "what others said, also where they quote you",
        "what it cost, in numbers, and that you may talk to me",
        "the messages that you see in this app: delete those here yourself",
    ]
    return "\n".join(
        [
            "This erases what I hold of you, and it can not be undone.",
            "",
            "It goes:",
            *_listed(goes),
            "",
            "It stays:",
            *_listed(stays),
            *_copies(backups, plugin_files, zone),
            "",
            f"To go ahead, send /forget me yes-{code} within 10 minutes.",
        ]
    )


def _copies(backups: Sequence[Backup], plugin_files: Sequence[str], zone: tzinfo) -> list[str]:
    lines = []
    if backups:
        lines += ["", "These backups still hold it, until the operator deletes them:"]
        lines += _listed([_backup(backup, zone) for backup in backups[:SHOWN_BACKUPS]])
        if len(backups) > SHOWN_BACKUPS:
            lines.append(f"- and {len(backups) - SHOWN_BACKUPS} older ones")
    if plugin_files:
        lines += [
            "",
            "Plugins have these files, in which I can erase nothing. The operator can:",
        ]
        lines += _listed([", ".join(plugin_files)])
    return lines


def _backup(backup: Backup, zone: tzinfo) -> str:
    made = datetime.fromtimestamp(backup.made_at, UTC).astimezone(zone)
    return f"{backup.path.name} ({made:%Y-%m-%d %H:%M})"


def done(
    erased: Holdings,
    backups: Sequence[Backup],
    plugin_files: Sequence[str],
    zone: tzinfo,
    plugins: Sequence[PluginAnswer] = (),
    *,
    rewritten: bool,
) -> str:
    """It is gone."""
    what = f"{counted(erased.messages, 'message')} in {_places(erased)}"
    lines = [f"Done. I have erased {what}, and all that hung on them."]
    if not rewritten:
        lines.append(
            "The database file could not be written anew at this moment, so unused parts of it may "
            "hold traces until the operator's next upkeep."
        )
    lines += [_said(each) for each in plugins]
    lines += _copies(backups, plugin_files, zone)
    lines += ["", "Messages in this app are yours to delete. If you write to me, we begin anew."]
    return "\n".join(lines)


def _said(each: PluginAnswer) -> str:
    match each.answer:
        case Answer.ERASED:
            return f"{each.name} has erased what it kept, too."
        case Answer.KEEPS:
            return f"{each.name} may keep things of its own that I can not erase: ask there."
        case Answer.FAILED:
            return (
                f"{each.name} could not erase what it keeps. Please ask the operator to look at the"
                " log and to forget you once more."
            )


def erased_by(plugins: Sequence[PluginAnswer]) -> list[str]:
    """Names of those that have nothing left."""
    return [each.name for each in plugins if each.answer is Answer.ERASED]


def files_left(plugin_files: Sequence[str], done: Sequence[str]) -> list[str]:
    """Without files that are called after a plugin that erases by itself (``lossless.db-wal``)."""

    def is_theirs(path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(re.fullmatch(rf"{re.escape(each)}([^a-z0-9_-].*)?", name) for each in done)

    return [path for path in plugin_files if not is_theirs(path)]


def _together(names: Sequence[str]) -> str:
    return " and ".join(names)


def _places(erased: Holdings) -> str:
    return counted(erased.conversations + erased.shared, "conversation")


def _listed(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines if line]
