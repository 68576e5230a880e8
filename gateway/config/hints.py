"""Owns what is said about a key that does not belong where it stands. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from gateway.config.models import Config

_SECRET = re.compile("key|token|secret|password", re.IGNORECASE)
_SIMILAR = 0.6
_SLIP = 0.8
"""Nearly the same: `max_token` is no secret but `max_tokens` misspelt."""
_EXAMPLES = {
    "logging": ("level", "DEBUG"),
    "telegram": ("allow_from", "[123456789]"),
    "discord": ("allow_from", "[123456789]"),
    "model": ("name", "claude-sonnet-5-5"),
    "gateway": ("drain_seconds", "20"),
    "agent": ("max_iterations", "90"),
}
"""Where the first key would be a poor example."""


def unknown_key(loc: tuple[Any, ...]) -> str:
    """What is wrong with a key that nobody knows: a secret, or a slip of the pen."""
    if is_secret(loc[-1:]) and loc[:3] == ("agent", "tools", "mcp"):
        return "unknown key; a server gets its secrets by env or headers, as ${NAME}"
    if is_secret(loc[-1:]) and not _close_here(loc, cutoff=_SLIP):
        name = _variable_of(loc)
        return f"secrets do not belong in this file; set {name} in the environment, or {name}_FILE"
    return f"unknown key{_nearest(loc)}"


def is_secret(names: Iterable[Any]) -> bool:
    """Does what is called so hold a secret, by its name?"""
    return any(_SECRET.search(str(name)) for name in names)


def shape_of_section(loc: tuple[Any, ...]) -> str:
    """What has to stand where a section is expected and something else was found."""
    name = str(loc[-1])
    key, value = _EXAMPLES.get(name) or _first_key(_section_at(loc))
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
    fields = list(_section_at(loc[:-1]).model_fields)
    return next(iter(difflib.get_close_matches(str(loc[-1]), fields, n=1, cutoff=cutoff)), None)


def _nearest(loc: tuple[Any, ...]) -> str:
    """A hint with the most similar key of its section; for a whole section, of any."""
    wrong = str(loc[-1])
    prefix = "".join(f"{part}." for part in loc[:-1])
    here = _close_here(loc, cutoff=_SIMILAR)
    if here is not None:
        return f"; did you mean {prefix}{here}?"
    if prefix:  # another section's key would have another meaning
        return ""
    everywhere = {path.rsplit(".", 1)[-1]: path for path in all_paths(Config)}
    close = difflib.get_close_matches(wrong, list(everywhere), n=1, cutoff=_SIMILAR)
    return f"; did you mean {everywhere[close[0]]}?" if close else ""


def _section_at(loc: tuple[Any, ...]) -> type[BaseModel]:
    section: type[BaseModel] = Config
    parts = iter(loc)
    for part in parts:
        field = section.model_fields.get(str(part))
        named = _named_sections(field.annotation) if field else None
        inner = named or (_model_in(field.annotation) if field else None)
        if inner is None:
            break
        section = inner
        if named is not None:
            next(parts, None)  # its name: any
    return section


def _named_sections(annotation: Any) -> type[BaseModel] | None:
    """Of a mapping of sections by names that are free to choose: the section."""
    return _model_in(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is dict:
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def all_paths(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted path that a section knows."""
    for key, field in section.model_fields.items():
        yield prefix + key
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from all_paths(inner, f"{prefix}{key}.")
