"""Owns the composition of forgetting: what there is of people beside the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from agent.clock import RandomIds, SystemClock
from agent.compaction.calls.summary import redacted
from agent.compaction.plan.verbatim import identifiers_in
from agent.forgetting import Holdings
from agent.tools.workspace import Workspaces
from gateway.backups.shelf import kept
from gateway.config.environment import Home, local_zone
from gateway.config.models import Config
from gateway.delivery.outbox import Delivery
from gateway.forgetting.desk import Cache, ForgettingDesk, Leavings
from gateway.forgetting.office import ForgettingOffice
from gateway.lanes.lanes import Lanes
from gateway.lanes.resting import Rest
from gateway.turns.compactors import CompactorCache
from gateway.wiring.exchange import kept_files
from gateway.wiring.ground import Ground
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore

_OURS_AMONG_THEIRS = {"config.yaml", "state.db", "plugins"}
"""In the folder that plugins take for their home."""


def leavings_of(home: Home, store: SqlStore, files: FolderAttachments) -> Leavings:
    """Of a home with a database."""
    return Leavings(
        backups=partial(kept, home),
        plugin_files=partial(_plugin_files, home.hermes),
        files=files,
        clear_workspace=Workspaces(home.workspace).clear,
        rewrite=store.rewrite_file,
    )


def build_desk(
    leavings: Leavings | None,
    forget_pictures: Callable[[Sequence[str]], None] | None,
    ground: Ground,
    lanes: Lanes,
    delivery: Delivery,
    compactors: CompactorCache,
) -> ForgettingDesk:
    """Of a daemon: with all that remembers words while the process runs."""

    def drop(erased: Holdings, names: Sequence[str]) -> None:
        compactors.drop(erased.conversation_ids)
        redacted.clear()
        identifiers_in.clear()
        if forget_pictures is not None:
            forget_pictures(names)

    return ForgettingDesk(
        ground.store,
        leavings or Leavings(backups=list, plugin_files=list),
        ground.clock,
        lambda: ground.zone,
        lanes=Rest(lanes, ground.clock),
        caches=(Cache(drop),),
        hand_over=delivery.hand_over,
        withdraw=delivery.withdraw,
    )


async def answer_forgetting(
    home: Home, config: Config, env: Mapping[str, str], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Answer `posthouse forget` in a home of which no daemon runs; its lock is held.

    Raises:
        StoreUnavailable: the store can not be opened.
    """
    clock = SystemClock()
    store = await open_store(home.database, clock=clock, ids=RandomIds())
    try:
        leavings = leavings_of(home, store, kept_files(home, store))
        desk = ForgettingDesk(store, leavings, clock, lambda: local_zone(env))
        answer = await ForgettingOffice(desk, patience_seconds=None).answer(request)
        while await store.maintain():
            pass
        return answer
    finally:
        await store.close()


def _plugin_files(folder: Path) -> list[str]:
    with suppress(OSError):
        names = (path.name for path in folder.iterdir() if not path.name.startswith("."))
        return sorted(f"{folder.name}/{name}" for name in names if name not in _OURS_AMONG_THEIRS)
    return []
