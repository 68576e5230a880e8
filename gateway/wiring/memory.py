"""Owns the composition of an external memory: its instances, tools, texts for summaries, mirror."""

from __future__ import annotations

import logging

from agent.memory.desk import NoteDesk
from agent.memory.provider_companion import ProviderCompanion
from agent.tools.provider import SOURCE, provider_tools
from agent.tools.registry import ToolRegistry
from gateway.wiring.compaction import CompactorFactory
from gateway.wiring.ground import Ground

log = logging.getLogger(__name__)

IDENTITY = "posthouse"
"""What providers are told of whose memory it is."""


def build_memory(
    ground: Ground, tools: ToolRegistry, factory: CompactorFactory, notes: NoteDesk
) -> ProviderCompanion | None:
    """The provider that is configured, wherever it has something to do; None: there is none."""
    plugins = ground.plugins
    if plugins is None or not plugins.providers.works:
        return None
    source = plugins.providers
    memory = ProviderCompanion(
        source.name,
        source.make,
        ground.clock,
        rows_of=ground.store.active_rows,
        hermes_home=str(ground.around.home.hermes),
        identity=IDENTITY,
    )
    source.watch(lambda: memory.lost)
    for name in tools.replace(SOURCE, provider_tools(source.schemas, memory)):
        log.warning("a tool of the memory provider is left out", extra={"tool": name})
    factory.to_keep = memory.to_keep
    notes.mirrored_by(memory)
    return memory
