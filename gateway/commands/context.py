"""Owns the commands about the context: /context, /status, /compress."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agent.compaction.plan.report import last_compression, read_manifest, verbatim_rows
from agent.composition import Filling, fill
from agent.ledger import LedgerScope
from agent.lineages import UsageTotals
from agent.llm.background import in_daemon_thread
from agent.model_metadata import Triggers, estimate_prefix_tokens
from agent.ports import CompactionDecision
from agent.prices import price_table
from agent.sessions import LoadedSession, Session
from agent.spending import bill_of
from gateway import texts
from gateway.commands.compression_text import aborted_text, compressed_text, nothing_to_do_text
from gateway.commands.context_text import ContextReport, chat_text
from gateway.commands.contract import Call, CommandHost, counted, tip
from gateway.commands.lineage import hold_limit
from gateway.commands.wording import duration, percent
from gateway.lanes.jobs import LaneView

MANY_ROWS = 1000
"""From so many on the parts are added up beside the event loop, which nobody may hold."""


async def context(host: CommandHost, call: Call) -> str:
    """What fills the window, what the last compression did, what comes next."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    session = loaded.session
    due = host.compactors.get(session.conversation_id).due(loaded)
    prepared = await host.sessions.prepared(session.id)
    report = ContextReport(
        filling=await _filling(host, loaded, due),
        due=due,
        last=last_compression(await host.sessions.lineage(session.id), session.id),
        usage=await host.lineages.usage_totals(session.conversation_id),
        bill=bill_of(
            await host.accounts.lines(LedgerScope(conversation_id=session.conversation_id)),
            price_table(),
        ),
        budget=await host.accounts.budget_line(call.record.owner),
        model=session.prefix.model,
        cache_ttl=host.status.cache_ttl(),
        cache=host.status.cache(),
        prices=price_table(),
        now=call.record.received_at,
        hold_tokens=session.compression.hold_tokens,
        prepared_at=None if prepared is None else prepared.created_at,
        summary_model=host.status.summary_model(),
    )
    return chat_text(report)


async def _filling(host: CommandHost, loaded: LoadedSession, due: CompactionDecision) -> Filling:
    work = partial(
        fill,
        loaded,
        _triggers_of(host, due),
        image_tokens=host.status.image_tokens(loaded.session.prefix.model),
    )
    if len(loaded.rows) < MANY_ROWS:
        return work()
    return await in_daemon_thread(work, "context")


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
    if (before := await _done_already(host, call, loaded)) is not None:
        return _compressed(host, call, before, loaded, (_size(before), _size(loaded)))
    if (refusal := await host.accounts.refusal(call.record.owner)) is not None:
        return refusal  # it asks the model, as often as somebody says it
    notices: list[str] = []
    result = await host.compactors.get(loaded.session.conversation_id).compact(
        loaded, "manual", focus=call.argument or None, notify=notices.append
    )
    match result.outcome:
        case "compressed":
            sizes = (result.tokens_before, result.tokens_after)
            answer = _compressed(host, call, loaded, result.loaded, sizes)
            return "\n".join([answer, *(n for n in notices if n and n not in answer)])
        case "aborted":
            return aborted_text(result.reason)
        case "not_needed":
            moved_on = result.loaded.session.id != loaded.session.id
            return nothing_to_do_text(result.reason, len(result.loaded.rows), moved_on)


async def _done_already(
    host: CommandHost, call: Call, loaded: LoadedSession
) -> LoadedSession | None:
    """The list that was compressed, if a run of this very command did it and could not say so.

    The tip was made since the command came, by a compression, and nobody has said anything in it:
    a summary is not bought a second time because of a crash.
    """
    session = loaded.session
    if (
        session.parent_session_id is None
        or session.started_at < call.record.received_at
        or any(row.origin_id is None and row.kind is None for row in loaded.rows)
    ):
        return None
    parent = await host.sessions.load(session.parent_session_id)
    return parent if parent.session.end_reason == "compression" else None


