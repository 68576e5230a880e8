"""Owns the commands about the context: /context, /status, /compress."""

from __future__ import annotations

from dataclasses import replace

from agent.compaction.report import last_compression, read_manifest, verbatim_rows
from agent.composition import fill
from agent.lineages import UsageTotals
from agent.model_metadata import Triggers
from agent.ports import CompactionDecision, CompactionResult
from agent.prices import CacheTtl, price_table
from agent.sessions import LoadedSession, Session
from gateway import texts
from gateway.commands.compression_text import aborted_text, compressed_text, nothing_to_do_text
from gateway.commands.context_text import ContextReport, chat_text, percent
from gateway.commands.contract import Call, CommandHost, counted, tip


async def context(host: CommandHost, call: Call) -> str:
    """What fills the window, what the last compression did, what comes next."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    session = loaded.session
    due = host.compactors.get(session.conversation_id).due(loaded)
    report = ContextReport(
        filling=fill(loaded, _triggers_of(host, due)),
        due=due,
        last=last_compression(await host.sessions.lineage(session.id)),
        usage=await host.lineages.usage_totals(session.conversation_id),
        model=session.prefix.model,
        cache_ttl=host.status.cache_ttl() or "5m",
        prices=price_table(),
        now=call.record.received_at,
        hold_tokens=session.compression.hold_tokens,
    )
    return chat_text(report)


def _triggers_of(host: CommandHost, due: CompactionDecision) -> Triggers:
    """Those in force, with the threshold of the conversation's own engine; 0: it has none."""
    triggers = host.status.triggers()
    threshold = due.threshold_tokens or triggers.window_tokens
    return replace(triggers, threshold_tokens=threshold)


async def compress(host: CommandHost, call: Call) -> str:
    """Compress now, whatever the triggers say."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    notices: list[str] = []
    result = await host.compactors.get(loaded.session.conversation_id).compact(
        loaded, "manual", focus=call.argument or None, notify=notices.append
    )
    match result.outcome:
        case "compressed":
            answer = _compressed(loaded, result, call.argument)
            return "\n".join([answer, *(n for n in notices if n and n not in answer)])
        case "aborted":
            return aborted_text(result.reason)
        case "not_needed":
            moved_on = result.loaded.session.id != loaded.session.id
            return nothing_to_do_text(result.reason, len(result.loaded.rows), moved_on)


def _compressed(before: LoadedSession, result: CompactionResult, focus: str) -> str:
    manifest = result.loaded.session.manifest
    return compressed_text(
        tokens=(result.tokens_before, result.tokens_after),
        messages=(len(before.rows), len(result.loaded.rows)),
        verbatim=verbatim_rows(before.rows, result.loaded.rows),
        last=None if manifest is None else read_manifest(manifest),
        prices=price_table(),
        focus=focus,
    )


async def status(host: CommandHost, call: Call) -> str:
    """Model, window, trigger, context size, session, platforms."""
    lines: list[str] = []
    loaded = await tip(host, call)
    if loaded is None:
        lines += [
            f"Model: {host.prefix_for(call.record.address.platform).model}",
            f"Window: {_tokens(host.status.window_tokens())}",
            _trigger(host.status.triggers()),
            _cache(host.status.cache_ttl()),
            texts.NO_CONVERSATION,
        ]
    else:
        session = loaded.session
        due = host.compactors.get(session.conversation_id).due(loaded)
        lines += [
            f"Model: {session.prefix.model}",
            f"Window: {_tokens(host.status.window_tokens())}",
            _trigger(_triggers_of(host, due), due.reason),
            _cache(
                host.status.cache_ttl(), await host.lineages.usage_totals(session.conversation_id)
            ),
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


def _trigger(triggers: Triggers, reason: str = "") -> str:
    """From where on it compresses in fact, which may be far from the configured ratio."""
    at = triggers.effective_tokens
    share = percent(at, triggers.window_tokens)
    held = f"; not now: {reason}" if reason else ""
    return f"Compression: from {at:,} tokens on, {share} of the window{held}"


def _cache(ttl: CacheTtl | None, usage: UsageTotals | None = None) -> str:
    """What the provider is asked to keep, and how much it helped."""
    if ttl is None:
        return "Prompt cache: off, this model has none"
    kept = "five minutes" if ttl == "5m" else "an hour"
    share = None if usage is None else usage.hit_share
    helped = "" if share is None else f", {percent(round(1000 * share), 1000)} read from it so far"
    return f"Prompt cache: on, kept {kept}{helped}"


def _context(session: Session, due: CompactionDecision) -> str:
    if session.compression.awaiting_usage:
        return "not known until the next answer (it was just compressed)"
    source = "measured" if session.anchor is not None else "estimated"
    return f"{due.tokens:,} tokens ({source})"
