"""Owns asking for a bot's token: unseen, tried at once, asked for again until it is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.doctor.ground import Ground
from gateway.doctor.kept_secrets import source_of
from gateway.probing.web import Refused, Unreachable
from gateway.setup.talk import Talk

Bot = TypeVar("Bot")


@dataclass(frozen=True, slots=True)
class Token(Generic[Bot]):
    """One that is taken, or that somebody wants to keep untried."""

    text: str
    bot: Bot | None
    """Whose it is; None: nobody could be asked."""
    to_keep: dict[str, str]
    """By its name, where it is new, or stands in this shell only: a service would not find it."""


def ask_token(
    talk: Talk,
    ground: Ground,
    name: str,
    platform: str,
    *,
    there: str | None,
    tried: Callable[[str], Bot] | None,
    refused: str,
) -> Token[Bot] | None:
    """None: this platform is not wanted.

    ``there``: the one that holds now. ``tried``: whose a token is; None: nobody is to be asked.
    ``refused``: what to do about one that is not taken.
    """
    where, file = source_of(ground, name)
    nothing = f"Enter: no {platform}"
    hint = f"Enter: the one from {where}" if there else nothing
    while True:
        typed = talk.secret(f"   Token; {hint}").removeprefix("Bot ")
        token = typed or there
        if not token:
            return None
        to_keep = {name: token} if typed or file is None else {}
        if tried is None:
            return Token(token, None, to_keep)
        try:
            return Token(token, tried(token), to_keep)
        except Refused:
            talk.say(f"   {platform} does not know this token. {refused}")
            there, hint = None, nothing
        except Unreachable as exc:
            talk.say(f"   {platform} can not be reached: {exc}.")
            if talk.sure("   Keep the token untried?", default=False):
                return Token(token, None, to_keep)
