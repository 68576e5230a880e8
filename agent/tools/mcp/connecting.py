"""Owns reaching a server without the `mcp` package being loaded before the first one is."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType

from agent.llm.background import in_daemon_thread
from agent.tools.mcp.nouns import Connection, ServerHopeless, ServerSettings

MISSING = "the package mcp is not installed: pip install 'posthouse[mcp]'"


def is_installed() -> bool:
    """Can servers be reached at all?"""
    return importlib.util.find_spec("mcp") is not None


@asynccontextmanager
async def connect(server: ServerSettings, *, legacy: bool = False) -> AsyncIterator[Connection]:
    """As `agent.tools.mcp.nouns.Connector`; the import (0.7 s) is made beside the loop."""
    if not is_installed():
        raise ServerHopeless(MISSING)
    try:
        sdk = await in_daemon_thread(_sdk, "mcp-import")
    except ImportError as exc:
        raise ServerHopeless(f"the package mcp does not load ({exc.name})") from exc
    async with sdk.connect(server, legacy=legacy) as connection:
        yield connection


def _sdk() -> ModuleType:
    from agent.tools.mcp import sdk  # noqa: PLC0415 - slow, and an extra

    return sdk
