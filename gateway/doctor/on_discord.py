"""Owns the check of Discord: the token, the intent to read texts, its gateway, its servers."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.doctor.skew import say_skew
from gateway.probing.discord import ask_bot, reach_gateway
from gateway.probing.web import Refused, Unreachable


def look(ground: Ground) -> Iterable[Finding]:
    """Ask Discord; no session is begun."""
    said = Said("discord")
    config, token = ground.config.discord, ground.secrets.discord_bot_token
    if not token or config.enabled is False:
        return said.findings
    try:
        bot = ask_bot(config.api_base, token)
    except Refused as exc:
        said.problem(
            str(exc), "make a new one (developer portal, Bot, Reset Token): `posthouse init`"
        )
        return said.findings
    except Unreachable as exc:
        said.warning(
            f"Discord can not be reached: {exc}",
            "check the network and discord.api_base; the gateway tries again by itself",
        )
        return said.findings
    said.ok(f"the token is taken; the bot is {bot.name}")
    if not bot.reads_text:
        said.problem(
            "the message content intent is off, so Discord refuses the bot",
            f"switch on MESSAGE CONTENT INTENT at {bot.page}",
        )
    if not bot.servers:
        said.note("it is in no server yet", f"invite it: {bot.invitation}")
    try:
        said.ok(f"its gateway {reach_gateway(config.api_base, token, config.gateway_url)} answers")
    except (Refused, Unreachable) as exc:
        said.warning(
            f"its gateway can not be reached: {exc}",
            "let this machine open connections to that port; check discord.gateway_url",
        )
    say_skew(said, bot.server_time)
    return said.findings
