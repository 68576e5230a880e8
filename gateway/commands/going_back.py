"""Owns the commands that take back what was said: /undo, /retry."""

from __future__ import annotations

import re

from agent.errors import StaleTurn
from agent.lineages import Answering, Undone
from agent.mail import OutboxDraft
from agent.messages import is_real_user, text_of
from gateway import texts
from gateway.commands import lineage_text
from gateway.commands.contract import (
    Answer,
    AskAgain,
    Call,
    CommandHost,
    Settled,
    boundary,
)
from gateway.intake.records import answer_to


async def undo(host: CommandHost, call: Call) -> Answer:
    """Take back the last messages and all that came of them."""
    turns = _number(call.argument)
    if turns is None:
        return lineage_text.UNDO_USAGE
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return texts.NO_CONVERSATION

    # Read before: the words are made inside the transaction.
    can_uncompress = bool(await host.lineages.uncompressed(conversation.tip_session_id))

    def words(undone: Undone) -> OutboxDraft:
        return answer_to(call.record, _told(undone, turns, can_uncompress), "command")

    try:
        undone = await host.lineages.undo(
            conversation.id, turns, answering=Answering(call.inbox_id, words)
        )
    except StaleTurn:
        return texts.STILL_RUNNING
    if undone.removed:
        await host.crossed(boundary("undo", call, conversation, undone.session))
    return Settled(undone.owed)


async def retry(host: CommandHost, call: Call) -> Answer:
    """Ask the last message again; the turn itself takes back what came of it."""
    host.ask_anew()
    return AskAgain()


def _number(argument: str) -> int | None:
    """How many; None: that is no number."""
    if not argument:
        return 1
    return int(argument) if re.fullmatch(r"0*[1-9][0-9]{0,3}", argument) else None


def _told(undone: Undone, asked: int, can_uncompress: bool) -> str:
    said = [
        text_of(row.message["content"])
        for row in undone.removed
        if is_real_user(row.message, row.kind)
    ]
    limit = lineage_text.NOTHING_FURTHER_BACK
    if undone.behind_summary:
        behind = lineage_text.BEHIND_THE_SUMMARY
        limit = behind if can_uncompress else lineage_text.ONLY_A_SUMMARY
    if not said:
        nothing = lineage_text.NOTHING_TO_TAKE_BACK
        return f"{nothing} {limit}" if undone.behind_summary else nothing
    return lineage_text.taken_back(said, limit if undone.turns < asked else "")
