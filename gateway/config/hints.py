"""Owns what is said about a key that does not belong where it stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from gateway.config.models import Config
from gateway.config.renamed import HERMES, is_of_hermes
from gateway.config.shape import all_paths, section_at
from gateway.config.tokens import where_to_put

_SECRET = re.compile("key|token|secret|password", re.IGNORECASE)
_SIMILAR = 0.6
_SLIP = 0.8
"""Nearly the same: `max_token` is no secret but `max_tokens` misspelt."""
_MOST_PLACES = 3
_EXAMPLES = {
    "logging": ("level", "DEBUG"),
    "telegram": ("allow_from", "[123456789]"),
    "discord": ("allow_from", "[123456789]"),
    "model": ("name", "claude-sonnet-5-5"),
    "gateway": ("drain_seconds", "20"),
    "agent": ("max_iterations", "90"),
}
"""Where the first key would be a poor example."""


def unknown_key(loc: tuple[Any, ...], spelt: Callable[[str], str] = str) -> str:
    """What is wrong with a key that nobody knows: a secret, or a slip of the pen.

    ``spelt``: how a path is written where this one stands.
    """
    if is_secret(loc[-1:]) and loc[:3] == ("agent", "tools", "mcp"):
        return "unknown key; a server gets its secrets by env or headers, as ${NAME}"
    if is_secret(loc[-1:]) and not _close_here(loc, cutoff=_SLIP):
        name = _variable_of(loc)
        return f"secrets do not belong in this file; {where_to_put(name)}"
    if (here := _close_here(loc, cutoff=_SIMILAR)) is not None:
        return f"unknown key; did you mean {spelt('.'.join(map(str, (*loc[:-1], here))))}?"
    nested = len(loc) > 1
    if elsewhere := _elsewhere(str(loc[-1]), cutoff=_SLIP if nested else _SIMILAR):
        names = " or ".join(map(spelt, elsewhere))
        # In another section it has another meaning, so it is named and not proposed.
        return f"unknown key; there is {names}" if nested else f"unknown key; did you mean {names}?"
    if not nested and is_of_hermes(str(loc[0])):
        return f"unknown key; a section of {HERMES} that says nothing here: take it out"
    return "unknown key"


def is_secret(names: Iterable[Any]) -> bool:
    """Does what is called so hold a secret, by its name?"""
    return any(_SECRET.search(str(name)) for name in names)


def shape_of_section(loc: tuple[Any, ...]) -> str:
    """What has to stand where a section is expected and something else was found."""
    name = str(loc[-1])
    key, value = _EXAMPLES.get(name) or _first_key(section_at(loc))
    return f"must be a section with keys, e.g. {name}: {{{key}: {value}}}"


def _first_key(section: type[BaseModel]) -> tuple[str, str]:
    key, field = next(iter(section.model_fields.items()))
    return key, "…" if field.default is None else str(field.default)


def _variable_of(loc: tuple[Any, ...]) -> str:
    where = ".".join(map(str, loc)).lower()
    for platform in ("telegram", "discord"):
        if platform in where:
            return f"{platform.upper()}_BOT_TOKEN"
    return "ANTHROPIC_API_KEY"


def _close_here(loc: tuple[Any, ...], *, cutoff: float) -> str | None:
    """The most similar key of the section in which it stands."""
    import difflib  # noqa: PLC0415 - only for a key that is wrong

    fields = list(section_at(loc[:-1]).model_fields)
    return next(iter(difflib.get_close_matches(str(loc[-1]), fields, n=1, cutoff=cutoff)), None)


def _elsewhere(wrong: str, *, cutoff: float) -> list[str]:
    """Where the most similar key of all stands."""
    import difflib  # noqa: PLC0415 - as above

    paths = list(all_paths(Config))
    close = difflib.get_close_matches(wrong, [_last(path) for path in paths], n=1, cutoff=cutoff)
    return [path for path in paths if close and _last(path) == close[0]][:_MOST_PLACES]


def _last(path: str) -> str:
    return path.rpartition(".")[2]
