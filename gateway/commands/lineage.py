"""Owns the commands about the sessions behind a conversation: /lineage."""

from __future__ import annotations

from agent.sessions import Session, SessionInfo
from gateway import texts
from gateway.commands.contract import Call, CommandHost, counted

LINEAGE_LINES = 20


async def lineage(host: CommandHost, call: Call) -> str:
    """The chain of sessions, root first, with sizes."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return texts.NO_CONVERSATION
    chain = await host.sessions.lineage(conversation.tip_session_id)
    infos = {i.id: i for i in await host.archive.session_infos([s.id for s in chain])}
    lines = [_line(n, s, infos.get(s.id)) for n, s in enumerate(chain, 1)]
    if len(lines) > LINEAGE_LINES:
        left_out = len(lines) - LINEAGE_LINES
        lines = [lines[0], f"… {left_out:,} more …", *lines[left_out + 1 :]]
    what = counted(len(chain), "session")
    return "\n".join([f"This conversation has {what}, oldest first:", *lines])


def _line(number: int, session: Session, info: SessionInfo | None) -> str:
    size = counted(session.message_count, "message")
    if info is not None:
        size += f", about {info.tokens:,} tokens"
    end = "now" if session.ended_at is None else f"ended by {session.end_reason or 'a crash'}"
    return f"{number}. {session.id}: {size}, {end}"
