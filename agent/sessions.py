"""Owns the nouns of the store: session key, conversation, session, split, turn, hit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from agent.messages import Draft, Entry, Row, ToolSchema

EndReason = Literal["compression", "reset", "idle", "daily", "switch", "uncompress"]
Link = Literal["continuation", "branch"]


@lru_cache(maxsize=4096)
def session_key(
    platform: str, bot_id: str, chat_id: str, thread_id: str | None, user_id: str | None
) -> str:
    """Encode where a conversation takes place; two different tuples never give one string."""
    return json.dumps(
        [platform, bot_id, chat_id, thread_id, user_id], ensure_ascii=True, separators=(",", ":")
    )


def is_session_key(text: str) -> bool:
    """Could `session_key` have made it?"""
    return place_of(text) is not None


Place = tuple[str, str, str, str | None, str | None]
"""Platform, bot, chat, thread, user: what a session key says."""


def place_of(key: str) -> Place | None:
    """What a session key says; None: `session_key` has not made it."""
    try:
        place = json.loads(key)
    except (ValueError, RecursionError):
        return None
    match place:
        case [str(platform), str(bot_id), str(chat), str() | None as thread, str() | None as user]:
            same = session_key(platform, bot_id, chat, thread, user) == key
            return (platform, bot_id, chat, thread, user) if same else None
        case _:
            return None


def key_in(key: str, chat_id: str) -> str:
    """A session key in another chat. A thread's number means nothing there."""
    place = place_of(key)
    if place is None:
        return key
    platform, bot_id, _, _, user_id = place
    return session_key(platform, bot_id, chat_id, None, user_id)


@dataclass(frozen=True, slots=True)
class SessionPrefix:
    """What is frozen for a session: every request of it starts with these bytes."""

    source: str
    """Platform name."""
    model: str
    system_prompt: str
    tools: tuple[ToolSchema, ...] = ()
    model_config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """The last real measurement: everything up to ``through_row_id`` took this many tokens."""

    prompt_tokens: int
    """Input + cache read + cache creation of the last response."""
    output_tokens: int
    through_row_id: int
    """The assistant row of that response; what comes after it is estimated."""


@dataclass(frozen=True, slots=True)
class CompressionState:
    """What compaction remembers about a conversation; a child inherits it. Times: Unix seconds."""

    count: int = 0
    """Compressions in this lineage so far."""
    awaiting_usage: bool = False
    """A compression happened and no real prompt size came since: the size is unknown."""
    cooldown_until: float = 0.0
    cooldown_reason: str = ""
    cooldown_ignored: bool = False
    """A proven overflow has gone past this cool-down; the next one does not ask the model again."""
    timeout_streak: int = 0
    ineffective_count: int = 0
    fallback_streak: int = 0
    rushed_streak: int = 0
    """Compressions in a row with hardly anything new before each."""
    seen_row_id: int = 0
    """The newest original that the last compression has seen; 0: there was none."""
    blocked_at: float = 0.0
    """When anti-thrash last blocked or probed; 0: not blocked."""
    blocked_tokens: int = 0
    """The prompt size at that moment: enough growth ends the block as well."""
    blocked_by_estimate: bool = False
    """That size was no measured one."""
    told_block: str = ""
    """The kind of block that the user was last told."""
    pressure_tier: float = 0.0
    pressure_at: float = 0.0
    hold_tokens: int = 0
    """No compression by itself below this prompt size: somebody has just undone one."""
    told_reason: str = ""
    """The abort reason that the user was last told, so that it is told once."""
    ahead_row_id: int = 0
    """The newest original that a summary was asked for ahead of time with; 0: none was."""
    prune_at_tokens: int = 0
    """Old tool results are not shortened again below this prompt size; 0: they never were."""
    micro_turns: int = 0
    """Finished turns since micro-compaction was last due, where it is not due at each."""
    micro_failures: int = 0
    """In a row, at one place."""
    micro_failed_row: int = 0
    """That place: the original that begins it; 0: none."""
    micro_skipped_row: int = 0
    """The original that ends the last exchange that micro-compaction has given up; 0: none."""
    micro_passes: int = 0
    """Passes that were stored so far."""
    micro_saved_tokens: int = 0
    """By estimate, what all of them have made the list shorter."""

    def changed(self, **changes: Any) -> CompressionState:
        """A copy with these fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a person thinks of as one chat."""

    id: str
    owner: str
    """``platform:user id`` of whoever started it."""
    session_key: str
    tip_session_id: str
    created_at: float


