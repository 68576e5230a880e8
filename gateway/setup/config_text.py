"""Owns the text of a config.yaml that `posthouse init` writes: what differs, and why. Pure."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from gateway.config.models import Config
from gateway.config.renamed import RENAMED

HEAD = """\
# posthouse configuration, written by `posthouse init`. Only what differs from the defaults stands
# here; config.yaml in the folder of posthouse lists every key. `posthouse config check` finds
# mistakes, `posthouse doctor` looks at everything. Secrets belong into secrets/, not here.
"""
_ABOVE = {
    "model": "Which model answers.",
    "telegram": "The Telegram bot. Its token belongs into secrets/TELEGRAM_BOT_TOKEN.",
    "discord": "The Discord bot. Its token belongs into secrets/DISCORD_BOT_TOKEN.",
    "timezone": "For times in the chat, reminders and jobs.",
}
_BESIDE = {
    "telegram.allow_from": "people, everywhere; nobody else is answered",
    "telegram.allow_chats": "everyone in these groups, there only",
    "telegram.base_url": "a Bot API server other than Telegram's own",
    "telegram.admins": "may change what a group shares, and /restart",
    "discord.allow_from": "people, everywhere; nobody else is answered",
    "discord.admins": "may change what a server shares, and /restart",
    "discord.api_base": "another server than Discord's own",
    "model.name": "the default is claude-sonnet-5-5",
    "model.base_url": "a server that speaks the Messages API",
}
NOTHING_YET = """\
# Nothing differs yet. What is set first (without the # in front), or `posthouse init` asks for it:
#
# telegram:                   # the bot's token: secrets/TELEGRAM_BOT_TOKEN
#   allow_from: [123456789]   # people, everywhere; nobody else is answered
#   admins: [123456789]       # who may change what a group shares, and /restart
# discord:                    # the bot's token: secrets/DISCORD_BOT_TOKEN
#   allow_from: [123456789012345678]
#   admins: [123456789012345678]
# model:                      # its key: secrets/ANTHROPIC_API_KEY
#   name: claude-sonnet-5-5
# timezone: Europe/Berlin     # for times in the chat, reminders and jobs
"""
_BELOW = {
    "telegram": "# admins: [123456789]   # who may change what a group shares, and /restart",
    "discord": "# admins: [123456789]   # who may change what a server shares, and /restart",
}


def merged(existing: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What was there, with these keys (dotted) set; a key that gets its default is taken away."""
    data: dict[str, Any] = copy.deepcopy(dict(existing))
    usual = Config().model_dump(mode="json")
    for renamed in RENAMED:
        if not renamed.keep and any(path in settings for path in renamed.new):
            _drop(data, renamed.old)  # two names with two values would be refused
    for path, value in settings.items():
        *sections, key = path.split(".")
        place, default = data, usual
        for name in sections:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place, default = place[name], default[name]
        if value == default[key]:
            place.pop(key, None)
        else:
            place[key] = value
    return {name: value for name, value in data.items() if value != {}}


def _drop(data: dict[str, Any], path: str) -> None:
    *sections, key = path.split(".")
    place: Any = data
    for name in sections:
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place.pop(key, None)


def rendered(data: Mapping[str, Any]) -> str:
    """The file."""
    parts = [HEAD] if data else [HEAD, NOTHING_YET]
    for name in sorted(data, key=_place_of):
        value = data[name]
        above = f"# {_ABOVE[name]}\n" if name in _ABOVE else ""
        if not isinstance(value, dict):
            parts.append(f"{above}{_entry(name, value)}")
            continue
        lines = [_commented(_entry(key, value[key]), f"{name}.{key}") for key in value]
        if name in _BELOW and "admins" not in value:
            lines.append(f"{_BELOW[name]}\n")
        body = "".join(f"  {line}\n" for text in lines for line in text.splitlines())
        parts.append(f"{above}{name}:\n{body}")
    return "\n".join(parts)


def changes(before: str, after: str) -> str:
    """What becomes of the file, line by line; empty: nothing."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "config.yaml", "config.yaml (new)", lineterm=""
    )
    return "\n".join(lines)


def flow(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("...\n").rstrip()


def _entry(key: str, value: Any) -> str:
    """One key; lists of plain values stand on one line."""
    if isinstance(value, list) and not any(isinstance(v, dict | list) for v in value):
        return f"{flow(key)}: {flow(value)}\n"
    return yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, width=10_000)


def _commented(text: str, path: str) -> str:
    said = _BESIDE.get(path)
    if said is None or text.count("\n") != 1:
        return text
    return f"{text.rstrip():<40}  # {said}\n"


def _place_of(name: str) -> int:
    order = list(Config.model_fields)
    return order.index(name) if name in order else len(order)
