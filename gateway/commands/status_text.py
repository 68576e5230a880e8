"""Owns the words of /status: what runs, what waits, how full the window is. Pure."""

from __future__ import annotations

from agent.counting import counted
from agent.lineages import UsageTotals
from agent.model_metadata import Triggers
from agent.ports import CompactionDecision
from agent.sessions import Session
from gateway.commands.wording import duration, percent
from gateway.lanes.jobs import LaneView


def lane(view: LaneView) -> str:
    """What runs and since when, what waits and for how long."""
    since = f" for {duration(view.running_seconds)}" if view.running_seconds >= 1 else ""
    work = f"working{since}" if view.running else "idle"
    waiting = f"{counted(view.waiting, 'message')} waiting"
    if view.waiting and view.oldest_seconds >= 1:
        waiting += f", the oldest for {duration(view.oldest_seconds)}"
    return f"{work}, {waiting}"


def tokens(count: int | None) -> str:
    """So many, if that is known."""
    return "not known yet" if not count else f"{count:,} tokens"


def trigger(triggers: Triggers, reason: str = "") -> str:
    """From where on it compresses in fact, which may be far from the configured ratio."""
    at = triggers.effective_tokens
    share = percent(at, triggers.window_tokens)
    held = f"; not now: {reason}" if reason else ""
    return f"Compression: from {at:,} tokens on, {share} of the window{held}"


def cache(words: str, usage: UsageTotals | None = None) -> str:
    """What the provider is asked to keep, and how much it helped."""
    if usage is None or not usage.cache_read_tokens + usage.cache_write_tokens:
        return f"Prompt cache: {words}"
    share = percent(usage.cache_read_tokens, usage.prompt_tokens)
    return f"Prompt cache: {words}; {share} of all prompts was read from it"


def size(session: Session, due: CompactionDecision) -> str:
    """How much the model reads, and how that is known."""
    if session.compression.awaiting_usage:
        return f"about {due.tokens:,} tokens (estimated; it was just compressed)"
    source = "measured" if session.anchor is not None else "estimated"
    return f"{due.tokens:,} tokens ({source})"
