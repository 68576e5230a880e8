"""Owns the tools `remember` and `forget`: notes that ride in every conversation of a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.errors import ToolError
from agent.memory.desk import NoteDesk
from agent.memory.notes import MAX_NOTE_CHARS, Note, NoteRefused, found, listed
from agent.messages import ToolSchema
from agent.ports import ToolContext, ToolResult

_NOTES = "notes"
_NOBODY = "nothing can be remembered here: it is not known whose it would be"


class RememberTool:
    """Keeps a line (`agent.ports.OrderedTool`: what was forgotten before has made room)."""

    in_order = _NOTES
    schema = ToolSchema(
        name="remember",
        description=(
            "Keep one short fact for all later conversations with this person (in a group: of "
            "this group): a preference, a name, a decision that lasts. Only what somebody asked "
            "you to keep or will clearly want kept; nothing that is true today only, and no "
            "secrets. You see all notes at the beginning of a conversation, so never keep what "
            "is there already: replace it."
        ),
        parameters={
            "type": "object",
            "properties": {
                "text": {
                    "type": "string",
                    "description": f"One plain sentence, at most {MAX_NOTE_CHARS} characters.",
                },
                "replaces": {
                    "type": "string",
                    "description": "The id (n3) of the note that this one takes the place of.",
                },
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    )

    def __init__(self, desk: NoteDesk) -> None:
        self._desk = desk

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = _place(context)
        what = str(arguments.get("replaces") or "").strip()
        replaces = await self._number(context, what) if what else None
        try:
            written = await self._desk.remember(
                place,
                context.owner,
                str(arguments["text"]),
                replaces=replaces,
                conversation_id=context.conversation_id,
            )
        except NoteRefused as refused:
            raise ToolError(str(refused)) from refused
        note = written.note
        if written.known:
            return ToolResult(f"This is note {note.id} already.")
        if written.replaced is not None:
            return ToolResult(f"Note {note.id} is now: {note.text}")
        return ToolResult(f"Kept as note {note.id}: {note.text}")

    async def _number(self, context: ToolContext, what: str) -> int:
        notes = await self._desk.notes(_place(context))
        return _theirs(_one(list(found(notes, what)), notes, what), context).number


class ForgetTool:
    """Takes a note away (`agent.ports.OrderedTool`)."""

    in_order = _NOTES
    schema = ToolSchema(
        name="forget",
        description=(
            "Take one of the notes away for good, when somebody asks for it or it is wrong. "
            "Words that fit several notes take none away: you get the list to choose from."
        ),
        parameters={
            "type": "object",
            "properties": {
                "note": {
                    "type": "string",
                    "description": "Its id (n3), or words that stand in it and in no other.",
                }
            },
            "required": ["note"],
            "additionalProperties": False,
        },
    )

    def __init__(self, desk: NoteDesk) -> None:
        self._desk = desk

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place, what = _place(context), str(arguments["note"])
        notes = await self._desk.notes(place)
        note = _theirs(_one(found(notes, what), notes, what), context)
        if not await self._desk.forget(place, note, conversation_id=context.conversation_id):
            return ToolResult(f"Note {note.id} is gone already.")
        return ToolResult(f"Note {note.id} is gone: {note.text}")


def _place(context: ToolContext) -> str:
    if not context.place:
        raise ToolError(_NOBODY)
    return context.place


def _one(meant: list[Note], notes: Any, what: str) -> Note:
    """The note that is meant; never a guess."""
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise ToolError(f"no note is called or says {what[:80]!r}: {listed(notes)}")
    raise ToolError(f"name one by its id: of notes that say {what[:80]!r} {listed(meant)}")


def _theirs(note: Note, context: ToolContext) -> Note:
    """As for /forget: where several people are, a note is taken away by whoever had it kept."""
    if context.direct_chat or note.owner == context.owner:
        return note
    raise ToolError(
        f"note {note.id} is somebody else's: they can ask for it themselves, or an admin can send "
        f"/forget {note.id}. A new note beside it is possible."
    )
