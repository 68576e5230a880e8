"""Owns what somebody wants to have set up: secrets to keep, keys of config.yaml to set. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.config.models import plain_id

TELEGRAM_TOKEN = "TELEGRAM_BOT_TOKEN"
DISCORD_TOKEN = "DISCORD_BOT_TOKEN"
ANTHROPIC_KEY = "ANTHROPIC_API_KEY"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Everything that is to be written, at once or not at all."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By their names; those that stay where they are, are not here."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By dotted path."""

    def joined(self, other: Wishes) -> Wishes:
        """Both."""
        return Wishes({**self.secrets, **other.secrets}, {**self.settings, **other.settings})


@dataclass(frozen=True, slots=True)
class Ids:
    """What was typed where numeric ids are asked for."""

    people: tuple[str, ...]
    groups: tuple[str, ...]
    """On Telegram they begin with a minus sign."""
    wrong: tuple[str, ...]
    """Names, most likely."""

    @property
    def opens_to_all(self) -> bool:
        """A wildcard is among them."""
        return "*" in self.people


def read_ids(text: str) -> Ids:
    """Ids, with commas or spaces between them, in brackets or not."""
    people, groups, wrong = [], [], []
    for word in re.split(r"[\s,;\[\]\"']+", text):
        if not word:
            continue
        number = word if word == "*" else plain_id(word)
        if number is None:
            wrong.append(word)
        elif number.startswith("-"):
            groups.append(number)
        else:
            people.append(number)
    return Ids(tuple(dict.fromkeys(people)), tuple(dict.fromkeys(groups)), tuple(wrong))


def as_numbers(ids: tuple[str, ...]) -> list[int | str]:
    """As they stand in config.yaml."""
    return [word if word == "*" else int(word) for word in ids]
