"""Owns session hygiene: the last net before the agent, at 85 % of the window."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from agent.clock import RandomIds
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_engine import ContextEngine
from agent.ports import Clock, Compactor, IdSource
from agent.sessions import LoadedSession
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

HygieneOutcome = Literal["not_needed", "compressed", "aborted"]
Notify = Callable[[str], Awaitable[None] | None]

MIN_MESSAGES = 4
MESSAGE_LIMIT = 5000
"""So many messages are too many, whatever their size."""


@dataclass(frozen=True, slots=True)
class HygieneResult:
    """What the net did. ``session_id`` and ``loaded``: where the turn goes on."""

    outcome: HygieneOutcome
    session_id: str
    tokens_before: int
    tokens_after: int
    reason: str
    loaded: LoadedSession


@dataclass(frozen=True, slots=True)
class HygieneVerdict:
    """Does the net fire?"""

    fires: bool
    reason: str


def should_compress_session(
    messages: int, reaches_limit: bool, *, enabled: bool, message_limit: int = MESSAGE_LIMIT
) -> HygieneVerdict:
    """Decide from plain values.

    Args:
        messages: Length of the history.
        reaches_limit: Its real size (or the estimate, if none is known) is at 85 % of the window.
        enabled: Compression as a whole.
        message_limit: The second valve.
    """
    if not enabled:
        return HygieneVerdict(False, "compression is off")
    if messages < MIN_MESSAGES:
        return HygieneVerdict(False, "the history is short")
    if reaches_limit:
        return HygieneVerdict(True, "85 % of the window are full")
    if messages >= message_limit:
        return HygieneVerdict(True, f"{messages} messages")
    return HygieneVerdict(False, "")


async def maybe_compress_session(
    session: LoadedSession,
    *,
    engine: ContextEngine,
    store: SessionStore,
    clock: Clock,
    notify: Notify | None = None,
    ids: IdSource | None = None,
    settings: CompactionSettings | None = None,
    compactor: SessionCompactor | None = None,
    message_limit: int = MESSAGE_LIMIT,
) -> HygieneResult:
    """Compress a session that is about to outgrow the window, before its turn reaches the agent.

    The result is stored: it is paid for once. Success is silent. An abort changes nothing, and
    ``notify`` gets its reason once. Cool-downs of the provider count; the anti-thrash block only
    where there are many messages, but room in the window. Any engine will do; nothing but the
    session's own conversation waits.

    Args:
        session: As loaded for this turn.
        engine: The conversation's engine; only used to build a compactor where none is given.
        store: Where the result goes.
        clock: Time.
        notify: Takes a text for the user; may be a coroutine function.
        ids: Names of leases.
        settings: How to compact.
        compactor: The conversation's own, which remembers more than a fresh one.
        message_limit: The second valve.
    """
    own = compactor or SessionCompactor(engine, store, clock, ids or RandomIds(), settings)
    size = own.measure(session)
    limit = own.hygiene_tokens
    nearly_full = limit > 0 and size.reaches(limit)
    found = should_compress_session(
        len(session.rows),
        nearly_full,
        enabled=own.enabled,
        message_limit=message_limit,
    )
    if not found.fires:
        return _unchanged("not_needed", session, size.tokens, found.reason)
    if blocked := own.blocked_for_hygiene(session, ignore_block=nearly_full):
        return _unchanged("aborted", session, size.tokens, blocked)
    log.info(
        "session hygiene fires",
        extra={
            "session_id": session.session.id,
            "tokens": size.tokens,
            "source": size.source,
            "limit_tokens": limit,
            "messages": len(session.rows),
        },
    )
    notices: list[str] = []
    result = await own.compact(session, "hygiene", notify=notices.append)
    for text in notices:
        await _tell(notify, text)
    return HygieneResult(
        outcome=result.outcome,
        session_id=result.loaded.session.id,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        reason=result.reason or found.reason,
        loaded=result.loaded,
    )


class HygieneNet:
    """The net as a turn calls it: gives back the session that the turn goes on in."""

    def __init__(self, store: SessionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def __call__(
        self, loaded: LoadedSession, compactor: Compactor, notify: Callable[[str], None]
    ) -> LoadedSession:
        if not isinstance(compactor, SessionCompactor):
            return loaded
        loaded = await compactor.swap_if_cold(loaded)
        result = await maybe_compress_session(
            loaded,
            engine=compactor.engine,
            store=self._store,
            clock=self._clock,
            notify=notify,
            compactor=compactor,
        )
        return result.loaded


def _unchanged(
    outcome: HygieneOutcome, session: LoadedSession, tokens: int, reason: str
) -> HygieneResult:
    return HygieneResult(outcome, session.session.id, tokens, tokens, reason, session)


async def _tell(notify: Notify | None, text: str) -> None:
    if notify is None:
        return
    answer = notify(text)
    if inspect.isawaitable(answer):
        await answer
