"""Owns the commands about the context: /status, /compress."""

from __future__ import annotations

from agent.ports import CompactionDecision
from agent.sessions import Session
from gateway import texts
from gateway.commands.contract import Call, CommandHost, counted, tip


async def compress(host: CommandHost, call: Call) -> str:
    """Compress now, whatever the triggers say."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    notices: list[str] = []
    result = await host.compactors.get(loaded.session.conversation_id).compact(
        loaded, "manual", focus=call.argument or None, notify=notices.append
    )
    if result.outcome == "compressed":
        answer = texts.compressed(result.tokens_before, result.tokens_after)
    else:
        answer = texts.not_compressed(result.reason or "there is nothing to compress yet")
    extra = [notice for notice in notices if notice and notice not in answer]
    return "\n".join([answer, *(extra if result.outcome == "compressed" else [])])


async def status(host: CommandHost, call: Call) -> str:
    """Model, window, trigger, context size, session, platforms."""
    lines: list[str] = []
    loaded = await tip(host, call)
    if loaded is None:
        lines.append(f"Model: {host.prefix_for(call.record.address.platform).model}")
        lines.append(f"Window: {_tokens(host.status.window_tokens())}")
        lines.append(texts.NO_CONVERSATION)
    else:
        session = loaded.session
        due = host.compactors.get(session.conversation_id).due(loaded)
        lines += [
            f"Model: {session.prefix.model}",
            f"Window: {_tokens(host.status.window_tokens())}, "
            f"compression from {_tokens(due.threshold_tokens)}",
            f"Context: {_context(session, due)}",
            f"Session: {session.id}, {counted(session.message_count, 'message')}, "
            f"{counted(session.compression.count, 'compression')} so far",
        ]
    busy = "working" if host.busy(call.key) else "idle"
    waiting = counted(host.waiting(call.key), "message")
    lines.append(f"This conversation: {busy}, {waiting} waiting")
    for name, (state, reason) in sorted(host.status.platforms().items()):
        lines.append(f"{name}: {state}{f' ({reason})' if reason else ''}")
    lines.extend(host.status.remarks())
    return "\n".join(lines)


def _tokens(count: int | None) -> str:
    return "not known yet" if not count else f"{count:,} tokens"


def _context(session: Session, due: CompactionDecision) -> str:
    if session.compression.awaiting_usage:
        return "not known until the next answer (it was just compressed)"
    source = "measured" if session.anchor is not None else "estimated"
    return f"{due.tokens:,} tokens ({source})"
