"""Owns what the environment says about config.yaml: ``POSTHOUSE__MODEL__NAME`` is `model.name`.

Two underscores, so that no key of ours (they have single ones) and no other variable of ours
(``POSTHOUSE_HOME``) can be meant. A value is read as YAML reads it; what goes before the file's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_origin

from agent.errors import ConfigError
from gateway.config.models import Config
from gateway.config.shape import all_paths, field_at, takes_text
from gateway.config.written import Path, Place, Written, parse_value

PREFIX = "POSTHOUSE__"
_SLIP = 0.8
_POSITION = re.compile(r"^:(?:\d+:\d+:)? ")


def lay_over(written: Written, env: Mapping[str, str]) -> list[str]:
    """Write what the variables say over what stands there; gives back what can not be."""
    problems: list[str] = []
    for name in sorted(n for n in env if n.startswith(PREFIX)):
        path = path_of(name)
        if not all(path):
            problems.append(f"{name}: names no key; it is built like {variable('model.name')}")
            continue
        try:
            value = _value(env[name], path)
        except ConfigError as exc:
            problems += [f"{name}: {_POSITION.sub('', line)}" for line in exc.problems]
            continue
        if (odd := written.put(path, value)) is not None:
            problems.append(f"{name}: {'.'.join(map(str, odd))} is no section in the file")
            continue
        for places in (written.keys, written.values):
            for below in [p for p in places if p[: len(path)] == path]:
                del places[below]  # a list of the file's that is not in force
            for length in range(1, len(path) + 1):
                places.setdefault(path[:length], Place(name))
    return problems


def path_of(name: str) -> Path:
    """The path that a variable stands for; names of the user's own choice keep their case."""
    path: list[str] = []
    for part in name.removeprefix(PREFIX).split("__"):
        field = field_at(tuple(path)) if path else None
        free = field is not None and get_origin(field.annotation) is dict
        path.append(part if free and not part.isupper() else part.lower())
    return tuple(path)


def variable(path: str | Iterable[Any]) -> str:
    """The variable of a path."""
    parts = path.split(".") if isinstance(path, str) else [str(part) for part in path]
    return PREFIX + "__".join(part.upper() for part in parts)


def nearly_meant(env: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that has one underscore where there should be two."""
    ours = {_squeezed(variable(path)): variable(path) for path in all_paths(Config)}
    for name in env:
        if name.startswith("POSTHOUSE_") and not name.startswith(PREFIX):
            meant = ours.get(_squeezed(name))
            if meant is not None:
                yield f"{name} is set, but nothing reads it: call it {meant}"


def nearest(name: str) -> str | None:
    """The variable that was most likely meant, all of it; None: nothing is near."""
    import difflib  # noqa: PLC0415 - only for one that is wrong

    known = [variable(path).removeprefix(PREFIX) for path in all_paths(Config)]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=_SLIP)
    return PREFIX + near[0] if near else None


def _squeezed(name: str) -> str:
    return re.sub("_+", "_", name)


def _value(text: str, path: Path) -> Any:
    """As YAML takes it; where a text is wanted and it takes it for something else, as it stands.

    Raises:
        ConfigError: it is no YAML.
    """
    field = field_at(path)
    wants_text = field is not None and takes_text(field.annotation)
    try:
        value = parse_value(text)
    except ConfigError:
        if wants_text:
            return text
        raise
    return text if wants_text and value is not None and not isinstance(value, str) else value
