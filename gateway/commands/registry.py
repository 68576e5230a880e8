"""Owns the list of commands: names, help, where each runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from gateway.commands import context, lineage, talk
from gateway.commands.contract import Call, Command, CommandHost


async def help_text(host: CommandHost, call: Call) -> str:
    """The list of commands."""
    lines = [f"/{c.name}{f' {c.usage}' if c.usage else ''}: {c.help}" for c in COMMANDS.values()]
    return "\n".join(["Just write to me. I also know:", *lines])


COMMANDS: Mapping[str, Command] = {
    c.name: c
    for c in (
        Command("new", "start a new conversation; the old one is kept", talk.new, "in order", True),
        Command("stop", "end what I am doing right now", talk.stop),
        Command("status", "model, window, context size, platforms", context.status),
        Command(
            "compress",
            "shorten the conversation now, with a topic to keep in detail",
            context.compress,
            "in order",
            admin_if_shared=True,
            usage="[focus]",
        ),
        Command("lineage", "the sessions behind this conversation", lineage.lineage),
        Command("whoami", "your id here", talk.whoami),
        Command("help", "this list", help_text),
    )
}
ALIASES: Mapping[str, str] = {"start": "help", "reset": "new", "compact": "compress"}


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return COMMANDS.get(ALIASES.get(name, name))


def near(name: str) -> list[str]:
    """Names that somebody may have meant."""
    return difflib.get_close_matches(name, [*COMMANDS], n=2, cutoff=0.6)
