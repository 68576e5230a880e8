"""Owns the words of /micro: whether older answers are condensed here, and what that did. Pure."""

from __future__ import annotations

from agent.compaction.micro.progress import MicroSettings, Override, is_on, override_of
from agent.counting import counted
from agent.sessions import Session


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
