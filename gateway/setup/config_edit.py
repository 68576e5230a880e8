"""Owns setting keys in the text of a config.yaml of somebody's: comments and order stay. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from agent.errors import ConfigError
from gateway.config.loading import parse_config
from gateway.config.models import Config
from gateway.setup.config_text import flow, merged, rendered


def edited(text: str, existing: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The text with these keys (dotted) set; where that goes wrong, a text of our own.

    Raises:
        ConfigError: the keys do not go together with what is there.
    """
    wanted = merged(existing, settings)
    if wanted == existing:
        return text
    own = rendered(wanted)
    config, passed = parse_config(own, "the new config.yaml")
    if not existing:
        return own
    try:
        # An editor of text may be wrong about a text: what it says now decides.
        found = _with(text, existing, settings)
        sound = parse_config(found, "the new config.yaml") == (config, passed)
    except (ConfigError, yaml.YAMLError):
        return own
    return found if sound else own


def _with(text: str, existing: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    usual = Config().model_dump(mode="json")
    for path, value in settings.items():
        if _at(existing, path) != value and (_has(existing, path) or _at(usual, path) != value):
            text = _set(text, path.split("."), flow(value))
    return text


def _set(text: str, path: list[str], value: str) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    place: yaml.Node | None = root
    for depth, name in enumerate(path):
        pair = _pair(place, name)
        last = depth == len(path) - 1
        if pair is None:
            rest = "".join(f"\n{'  ' * i}{part}:" for i, part in enumerate(path[depth + 1 :], 1))
            return _insert(text, place, name, f"{rest} {value}", top=depth == 0)
        key, node = pair
        if last or (isinstance(node, yaml.ScalarNode) and not node.value):
            nested = "" if last else f"\n{' ' * (key.start_mark.column + 2)}{path[-1]}:"
            return f"{text[: key.end_mark.index]}:{nested} {value}{text[_end(node) :]}"
        place = node
    return text


def _pair(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _insert(text: str, place: yaml.Node | None, name: str, rest: str, *, top: bool) -> str:
    if top or not isinstance(place, yaml.MappingNode):
        return f"{text.rstrip()}\n\n{name}:{rest}\n".lstrip()
    start = place.start_mark.index
    if place.flow_style:
        comma = ", " if place.value else ""
        return f"{text[: start + 1]}{name}:{rest}{comma}{text[start + 1 :]}"
    return f"{text[:start]}{name}:{rest}\n{' ' * place.start_mark.column}{text[start:]}"


def _end(node: yaml.Node) -> int:
    """Where its last character is; to the parser a block ends where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _has(data: Mapping[str, Any], path: str) -> bool:
    section, _, key = path.rpartition(".")
    place = _at(data, section) if section else data
    return isinstance(place, Mapping) and key in place
