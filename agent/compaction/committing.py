"""Owns what becomes of an engine's result: split or rewrite, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.messages import Entry
from agent.ports import SessionStore
from agent.sessions import (
    ChangeResult,
    CompressionState,
    LoadedSession,
    RewriteRequest,
    SplitRequest,
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A compression that is only left to be stored."""

    base: LoadedSession
    """What it was made from: it counts only while that is the tip, in that revision."""
    entries: tuple[Entry, ...]
    state: CompressionState
    manifest: dict[str, Any] | None


async def commit(
    store: SessionStore, finished: Finished, *, in_place: bool, lease_holder: str
) -> ChangeResult:
    """Store it, if nobody was first."""
    base, session = finished.base, finished.base.session
    if in_place:
        return await store.rewrite(
            RewriteRequest(
                session_id=session.id,
                expected_revision=session.revision,
                covered_row_id=base.last_row_id,
                entries=finished.entries,
                compression=finished.state,
                manifest=finished.manifest,
            )
        )
    return await store.split(
        SplitRequest(
            conversation_id=session.conversation_id,
            parent_id=session.id,
            expected_revision=session.revision,
            covered_row_id=base.last_row_id,
            entries=finished.entries,
            compression=finished.state,
            manifest=finished.manifest,
            lease_holder=lease_holder,
        )
    )
