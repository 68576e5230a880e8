"""Owns what Telegram says of a bot before it runs: who it is, who takes its updates, who writes."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

from gateway.probing.web import SECONDS, Answer, Refused, Unreachable, get


@dataclass(frozen=True, slots=True)
class TelegramBot:
    """A bot as `getMe` describes it."""

    user_id: str
    name: str
    """Without the @."""
    reads_groups: bool
    """Its privacy mode is off: it is shown every message of a group."""
    server_time: float | None


@dataclass(frozen=True, slots=True)
class Sender:
    """Somebody whose message waits for the bot."""

    update_id: int
    user_id: str
    name: str


def ask_bot(base_url: str, token: str, *, seconds: float = SECONDS) -> TelegramBot:
    """Who this token is.

    Raises:
        Refused: nobody.
        Unreachable: Telegram did not answer.
    """
    answer = _call(base_url, token, "getMe", seconds=seconds)
    me = _result(answer)
    return TelegramBot(
        str(me.get("id", "")),
        str(me.get("username", "")),
        bool(me.get("can_read_all_group_messages")),
        answer.server_time,
    )


def webhook_of(base_url: str, token: str, *, seconds: float = SECONDS) -> str:
    """Where its updates are delivered to; empty: nowhere, they are polled.

    Raises:
        Refused: as `ask_bot`.
        Unreachable: as `ask_bot`.
    """
    return str(_result(_call(base_url, token, "getWebhookInfo", seconds=seconds)).get("url") or "")


def waiting_senders(base_url: str, token: str, *, wait_seconds: int) -> list[Sender]:
    """Whose messages wait. Without an offset nothing is confirmed: the daemon gets them all.

    Raises:
        Refused: as `ask_bot`.
        Unreachable: as `ask_bot`, or another program takes the updates.
    """
    answer = _call(
        base_url, token, "getUpdates", {"timeout": wait_seconds}, seconds=wait_seconds + SECONDS
    )
    if answer.status == 409:
        raise Unreachable("another program takes this bot's messages (or a webhook is set)")
    updates = answer.body.get("result") if isinstance(answer.body, dict) else None
    if not isinstance(updates, list):
        _result(answer)
        return []
    found = (_sender(update) for update in updates if isinstance(update, dict))
    return [sender for sender in found if sender is not None]


def _sender(update: dict[str, Any]) -> Sender | None:
    message = update.get("message")
    who = message.get("from") if isinstance(message, dict) else None
    if not isinstance(who, dict) or not who.get("id") or who.get("is_bot"):
        return None
    name = " ".join(str(who[k]) for k in ("first_name", "last_name") if who.get(k))
    shown = f"{name} (@{who['username']})" if who.get("username") else name
    return Sender(int(update.get("update_id", 0)), str(who["id"]), shown)


def _call(
    base_url: str,
    token: str,
    method: str,
    parameters: dict[str, Any] | None = None,
    *,
    seconds: float,
) -> Answer:
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    # A token with a slash or a space in it must not make another address of it.
    quoted = urllib.parse.quote(token, safe=":")
    return get(f"{base_url}{quoted}/{method}{query}", seconds=seconds)


def _result(answer: Answer) -> dict[str, Any]:
    if answer.status in (401, 404):
        raise Refused("Telegram does not know this token")
    result = answer.body.get("result") if isinstance(answer.body, dict) else None
    if answer.status != 200 or not isinstance(result, dict):
        raise Unreachable(f"an answer that is none of Telegram's (HTTP {answer.status})")
    return result
