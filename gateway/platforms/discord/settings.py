"""Owns what one bot on Discord is set to."""

from __future__ import annotations

from dataclasses import dataclass, field

PUBLIC_API_BASE = "https://discord.com/api/v10"


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """Of one bot."""

    token: str = field(repr=False)
    api_base: str = PUBLIC_API_BASE
    gateway_url: str | None = None
    """None: asked from the API, together with how many shards are needed."""
    patience_seconds: float = 120.0
    """How long the SDK may try to reconnect by itself before a new start is better."""
    send_timeout_seconds: float = 90.0
    """The SDK's own retries and waits for rate limits included."""
    file_timeout_seconds: float = 120.0
    guild_ready_seconds: float = 2.0
    heartbeat_timeout_seconds: float = 60.0
    shortest_heartbeat_seconds: float = 5.0
    reidentify_pause_seconds: float = 5.0
    upload_limit_bytes: int = 10 << 20
    """Of one file; Discord's own limit, wherever nobody pays for more."""
