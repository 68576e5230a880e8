"""Owns who rides along with turns, and in which order: so their words stand in a message."""

from __future__ import annotations

from functools import partial

from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.memory.companion import NotesCompanion
from agent.turn_companions import TurnCompanion
from gateway.turns.compactors import CompactorCache
from gateway.turns.companions import Companions
from gateway.wiring.answering import Answering
from gateway.wiring.ground import Ground


def build_companions(ground: Ground, answering: Answering) -> Companions:
    """What changes least comes first."""
    each: list[TurnCompanion] = [NotesCompanion(ground.store)]
    if answering.memory is not None:
        each.append(answering.memory)
    if ground.plugins is not None:
        hooks = ground.plugins.gifts.companion
        hooks.engine_of = partial(_engine_of, answering.compactors)
        each.append(hooks)
    return Companions(each, ground.store, answering.prefix_for)


def _engine_of(compactors: CompactorCache, conversation_id: str) -> ContextEngine | None:
    """A plugin's engine, which its own hooks want to find again. Ours is handed to nobody."""
    compactor = dict(compactors.made()).get(conversation_id)
    if not isinstance(compactor, SessionCompactor):
        return None
    return None if isinstance(compactor.engine, ContextCompressor) else compactor.engine
