"""Owns what is read off an interaction (JSON): who says which command, and how to answer (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.messages import clean_text
from gateway.intake.commands import parse_command
from gateway.platforms.discord.convert import Facts
from gateway.platforms.discord.out.parcels import EPHEMERAL
from gateway.platforms.discord.reading import (
    GROUP_DIRECT,
    THREADS,
    UnreadableError,
    id_of,
    ids_in,
    name_of,
    sent_at,
)

COMMAND, BUTTON, COMPLETION = 2, 3, 4
"""Types of interactions."""
_CHAT_INPUT, _BUTTON_COMPONENT = 1, 2
_BETWEEN_PEOPLE = 2
"""The context of a chat in which the bot itself is not."""
_TOKEN = re.compile(r"[A-Za-z0-9_.:=+-]{1,1000}")
_KEY = re.compile(r"(\d{1,20})/(\d{1,20})/([^/]+)/([a-z]*)(?:/(\d{1,20}))?")

Kind = Literal["command", "button", "completion", "other"]


@dataclass(frozen=True, slots=True)
class Key:
    """How an interaction is answered, also after a restart; Discord takes it for 15 minutes."""

    application_id: int
    interaction_id: int
    token: str = field(repr=False)
    is_press: bool = False
    """Of a button: the message that it stands on is no answer."""
    quiet: bool = False
    """Only whoever asked sees the answer …"""
    private: bool = False
    """… and where that is not possible any more, nobody does."""
    pressed_id: int | None = None
    """The message with the button."""

    def __str__(self) -> str:
        told = {"b": self.is_press, "q": self.quiet, "p": self.private}
        flags = "".join(flag for flag, is_set in told.items() if is_set)
        below = "" if self.pressed_id is None else f"/{self.pressed_id}"
        return f"{self.application_id}/{self.interaction_id}/{self.token}/{flags}{below}"


def parse_key(text: object) -> Key | None:
    """The opposite of ``str``; None: it is none."""
    match = _KEY.fullmatch(text) if isinstance(text, str) else None
    if match is None or not _TOKEN.fullmatch(match[3]):
        return None
    flags, below = match[4], match[5]
    return Key(
        int(match[1]),
        int(match[2]),
        match[3],
        is_press="b" in flags,
        quiet="q" in flags,
        private="p" in flags,
        pressed_id=None if below is None else int(below),
    )


@dataclass(frozen=True, slots=True)
class Pressed:
    """One interaction. ``facts.text`` is the command as a person would type it."""

    kind: Kind
    key: Key
    facts: Facts
    name: str = ""
    """Of the command; empty: it is none that anybody could have typed."""
    among_others: bool = False
    """Others would see an answer that is not quiet."""
    bot_is_there: bool = True


def read_pressed(payload: object) -> Pressed:
    """An interaction as the gateway tells it.

    Raises:
        UnreadableError: it can not be read as one.
    """
    event = _dict(payload)
    kind = event.get("type")
    token = event.get("token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise UnreadableError("token is none")
    member = _dict(event.get("member"))
    user = _dict(member.get("user")) or _dict(event.get("user"))
    channel = _dict(event.get("channel"))
    id_, guild_id = _required(event, "id"), id_of(event.get("guild_id"))
    text, name = _said(kind, _dict(event.get("data")))
    roles = member.get("roles")
    is_thread = channel.get("type") in THREADS
    facts = Facts(
        id=id_,
        channel_id=id_of(event.get("channel_id")) or _required(channel, "id"),
        author_id=_required(user, "id"),
        author_name=name_of(user, member),
        text=text,
        sent_at=sent_at(id_),
        guild_id=guild_id,
        is_thread=is_thread,
        parent_id=id_of(channel.get("parent_id")) if is_thread else None,
        place_known=guild_id is None or "type" in channel,
        is_person=not user.get("bot") and not user.get("system"),
        role_ids=ids_in(roles) if isinstance(roles, list) else frozenset(),
        mentions=_mentions(event),
    )
    return Pressed(
        kind=_KINDS.get(kind, "other") if isinstance(kind, int) else "other",
        key=Key(
            _required(event, "application_id"),
            id_,
            token,
            is_press=kind == BUTTON,
            pressed_id=_pressed_id(event) if kind == BUTTON else None,
        ),
        facts=facts,
        name=name,
        among_others=guild_id is not None,
        bot_is_there=event.get("context") != _BETWEEN_PEOPLE
        and channel.get("type") != GROUP_DIRECT,
    )


_KINDS: Mapping[int, Kind] = {COMMAND: "command", BUTTON: "button", COMPLETION: "completion"}


def _said(kind: object, data: dict[str, Any]) -> tuple[str, str]:
    """The command as text, and its name."""
    if kind == COMMAND and data.get("type", _CHAT_INPUT) == _CHAT_INPUT:
        said = " ".join([f"/{data.get('name')}", *_values(data.get("options"))])
    elif kind == BUTTON and data.get("component_type") == _BUTTON_COMPONENT:
        said = str(data.get("custom_id"))
    else:
        return "", ""
    said = clean_text(said)
    asked = parse_command(said)
    return (said, asked.name) if asked is not None else ("", "")


def _values(options: object) -> list[str]:
    """What was filled in, in order; also below a subcommand of an old menu."""
    found: list[str] = []
    for option in options if isinstance(options, list) else []:
        if not isinstance(option, dict):
            continue
        value = option.get("value")
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            found.append(str(value))
        elif isinstance(value, bool):
            found.append("on" if value else "off")
        elif isinstance(option.get("options"), list):
            found += [str(option.get("name")), *_values(option["options"])]
    return [value for value in found if value.strip()]


def _mentions(event: dict[str, Any]) -> dict[int, str]:
    """People who are named in what was filled in."""
    resolved = _dict(_dict(event.get("data")).get("resolved"))
    members = _dict(resolved.get("members"))
    return {
        user_id: name_of(_dict(user), _dict(members.get(key)))
        for key, user in _dict(resolved.get("users")).items()
        if (user_id := id_of(key)) is not None
    }


def _pressed_id(event: dict[str, Any]) -> int | None:
    """The message with the button, if it stands in the channel: others are nobody's to change."""
    message = _dict(event.get("message"))
    flags = message.get("flags")
    is_quiet = isinstance(flags, int) and flags & EPHEMERAL
    return None if is_quiet else id_of(message.get("id"))


def _required(fields: dict[str, Any], name: str) -> int:
    found = id_of(fields.get(name))
    if found is None:
        raise UnreadableError(f"{name} is no id")
    return found


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
