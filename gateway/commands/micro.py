"""Owns /micro: micro-compaction in one conversation, on, off or as configured."""

from __future__ import annotations

from agent.compaction.micro.progress import (
    OVERRIDE_KEY,
    MicroSettings,
    Override,
    is_on,
    override_of,
)
from agent.sessions import Session
from gateway import texts
from gateway.commands.contract import Call, CommandHost, counted
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
        return texts.MICRO_BUSY
    value = None if asked == "inherit" else asked
    for _ in range(MAX_TRIES):
        if await host.sessions.set_option(session.id, OVERRIDE_KEY, value):
            break
        session = await host.sessions.tip(session.id)
    else:
        return texts.MICRO_BUSY
    return status_text(await host.sessions.session(session.id), host.status.micro())


async def _tip(host: CommandHost, call: Call) -> Session | None:
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return None
    return await host.sessions.session(conversation.tip_session_id)


def status_text(session: Session, rules: MicroSettings | str) -> str:
    """How micro-compaction stands in a conversation.

    ``rules``: as configured; a text: why it can not run at all.
    """
    override = override_of(session.prefix.model_config)
    if isinstance(rules, str):
        lines = [f"Micro-compaction does not run: {rules}."]
        if override != "inherit":
            lines.append(f"This conversation is set to {override} for when it does.")
        return "\n".join(lines)
    on = is_on(session.prefix.model_config, rules)
    lines = [f"Micro-compaction is {'on' if on else 'off'} here ({_because(override)})."]
    if on:
        turns = rules.every_n_turns
        how_often = "each answer" if turns == 1 else f"every {turns} answers"
        lines.append(
            f"After {how_often} one older exchange goes into a digest; what you wrote stays."
        )
    state = session.compression
    if state.micro_passes:
        saved = state.micro_saved_tokens
        effect = f"{saved:,} tokens shorter" if saved >= 0 else f"{-saved:,} tokens longer"
        lines.append(f"So far: {counted(state.micro_passes, 'pass', 'passes')}, {effect} by them.")
    if state.micro_failures:
        lines.append(f"The last {counted(state.micro_failures, 'try', 'tries')} failed.")
    return "\n".join(lines)


def _because(override: Override) -> str:
    return "as configured" if override == "inherit" else "set with /micro"
