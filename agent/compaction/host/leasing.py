"""Owns the lease around one compression: taken before, let go whatever came of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.errors import StoreError
from agent.ports import IdSource
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)
T = TypeVar("T")


async def leased(
    work: Callable[[str], Awaitable[T]],
    store: SessionStore,
    ids: IdSource,
    conversation_id: str,
    ttl_seconds: float,
) -> T | None:
    """What the work gave back; None: somebody else holds the lease, and nothing was done.

    ``work`` is given the name of the holder. Cancelled, the lease stays: the loop is ending then,
    and the next start voids every lease.
    """
    holder = ids.new("lease")
    if not await store.acquire_lease(conversation_id, holder, ttl_seconds):
        return None
    try:
        done = await work(holder)
    except Exception:
        await _let_go(store, conversation_id, holder)
        raise
    await _let_go(store, conversation_id, holder)
    return done


async def _let_go(store: SessionStore, conversation_id: str, holder: str) -> None:
    """Whatever came of the work stands: a lease also ends by itself."""
    try:
        await store.release_lease(conversation_id, holder)
    except StoreError:
        log.warning("lease not released", exc_info=True)
