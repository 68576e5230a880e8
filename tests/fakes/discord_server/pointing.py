"""Points discord.py at a loopback server; both addresses are process-wide and are put back."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import yarl

with warnings.catch_warnings():
    # discord.py's voice half imports audioop, which warns on Python 3.11 and 3.12.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord
    import discord.gateway
    import discord.http

__all__ = ["discord", "discord_py_at"]


@contextlib.contextmanager
def discord_py_at(api_base: str, gateway_url: str) -> Iterator[None]:
    """Within the block discord.py talks to these addresses only.

    A plain Client never asks `GET /gateway`: it dials DEFAULT_GATEWAY, so both must be set.
    """
    base = discord.http.Route.BASE
    gateway = discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
    discord.http.Route.BASE = api_base
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway_url)
    try:
        yield
    finally:
        discord.http.Route.BASE = base
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = gateway
