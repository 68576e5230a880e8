"""Owns the commands about the sessions behind a conversation: /lineage, /uncompress, /branch."""

from __future__ import annotations

from agent.errors import SessionEnded
from agent.lineages import UncompressRequest
from agent.model_metadata import Triggers, estimate_prefix_tokens
from agent.sessions import EndReason, LoadedSession, Session
from agent.titles import given_name
from gateway import texts
from gateway.commands import lineage_text
from gateway.commands.contract import Call, CommandHost, boundary, tip

HOLD_RATIO = 0.80
"""How much of the window a conversation may fill whose compression was undone."""


async def lineage(host: CommandHost, call: Call) -> str:
    """The chain of sessions, root first, with sizes."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return texts.NO_CONVERSATION
    chain = await host.sessions.lineage(conversation.tip_session_id)
    infos = {i.id: i for i in await host.archive.session_infos([s.id for s in chain])}
    origin = None
    if chain[0].link == "branch" and chain[0].parent_session_id is not None:
        origin = await _origin(host, chain[0].parent_session_id)
    return lineage_text.chain_text(chain, infos, origin)


async def _origin(host: CommandHost, session_id: str) -> lineage_text.Origin:
    """The conversation that this session belongs to, as it is called now."""
    session = await host.sessions.session(session_id)
    tip_id = (await host.sessions.tip(session_id)).id
    name = given_name(one.title for one in await host.sessions.lineage(tip_id))
    return lineage_text.Origin(session.conversation_id, session.id, name)


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
        return lineage_text.copied_summary(await _origin(host, origin_id))
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
        origin = await _origin(host, session.parent_session_id)
        return lineage_text.branched(session.title, loaded.rows, origin)
    try:
        fork = await host.lineages.branch(session.id, call.key, call.record.owner)
    except SessionEnded:
        return lineage_text.NOTHING_TO_BRANCH
    old = await host.sessions.conversation(session.conversation_id)
    await host.crossed(boundary("branch", call, old, fork))
    return lineage_text.branched(fork.title, loaded.rows, await _origin(host, session.id))


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
