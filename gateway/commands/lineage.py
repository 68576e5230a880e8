"""Owns the commands about the sessions behind a conversation: /lineage, /uncompress, /branch."""

from __future__ import annotations

from collections.abc import Mapping

from agent.errors import SessionEnded
from agent.lineages import UncompressRequest
from agent.model_metadata import Triggers, estimate_prefix_tokens
from agent.sessions import EndReason, LoadedSession, Session, SessionInfo
from gateway import texts
from gateway.commands import lineage_text
from gateway.commands.contract import Call, CommandHost, counted, tip
from gateway.commands.wording import shown

LINEAGE_LINES = 20
ONE_SESSION = "This conversation has one session:"
HOLD_RATIO = 0.80
"""How much of the window a conversation may fill whose compression was undone."""

_ENDS: Mapping[EndReason, str] = {
    "compression": "ended by compression",
    "switch": "ended by new settings (model, prompt or tools)",
    "uncompress": "ended by /uncompress",
    "reset": "ended by /new",
    "idle": "ended after a long silence",
    "daily": "ended by the daily reset",
}


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
    head = f"This conversation has {what}, oldest first:" if len(chain) > 1 else ONE_SESSION
    if chain[0].link == "branch" and (parent_id := chain[0].parent_session_id) is not None:
        head = f"{await _branched_from(host, parent_id)}\n{head}"
    return "\n".join([head, *lines])


async def _branched_from(host: CommandHost, parent_id: str) -> str:
    parent = await host.sessions.session(parent_id)
    name = f" of “{shown(parent.title)}”" if parent.title else ""
    return (
        f"It is a branch{name}, from session {parent.id}; "
        f"/resume {parent.conversation_id} leads back there."
    )


def _line(number: int, session: Session, info: SessionInfo | None) -> str:
    size = counted(session.message_count, "message")
    if info is not None:
        size += f", about {info.tokens:,} tokens"
    return f"{number}. {session.id}: {size}, {_end(session)}"


def _end(session: Session) -> str:
    if session.ended_at is None:
        return "now"
    return _ENDS[session.end_reason] if session.end_reason else "ended by a crash"


async def uncompress(host: CommandHost, call: Call) -> str:
    """Undo the newest compression, if everything together fits into the window."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    session = loaded.session
    triggers = host.status.triggers()
    limit = hold_limit(triggers)
    if _is_work_of(call, loaded) and await _ended_by(host, session) == "uncompress":
        tokens = estimate_prefix_tokens(session.prefix) + sum(row.tokens for row in loaded.rows)
        return lineage_text.uncompressed(session.message_count, tokens, limit)
    rows = await host.lineages.uncompressed(session.id)
    if not rows:
        return await _nothing_compressed(host, loaded)
    tokens = estimate_prefix_tokens(session.prefix) + sum(row.tokens for row in rows)
    if tokens >= limit:
        return lineage_text.does_not_fit(tokens, limit, triggers.window_tokens)
    result = await host.lineages.uncompress(
        UncompressRequest(
            conversation_id=session.conversation_id,
            tip_id=session.id,
            expected_revision=session.revision,
            covered_row_id=loaded.last_row_id,
            compression=session.compression.changed(
                hold_tokens=limit, awaiting_usage=False, pressure_tier=0.0, pressure_at=0.0
            ),
        )
    )
    if not result.applied:
        return lineage_text.MOVED_ON
    return lineage_text.uncompressed(result.tip.message_count, tokens, limit)


async def _nothing_compressed(host: CommandHost, loaded: LoadedSession) -> str:
    """Why there is nothing to undo: never compressed, undone already, or compressed elsewhere."""
    chain = await host.sessions.lineage(loaded.session.id)
    origin_id = chain[0].parent_session_id if chain[0].link == "branch" else None
    if origin_id is not None and any(row.kind == "summary" for row in loaded.rows):
        origin = await host.sessions.session(origin_id)
        return lineage_text.copied_summary(origin.conversation_id)
    if any(session.end_reason == "uncompress" for session in chain):
        return lineage_text.UNCOMPRESSED_ALREADY
    return lineage_text.NOT_COMPRESSED_YET


def hold_limit(triggers: Triggers) -> int:
    """Below which size an uncompressed conversation is left alone, in tokens of the prompt.

    As every trigger it never lies where the answer would not fit any more.
    """
    window = triggers.window_tokens
    return min(int(HOLD_RATIO * window), window - triggers.max_tokens)


async def branch(host: CommandHost, call: Call) -> str:
    """Go on in a copy; the conversation that it is made from stays as it is."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    session = loaded.session
    if _is_work_of(call, loaded) and session.link == "branch" and session.parent_session_id:
        parent = await host.sessions.session(session.parent_session_id)
        return lineage_text.branched(session.title, parent.conversation_id)
    try:
        fork = await host.lineages.branch(session.id, call.key, call.record.owner)
    except SessionEnded:
        return lineage_text.NOTHING_TO_BRANCH
    return lineage_text.branched(fork.title, session.conversation_id)


def _is_work_of(call: Call, loaded: LoadedSession) -> bool:
    """Was this session made since the command came, of nothing but copies?

    Then a run before this one did the work, and was killed before it could say so.
    """
    return loaded.session.started_at >= call.record.received_at and all(
        row.origin_id is not None for row in loaded.rows
    )


async def _ended_by(host: CommandHost, session: Session) -> EndReason | None:
    """Why the session ended that this one continues."""
    if session.link != "continuation" or session.parent_session_id is None:
        return None
    return (await host.sessions.session(session.parent_session_id)).end_reason
