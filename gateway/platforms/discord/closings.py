"""Owns what it means that Discord refuses a login, or closes a connection (pure)."""

from __future__ import annotations

from gateway.platforms.contract import PlatformConfigError, PlatformError, PlatformUnavailable

TOKEN_HINT = "discord refuses the token; reset it in the developer portal and set DISCORD_BOT_TOKEN"
INTENT_HINT = (
    "discord refuses the Message Content intent; switch it on for the bot in the developer portal "
    "(Bot, Privileged Gateway Intents)"
)


def closed(code: int) -> PlatformError:
    """What a close code of the gateway means."""
    if code == 4004:
        return PlatformConfigError(TOKEN_HINT)
    if code == 4014:
        return PlatformConfigError(INTENT_HINT)
    if 4010 <= code <= 4013:
        return PlatformConfigError(f"discord refuses this kind of connection (code {code})")
    return PlatformUnavailable(f"discord closed the connection (code {code})")
