"""Owns the composition of forgetting: what there is of people beside the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.clock import RandomIds, SystemClock
from agent.compaction.calls.summary import redacted
from agent.compaction.plan.verbatim import identifiers_in
from agent.forgetting import Holdings
from agent.tools.workspace import Workspaces
from gateway.backups.shelf import kept
from gateway.config.environment import Home, local_zone
from gateway.config.models import Config
from gateway.delivery.outbox import Delivery
from gateway.forgetting.desk import Cache, ForgettingDesk
from gateway.forgetting.leavings import Leavings, Others
from gateway.forgetting.office import ForgettingOffice
from gateway.lanes.lanes import Lanes
from gateway.lanes.resting import Rest
from gateway.wiring.answering import Answering
from gateway.wiring.ground import Ground
from gateway.wiring.kept_files import kept_files
from gateway.wiring.surroundings import Surroundings
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore

if TYPE_CHECKING:
    from gateway.plugins.forgetting import PutAside
    from gateway.wiring.plugins import Plugins

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
    answering: Answering,
) -> ForgettingDesk:
    """Of a daemon: with all that remembers words while the process runs."""
    compactors = answering.compactors

    async def put_aside(conversations: Sequence[str], keys: Sequence[str]) -> None:
        led = [await ground.store.conversation_for_key(key) for key in keys]
        all_of_them = {*conversations, *(each.id for each in led if each is not None)}
        compactors.drop(all_of_them)
        await compactors.at_rest()
        if answering.memory is not None:
            await answering.memory.forget(all_of_them)

    leavings = leavings or Leavings(backups=list, plugin_files=list)
    if ground.plugins is not None:
        others = _others(ground.plugins, ground.around.home, put_aside)
        leavings = replace(leavings, plugins=others)

    def drop(erased: Holdings, names: Sequence[str]) -> None:
        compactors.drop(erased.conversation_ids)
        redacted.clear()
        identifiers_in.clear()
        if forget_pictures is not None:
            forget_pictures(names)

    return ForgettingDesk(
        ground.store,
        leavings,
        ground.clock,
        lambda: ground.zone,
        lanes=Rest(lanes, ground.clock),
        caches=(Cache(drop),),
        hand_over=delivery.hand_over,
        withdraw=delivery.withdraw,
    )


async def answer_forgetting(
    config: Config, around: Surroundings, request: Mapping[str, Any]
) -> dict[str, Any]:
    """Answer `posthouse forget` in a home of which no daemon runs; its lock is held.

    Plugins are loaded for it, as they may keep something.

    Raises:
        StoreUnavailable: the store can not be opened.
    """
    clock, home = SystemClock(), around.home
    store = await open_store(home.database, clock=clock, ids=RandomIds())
    try:
        leavings = leavings_of(home, store, kept_files(home, store))
        plugins: Plugins | None = None
        if request.get("action") == "erase" and config.wants_plugins:
            from gateway.wiring.plugins import load_plugins  # noqa: PLC0415 - only if there are some

            plugins = await load_plugins(config, around, clock, store)
            leavings = replace(leavings, plugins=_others(plugins, home, None))
        desk = ForgettingDesk(store, leavings, clock, lambda: local_zone(around.env))
        answer = await ForgettingOffice(desk, patience_seconds=None).answer(request)
        if plugins is not None:
            await plugins.engines.close()
        while await store.maintain():
            pass
        return answer
    finally:
        await store.close()


def _others(plugins: Plugins, home: Home, put_aside: PutAside | None) -> Others:
    from gateway.plugins.forgetting import PluginForgetting  # noqa: PLC0415 - only where there are some

    return PluginForgetting(plugins.engines, plugins.providers, str(home.hermes), put_aside)


def _plugin_files(folder: Path) -> list[str]:
    with suppress(OSError):
        names = (path.name for path in folder.iterdir() if not path.name.startswith("."))
        return sorted(f"{folder.name}/{name}" for name in names if name not in _OURS_AMONG_THEIRS)
    return []
