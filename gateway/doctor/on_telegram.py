"""Owns the check of Telegram: the token, who else takes the bot's updates, what groups show it."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.doctor.skew import say_skew
from gateway.probing.telegram import ask_bot, webhook_of
from gateway.probing.web import Refused, Unreachable


def look(ground: Ground) -> Iterable[Finding]:
    """Ask Telegram; nothing is taken from its queue."""
    said = Said("telegram")
    config, token = ground.config.telegram, ground.secrets.telegram_bot_token
    if not token or config.enabled is False:
        return said.findings
    try:
        bot = ask_bot(config.base_url, token)
        webhook = webhook_of(config.base_url, token)
    except Refused as exc:
        said.problem(
            str(exc), "get it again from @BotFather (/mybots, API Token): `posthouse init`"
        )
        return said.findings
    except Unreachable as exc:
        said.warning(
            f"Telegram can not be reached: {exc}",
            "check the network and telegram.base_url; the gateway tries again by itself",
        )
        return said.findings
    said.ok(f"the token is taken; the bot is @{bot.name}")
    if webhook and config.mode == "polling":
        said.warning(
            "a webhook is set for this bot, so polling gets nothing until the gateway removes it",
            "if it comes back, another program uses this token: give each its own bot",
        )
    elif config.mode == "webhook" and config.webhook.url not in (None, webhook):
        level = said.warning if ground.runs else said.note
        level(
            "Telegram delivers to another address than telegram.webhook.url",
            "start the gateway, which sets it; if it changes back, another program uses this token",
        )
    if not config.require_mention and not bot.reads_groups:
        said.warning(
            "telegram.require_mention is false, but the bot's privacy mode hides what groups write",
            "@BotFather: /setprivacy, Disable; then take the bot out of each group and put it back",
        )
    say_skew(said, bot.server_time)
    return said.findings
