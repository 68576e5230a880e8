"""Owns reading a command out of a message's text (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ARGUMENT_CHARS = 500
"""For words that name something; who keeps them or hands them on has `whole_argument`."""
_COMMAND = re.compile(
    r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:@([A-Za-z0-9_]{1,64}))?(?:\s+(.*))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Command:
    """``/name@bot argument``, as typed; nobody has checked yet that it exists."""

    name: str
    """Lower case."""
    argument: str = ""
    bot: str | None = None
    """The bot that it is meant for, where the text says so; lower case."""


def whole_argument(text: str) -> str:
    """What stands behind the command's name, for those that keep it: not cut."""
    match = _COMMAND.fullmatch(text.strip())
    return (match[3] or "").strip() if match is not None else ""


def parse_command(text: str) -> Command | None:
    """The command that this text is, or None if it is a message.

    A lone slash, a path (``/etc/hosts``) and a comment (``// …``) are messages.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    name, bot, argument = match.groups()
    return Command(
        name.lower(),
        (argument or "").strip()[:MAX_ARGUMENT_CHARS],
        bot.lower() if bot else None,
    )
