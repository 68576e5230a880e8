"""Owns what is imported only where somebody asks for it: a start without it loads none of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.attachments import Attachments
from agent.media.pictures import PictureMaker
from agent.ports import Clock
from agent.store_ports import Store
from agent.tools.registry import ToolRegistry
from gateway.config.models import Config
from gateway.wiring.ground import Ground
from gateway.wiring.surroundings import Surroundings
from storage.store import SqlStore

if TYPE_CHECKING:
    from agent.exchange.records import TakenIn
    from gateway.mcp.servers import McpServers
    from gateway.wiring.mcp import ServerPlan
    from gateway.wiring.plugins import Plugins


async def wanted_plugins(
    config: Config, around: Surroundings, clock: Clock, store: Store
) -> Plugins | None:
    """The plugins that are asked for; None: none is."""
    if not config.wants_plugins:
        return None
    from gateway.wiring.plugins import load_plugins  # noqa: PLC0415 - only where there are some

    return await load_plugins(config, around, clock, store)


def wanted_servers(config: Config, around: Surroundings) -> ServerPlan | None:
    """The MCP servers that are asked for; None: none is.

    Raises:
        ConfigError: as `gateway.wiring.mcp.plan_servers`.
    """
    if not config.agent.tools.mcp:
        return None
    from gateway.wiring.mcp import plan_servers  # noqa: PLC0415 - only where there are some

    return plan_servers(config, around)


def planned_servers(
    plan: ServerPlan | None,
    ground: Ground,
    tools: ToolRegistry,
    attachments: Attachments,
    pictures: PictureMaker,
) -> McpServers | None:
    """What keeps them; None: there is nothing to say about any."""
    if plan is None:
        return None
    from gateway.wiring.mcp import build_servers  # noqa: PLC0415 - only where there are some

    return build_servers(plan, ground, tools, attachments, pictures)


async def take_in(
    store: SqlStore, files: Attachments, path: Path, owner: str | None
) -> Sequence[TakenIn]:
    """Conversations from a file (`gateway.wiring.exchange.take_in`)."""
    from gateway.wiring import exchange  # noqa: PLC0415 - with the first that comes

    return await exchange.take_in(store, files, path, owner)
