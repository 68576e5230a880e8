"""Owns the commands about the context: /context, /status, /compress."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agent.compaction.plan.report import last_compression, read_manifest, verbatim_rows
from agent.composition import Filling, fill
from agent.counting import counted
from agent.ledger import LedgerScope
from agent.llm.background import in_daemon_thread
from agent.model_metadata import Triggers, estimate_prefix_tokens
from agent.ports import CompactionDecision
from agent.prices import price_table
from agent.sessions import LoadedSession
from agent.spending import bill_of
from gateway import texts
from gateway.commands import memory, status_text
from gateway.commands.compression_text import aborted_text, compressed_text, nothing_to_do_text
from gateway.commands.context_text import ContextReport, chat_text
from gateway.commands.contract import Call, CommandHost, tip
from gateway.commands.lineage import hold_limit

MANY_ROWS = 1000
"""From so many on the parts are added up beside the event loop, which nobody may hold."""


async def context(host: CommandHost, call: Call) -> str:
    """What fills the window, what the last compression did, what comes next."""
    loaded = await tip(host, call)
    if loaded is None:
        return texts.NO_CONVERSATION
    session = loaded.session
    due = (await host.compactors.get(session.conversation_id)).due(loaded)
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
    host.ask_anew()
    async with host.compactors.using(loaded.session.conversation_id) as compactor:
        result = await compactor.compact(
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
    """Model, window, trigger, context size, session; to an admin alone also what is amiss."""
    lines: list[str] = []
    loaded = await tip(host, call)
    if loaded is None:
        lines += [
            f"Model: {host.prefix_for(call.record.address.platform).model}",
            f"Window: {status_text.tokens(host.status.window_tokens())}",
            status_text.trigger(host.status.triggers()),
            status_text.cache(host.status.cache()),
            texts.NO_CONVERSATION,
        ]
    else:
        session = loaded.session
        due = (await host.compactors.get(session.conversation_id)).due(loaded)
        usage = await host.lineages.usage_totals(session.conversation_id)
        lines += [
            f"Model: {session.prefix.model}",
            f"Window: {status_text.tokens(host.status.window_tokens())}",
            status_text.trigger(_triggers_of(host, due), due.reason),
            status_text.cache(host.status.cache(), usage),
            f"Context: {status_text.size(session, due)}",
            f"Session: {session.id}, {counted(session.message_count, 'message')}, "
            f"{counted(session.compression.count, 'compression')} so far",
        ]
    if engine := host.status.engine():
        lines.append(f"Context engine: {engine}")
    lines.append(f"This conversation: {status_text.lane(host.lane(call.key))}")
    lines.append(f"While I am busy: {texts.BUSY_MODES[host.busy_mode()]}")
    if kept := await memory.state(host, call):
        lines.append(kept)
    if budget := await host.accounts.budget_line(call.record.owner):
        lines.append(budget)
    if call.admin and call.direct:
        lines += _for_operators(host)
    return "\n".join(lines)


def _for_operators(host: CommandHost) -> list[str]:
    platforms = sorted(host.status.platforms().items())
    lines = [f"{name}: {state}{f' ({why})' if why else ''}" for name, (state, why) in platforms]
    return [*lines, *host.status.remarks()]