@dataclass(frozen=True, slots=True)
class LastSaid:
    """When the newest message came in a conversation that a place leads to."""

    session_key: str
    conversation_id: str
    session_id: str
    """Its tip."""
    owner: str
    at: float


@dataclass(frozen=True, slots=True)
class Session:
    """One segment of a conversation: a frozen prefix and a list of messages."""

    id: str
    conversation_id: str
    parent_session_id: str | None
    link: Link | None
    revision: int
    prefix: SessionPrefix
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: EndReason | None
    message_count: int
    """Active rows."""
    anchor: UsageAnchor | None
    compression: CompressionState
    manifest: dict[str, Any] | None = None
    """Of the compression that made this session: what the summary keeps and what it lists."""


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A session with its active rows in order, repaired: every call of it has one result."""

    session: Session
    rows: tuple[Row, ...]

    @property
    def last_row_id(self) -> int:
        """Id of the newest row; 0 for an empty session."""
        return self.rows[-1].id if self.rows else 0


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A compression's result, to be committed if nothing moved meanwhile."""

    conversation_id: str
    parent_id: str
    expected_revision: int
    covered_row_id: int
    """The newest row that the plan has seen. Rows that came later are copied behind ``entries``."""
    entries: tuple[Entry, ...]
    compression: CompressionState
    """Of the child."""
    manifest: dict[str, Any] | None = None
    end_reason: EndReason = "compression"
    prefix: SessionPrefix | None = None
    """Of the child; None: the parent's."""
    lease_holder: str | None = None
    """Its lease is dropped in the same transaction."""


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """A new list inside the same session (in-place compaction, prune only, a repair)."""

    session_id: str
    expected_revision: int
    covered_row_id: int
    entries: tuple[Entry, ...]
    """Replace every active row up to ``covered_row_id``; later rows stay behind them."""
    compression: CompressionState | None = None
    """None: unchanged."""
    manifest: dict[str, Any] | None = None
    at_rest: bool = False
    """Applied only if nothing stands behind the covered row and no turn is running: nobody who is
    at work shall find another list than the one that the work began with."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """Of a split or rewrite. Not applied: somebody else was first; ``tip`` is where to go on."""

    applied: bool
    tip: Session


@dataclass(frozen=True, slots=True)
class TurnOpening:
    """The first atomic step of a turn."""

    session_key: str
    owner: str
    inbox_ids: tuple[int, ...]
    message: Draft
    prefix: SessionPrefix
    """For the first session, if the key has no conversation yet."""
    brought: str = ""
    """For a retry: what rides in its message in place of what did before (`agent.brought`)."""
    turn_id: str = ""
    """The id it shall have, never used before; "": the store draws one. A turn that one of these
    rows has begun already keeps its own."""


@dataclass(frozen=True, slots=True)
class TurnTicket:
    """A running turn. Whoever holds it may append while it is running, and no longer."""

    turn_id: str
    conversation_id: str
    session_id: str
    user_row_id: int


TurnOutcome = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class InterruptedTurn:
    """A turn that a crash or a shutdown cut off, found at start-up."""

    ticket: TurnTicket
    session_key: str
    owner: str
    inbox_ids: tuple[int, ...]
    started_at: float
    crashes: int
    """Consecutive crashes during this turn without a new row in between."""
    orderly: bool
    """Cut off by an orderly shutdown, not by a crash."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Where to search; both None: everything."""

    conversation_id: str | None = None
    """All sessions of it; of a fork, also what it was forked from, up to that moment."""
    owner: str | None = None
    """All conversations of this person, but for those that a whole group shares."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found message: always the original row, never a copy."""

    message_id: int
    session_id: str
    role: str
    snippet: str
    score: float
    """Higher is better; comparable within one search only."""
    created_at: float
    newer_id: int | None = None
    """The newest other message that holds the same words of the question, if it is newer."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A line of a listing."""

    id: str
    conversation_id: str
    parent_session_id: str | None
    link: Link | None
    source: str
    model: str
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: EndReason | None
    message_count: int
    tokens: int
    """Estimate over its active rows."""
