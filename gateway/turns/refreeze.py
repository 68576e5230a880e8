"""Owns the refreeze: how a changed prompt, tool list or model reaches a living conversation."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from agent.messages import Keep, ToolSchema, clean_text
from agent.sessions import LoadedSession, SessionPrefix, SplitRequest, TurnTicket
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

Difference = Literal["model", "system_prompt", "tools"]

MAX_TRIES = 3
"""How often a tip is followed that somebody else moved meanwhile."""


def differences(frozen: SessionPrefix, wanted: SessionPrefix) -> tuple[Difference, ...]:
    """In what the two would begin another request, or ask another model (pure).

    Compared as the store gives them back, or a prompt that it had to clean would differ for ever.
    Nor is the order of the tools a difference: a session sends them in its own.
    """
    found: list[Difference] = []
    if frozen.model != clean_text(wanted.model):
        found.append("model")
    if frozen.system_prompt != clean_text(wanted.system_prompt):
        found.append("system_prompt")
    if _as_stored(frozen.tools) != _as_stored(wanted.tools):
        found.append("tools")
    return tuple(found)


def _as_stored(tools: Sequence[ToolSchema]) -> list[str]:
    return sorted(
        clean_text(
            json.dumps(
                [tool.name, tool.description, tool.parameters], ensure_ascii=False, sort_keys=True
            )
        )
        for tool in tools
    )


class Refreezer:
    """Gives a conversation the prefix that the configuration gives now, at the start of a run."""

    def __init__(self, sessions: SessionStore, prefix_for: Callable[[str], SessionPrefix]) -> None:
        self._sessions = sessions
        self._prefix_for = prefix_for

    async def __call__(self, loaded: LoadedSession, ticket: TurnTicket) -> LoadedSession:
        """Where the turn goes on: in a continuation child with the same messages, if need be.

        The copies are without thinking, which was bound to the old prefix. Nobody is told.
        """
        for _ in range(MAX_TRIES):
            session = loaded.session
            wanted = replace(
                self._prefix_for(session.prefix.source),
                source=session.prefix.source,
                model_config=session.prefix.model_config,  # what people have set stays set
            )
            changed = differences(session.prefix, wanted)
            if not changed or not loaded.rows:
                return loaded
            # What was measured against another model's window says nothing about this one's.
            state = session.compression
            result = await self._sessions.split(
                SplitRequest(
                    conversation_id=session.conversation_id,
                    parent_id=session.id,
                    expected_revision=session.revision,
                    covered_row_id=loaded.last_row_id,
                    entries=tuple(Keep(row.id) for row in loaded.rows),
                    compression=state.changed(hold_tokens=0) if "model" in changed else state,
                    manifest=session.manifest,
                    end_reason="switch",
                    prefix=wanted,
                )
            )
            if result.applied:
                log.info(
                    "refrozen",
                    extra={
                        "parent_session_id": session.id,
                        "child_session_id": result.tip.id,
                        "changed": ",".join(changed),
                    },
                )
            elif (result.tip.id, result.tip.revision) == (session.id, session.revision):
                return loaded  # it has ended: whoever appends next finds out what to do
            loaded = await self._sessions.load(result.tip.id, ticket=ticket)
            if result.applied:
                return loaded
        return loaded