def _compressed(
    host: CommandHost,
    call: Call,
    before: LoadedSession,
    after: LoadedSession,
    tokens: tuple[int, int],
) -> str:
    manifest = after.session.manifest
    return compressed_text(
        tokens=tokens,
        messages=(len(before.rows), len(after.rows)),
        verbatim=verbatim_rows(before.rows, after.rows),
        last=None if manifest is None else read_manifest(manifest),
        prices=price_table(),
        focus=call.argument,
        can_undo=_size(before) < hold_limit(host.status.triggers()),
    )


def _size(loaded: LoadedSession) -> int:
    """The estimate of everything, as /uncompress counts."""
    prefix_tokens = estimate_prefix_tokens(loaded.session.prefix)
    return prefix_tokens + sum(row.tokens for row in loaded.rows)


async def status(host: CommandHost, call: Call) -> str:
    """Model, window, trigger, context size, session, platforms."""
    lines: list[str] = []
    loaded = await tip(host, call)
    if loaded is None:
        lines += [
            f"Model: {host.prefix_for(call.record.address.platform).model}",
            f"Window: {_tokens(host.status.window_tokens())}",
            _trigger(host.status.triggers()),
            _cache(host.status.cache()),
            texts.NO_CONVERSATION,
        ]
    else:
        session = loaded.session
        due = host.compactors.get(session.conversation_id).due(loaded)
        lines += [
            f"Model: {session.prefix.model}",
            f"Window: {_tokens(host.status.window_tokens())}",
            _trigger(_triggers_of(host, due), due.reason),
            _cache(host.status.cache(), await host.lineages.usage_totals(session.conversation_id)),
            f"Context: {_context(session, due)}",
            f"Session: {session.id}, {counted(session.message_count, 'message')}, "
            f"{counted(session.compression.count, 'compression')} so far",
        ]
    lines.append(f"This conversation: {_lane(host.lane(call.key))}")
    lines.append(f"While I am busy: {texts.BUSY_MODES[host.busy_mode]}")
    if budget := await host.accounts.budget_line(call.record.owner):
        lines.append(budget)
    for name, (state, reason) in sorted(host.status.platforms().items()):
        lines.append(f"{name}: {state}{f' ({reason})' if reason else ''}")
    lines.extend(host.status.remarks())
    return "\n".join(lines)


def _lane(lane: LaneView) -> str:
    """What runs and since when, what waits and for how long."""
    since = f" for {duration(lane.running_seconds)}" if lane.running_seconds >= 1 else ""
    work = f"working{since}" if lane.running else "idle"
    waiting = f"{counted(lane.waiting, 'message')} waiting"
    if lane.waiting and lane.oldest_seconds >= 1:
        waiting += f", the oldest for {duration(lane.oldest_seconds)}"
    return f"{work}, {waiting}"


def _tokens(count: int | None) -> str:
    return "not known yet" if not count else f"{count:,} tokens"


def _trigger(triggers: Triggers, reason: str = "") -> str:
    """From where on it compresses in fact, which may be far from the configured ratio."""
    at = triggers.effective_tokens
    share = percent(at, triggers.window_tokens)
    held = f"; not now: {reason}" if reason else ""
    return f"Compression: from {at:,} tokens on, {share} of the window{held}"


def _cache(words: str, usage: UsageTotals | None = None) -> str:
    """What the provider is asked to keep, and how much it helped."""
    if usage is None or not usage.cache_read_tokens + usage.cache_write_tokens:
        return f"Prompt cache: {words}"
    share = percent(usage.cache_read_tokens, usage.prompt_tokens)
    return f"Prompt cache: {words}; {share} of all prompts was read from it"


def _context(session: Session, due: CompactionDecision) -> str:
    if session.compression.awaiting_usage:
        return f"about {due.tokens:,} tokens (estimated; it was just compressed)"
    source = "measured" if session.anchor is not None else "estimated"
    return f"{due.tokens:,} tokens ({source})"
