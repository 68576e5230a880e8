"""Owns what is said of secrets that were most likely meant otherwise: no reason not to start."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.environment import Secrets
from gateway.config.overlay import nearly_meant

_OTHER_NAMES = {
    "TELEGRAM_BOT_TOKEN": ("TELEGRAM_TOKEN", "TELEGRAM_API_TOKEN", "TELEGRAM_BOT_KEY"),
    "DISCORD_BOT_TOKEN": ("DISCORD_TOKEN", "DISCORD_API_TOKEN", "DISCORD_BOT_KEY"),
    "ANTHROPIC_API_KEY": ("ANTHROPIC_KEY", "ANTHROPIC_API_TOKEN", "ANTHROPIC_TOKEN"),
}
"""What is read, and what people and other programs call it."""
_TELEGRAM_TOKEN = re.compile(r"\d+:[\w-]+")


def doubts_about(secrets: Secrets, env: Mapping[str, str]) -> list[str]:
    """One line for each; an empty credential is none, for a unit has to name files that are there.

    ``secrets``: as they were read from this environment.
    """
    found: list[str] = []
    for name, value in secrets.by_name().items():
        if value:
            continue
        if env.get(f"{name}_FILE"):
            found.append(f"{name}_FILE: {env[f'{name}_FILE']} is empty, so there is no {name}")
        found += [
            f"{other} is set, but nothing reads it: call it {name}"
            for other in _OTHER_NAMES.get(name, ())
            if env.get(other, "").strip()
        ]
    found += nearly_meant(env)
    telegram = secrets.telegram_bot_token
    if telegram and not _TELEGRAM_TOKEN.fullmatch(telegram):
        found.append(
            "TELEGRAM_BOT_TOKEN does not look like one: @BotFather gives 123456789:AA… (digits, a "
            "colon, letters)"
        )
    discord = secrets.discord_bot_token
    if discord and _TELEGRAM_TOKEN.fullmatch(discord):
        found.append("DISCORD_BOT_TOKEN looks like a token of Telegram's")
    elif discord and re.search(r"\s", discord):
        found.append("DISCORD_BOT_TOKEN has a space in it: the token stands there alone, no “Bot ”")
    return found
