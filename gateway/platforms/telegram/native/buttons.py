"""Owns buttons on Telegram: how they stand under a message, and what pressing one says (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.mail import Button
from agent.messages import clean_text, is_blank
from gateway.intake.commands import parse_command
from gateway.platforms.contract import InboundMessage
from gateway.platforms.telegram.people import person_of, title_of
from gateway.platforms.telegram.values import date, identifier, thread

MAX_DATA_BYTES: Final = 64
MAX_LABEL_CHARS: Final = 40
MAX_IN_ROW: Final = 5
ROW_CHARS: Final = 24
"""Longer labels stand alone: apps cut what does not fit."""
MAX_BUTTONS: Final = 100
PRESS: Final = "press:"
"""Before the number of a press: it is no message, so nothing can be sent in answer to it."""


def usable(buttons: Sequence[Button]) -> list[list[str]]:
    """As a payload has them: label and command, without those that Telegram would refuse."""
    return [
        [clean_text(button.label)[:MAX_LABEL_CHARS].strip() or button.command, button.command]
        for button in buttons
        if 1 <= len(button.command.encode("utf-8", "replace")) <= MAX_DATA_BYTES
        and not is_blank(button.command)
    ][:MAX_BUTTONS]


def rows(buttons: Sequence[Sequence[str]]) -> list[list[tuple[str, str]]]:
    """As they stand: in their order, short ones beside each other."""
    found: list[list[tuple[str, str]]] = []
    used = 0
    for label, command in buttons:
        used += len(label)
        full = not found or len(found[-1]) >= MAX_IN_ROW or used > ROW_CHARS
        # Numbers stand among themselves.
        if full or label.isdecimal() != found[-1][-1][0].isdecimal():
            found.append([])
            used = len(label)
        found[-1].append((label, command))
    return found


@dataclass(frozen=True, slots=True)
class Pressed:
    """Somebody pressed a button: the app waits until it is told that this was seen."""

    query_id: str
    message: InboundMessage | None
    """What that says, as if typed; None: it was pressed where we talk to nobody."""
    ours: bool
    """Is it a command of ours? Anything else is not done: who writes an app can send any text."""


def pressed(
    query: Mapping[str, Any], my_id: int, update_id: str | None, commands: Collection[str]
) -> Pressed | None:
    """What a callback query says; None: nobody pressed it, or it can not be answered.

    The message may be too old to be shown (it has no date then), or sent by way of an inline bot
    into a chat that we do not know.

    Raises:
        Exception: this is no query as Telegram makes it.
    """
    query_id = query["id"]
    if not isinstance(query_id, str) or not query_id.isascii() or not query_id.isalnum():
        raise ValueError("a query without an id")
    person = query["from"]
    if person.get("is_bot"):
        return None
    below = query.get("message")
    if below is None or below["chat"]["type"] not in ("private", "group", "supergroup"):
        return Pressed(query_id, None, ours=False)
    data = query.get("data")
    text = clean_text(data).strip() if isinstance(data, str) else ""
    command = parse_command(text)
    ours = (
        command is not None
        and command.name in commands
        and command.bot is None
        and len(text.encode()) <= MAX_DATA_BYTES
    )
    chat, direct = below["chat"], below["chat"]["type"] == "private"
    message = InboundMessage(
        platform="telegram",
        bot_id=str(my_id),
        chat_id=identifier(chat["id"]),
        chat_kind="direct" if direct else "group",
        message_id=f"{PRESS}{query_id}",
        sender_id=identifier(person["id"]),
        sender_name=clean_text(person_of(person)),
        chat_name=None if direct else title_of(chat),
        text=text if ours else "",
        sent_at=date(below["date"]),
        thread_id=thread(below, direct=direct),
        update_id=update_id,
        interaction=identifier(below["message_id"]),
    )
    return Pressed(query_id, message, ours)
