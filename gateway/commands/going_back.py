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
    whole = await host.lineages.uncompressed(conversation.tip_session_id)
    loaded = await host.sessions.load(conversation.tip_session_id) if whole else None
    listed = {row.root_id for row in loaded.rows} if loaded else set()
    hidden = any(is_real_user(r.message, r.kind) and r.root_id not in listed for r in whole)

    def words(undone: Undone) -> OutboxDraft:
        limit = _limit(undone, can_uncompress=bool(whole), hidden=hidden)
        return answer_to(call.record, _told(undone, turns, limit), "command")

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


def _limit(undone: Undone, *, can_uncompress: bool, hidden: bool) -> str:
    """What lies further back. ``hidden``: messages that /uncompress would bring back."""
    if undone.behind_summary:
        return lineage_text.BEHIND_THE_SUMMARY if can_uncompress else lineage_text.ONLY_A_SUMMARY
    # Engines of others may leave messages out and put no summary in their place.
    return lineage_text.LEFT_OUT if hidden else lineage_text.NOTHING_FURTHER_BACK


def _told(undone: Undone, asked: int, limit: str) -> str:
    said = [
        text_of(row.message["content"])
        for row in undone.removed
        if is_real_user(row.message, row.kind)
    ]
    if not said:
        nothing = lineage_text.NOTHING_TO_TAKE_BACK
        return nothing if limit == lineage_text.NOTHING_FURTHER_BACK else f"{nothing} {limit}"
    # What was only the rest of a turn is gone; its beginning is still known further back.
    in_part = undone.rest or undone.turns < asked
    return lineage_text.taken_back(said, limit if in_part else "")
