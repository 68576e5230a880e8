"""Owns what Discord says of a bot before it runs: who it is, what it may read, how to invite it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gateway.probing.patience import within
from gateway.probing.web import SECONDS, Answer, Refused, Unreachable, get, in_words

_READS_TEXT = (1 << 18) | (1 << 19)
"""Flags of an application: the message content intent, for large bots and for small ones."""
_PERMISSIONS = (
    1 << 6  # add reactions
    | 1 << 10  # view channels
    | 1 << 11  # send messages
    | 1 << 14  # embed links
    | 1 << 15  # attach files
    | 1 << 16  # read message history
    | 1 << 38  # send messages in threads
)


@dataclass(frozen=True, slots=True)
class DiscordBot:
    """A bot and its application."""

    user_id: str
    name: str
    application_id: str
    reads_text: bool
    """The message content intent is on."""
    servers: int
    owner: tuple[str, str] | None
    """Id and name of the person to whom the application belongs; None: a team's."""
    server_time: float | None

    @property
    def invitation(self) -> str:
        """Where an admin of a server lets it in: as a bot, with its menu of commands."""
        return (
            f"https://discord.com/oauth2/authorize?client_id={self.application_id}"
            f"&scope=bot+applications.commands&permissions={_PERMISSIONS}"
        )

    @property
    def page(self) -> str:
        """Where its intents are switched on."""
        return f"https://discord.com/developers/applications/{self.application_id}/bot"


def ask_bot(api_base: str, token: str, *, seconds: float = SECONDS) -> DiscordBot:
    """Who this token is.

    Raises:
        Refused: nobody.
        Unreachable: Discord did not answer.
    """
    answer = _ask(api_base, token, "/users/@me", seconds)
    me = _object(answer)
    application = _object(_ask(api_base, token, "/applications/@me", seconds))
    flags = application.get("flags")
    guilds = _ask(api_base, token, "/users/@me/guilds", seconds).body
    return DiscordBot(
        str(me.get("id", "")),
        str(me.get("username", "")),
        str(application.get("id", "")),
        isinstance(flags, int) and bool(flags & _READS_TEXT),
        len(guilds) if isinstance(guilds, list) else 0,
        _owner(application),
        answer.server_time,
    )


def _owner(application: dict[str, Any]) -> tuple[str, str] | None:
    owner = application.get("owner")
    if application.get("team") or not isinstance(owner, dict) or not owner.get("id"):
        return None
    return str(owner["id"]), str(owner.get("username", ""))


def reach_gateway(api_base: str, token: str, url: str | None, *, seconds: float = SECONDS) -> str:
    """The host of its gateway, once that takes a connection. ``url``: None, ask for it.

    Raises:
        Refused: as `ask_bot`.
        Unreachable: it can not be reached.
    """
    where = url or str(_object(_ask(api_base, token, "/gateway/bot", seconds)).get("url", ""))
    parts = urlsplit(where)
    host, secure = parts.hostname or "", parts.scheme == "wss"
    if not host:
        raise Unreachable("an answer that is none of Discord's")
    port = parts.port or (443 if secure else 80)
    try:
        within(seconds, lambda: _connect(host, port, seconds, secure=secure))
    except (OSError, TimeoutError) as exc:
        raise Unreachable(f"{host}, port {port}: {in_words(exc)}") from None
    return host


def _connect(host: str, port: int, seconds: float, *, secure: bool) -> None:
    with socket.create_connection((host, port), timeout=seconds) as plain:
        if secure:
            ssl.create_default_context().wrap_socket(plain, server_hostname=host).close()


def _ask(api_base: str, token: str, path: str, seconds: float) -> Answer:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Refused("no token of Discord's looks like this")
    return get(api_base + path, {"Authorization": f"Bot {token}"}, seconds=seconds)


def _object(answer: Answer) -> dict[str, Any]:
    if answer.status == 401:
        raise Refused("Discord does not know this token")
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise Unreachable(f"an answer that is none of Discord's (HTTP {answer.status})")
    return answer.body
