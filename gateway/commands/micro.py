"""Owns /micro: micro-compaction in one conversation, on, off or as configured."""

from __future__ import annotations

from agent.compaction.micro.progress import (
    OVERRIDE_KEY,
)
from agent.sessions import Session
from gateway import texts
from gateway.commands.contract import Call, CommandHost
from gateway.commands.lineage_text import MOVED_ON
from gateway.commands.micro_text import status_text
from gateway.commands.wording import shown

MAX_TRIES = 3
"""How often a tip is followed that somebody else moved meanwhile."""


async def micro(host: CommandHost, call: Call) -> str:
    """Say how it is, or set it for this conversation and all that continues it."""
    asked = call.argument.strip().lower() or "status"
    if asked not in ("on", "off", "inherit", "status"):
        unknown = texts.unknown_setting(shown(call.argument), ("on", "off", "inherit"))
        return f"{unknown} {texts.MICRO_USAGE}"
    session = await _tip(host, call)
    if session is None:
        return texts.NO_CONVERSATION
    if asked == "status":
        return status_text(session, host.status.micro())
    if call.shared and not call.admin:
        return texts.ADMIN_ONLY
    if host.busy(call.key) or host.waiting(call.key):
        return texts.STILL_RUNNING
    value = None if asked == "inherit" else asked
    for _ in range(MAX_TRIES):
        if await host.sessions.set_option(session.id, OVERRIDE_KEY, value):
            break
        session = await host.sessions.tip(session.id)
    else:
        return MOVED_ON
    return status_text(await host.sessions.session(session.id), host.status.micro())


async def _tip(host: CommandHost, call: Call) -> Session | None:
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return None
    return await host.sessions.session(conversation.tip_session_id)
