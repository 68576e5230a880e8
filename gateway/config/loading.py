"""Owns reading config.yaml: the file, what the environment lays over it, errors in either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from agent.errors import ConfigError
from gateway.config.environment import environment
from gateway.config.hints import is_secret, shape_of_section, unknown_key
from gateway.config.models import Config
from gateway.config.overlay import lay_over, nearest, variable
from gateway.config.renamed import to_new_names
from gateway.config.showing import redacted
from gateway.config.written import Path, Place, Written, parse_yaml

PassedThrough = dict[str, Any]

_HANDED_ON = frozenset({"args", "env", "headers"})
"""What a server of tools is handed: secrets under any name."""
MAX_FILE_BYTES = 4_000_000
"""A parser in Python takes seconds for this already; no configuration comes near it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What file and environment say together."""

    config: Config
    sections: PassedThrough
    """Those that belong to plugins, as they stand."""
    notes: tuple[str, ...]
    """Keys with old names, a line each."""
    written: Written


def load_config(
    path: FilePath | None, env: Mapping[str, str] | None = None
) -> tuple[Config, PassedThrough]:
    """As `load`, for whoever wants to know no more. ``env``: None: the process's own."""
    loaded = load(path, environment() if env is None else env)
    return loaded.config, loaded.sections


def load(path: FilePath | None, env: Mapping[str, str]) -> Loaded:
    """Read and check a configuration; no file (None, or an empty one) means the defaults.

    Raises:
        ConfigError: one line per problem: place, dotted path, what is wrong, nearest name.
    """
    text, name = (read_text(path), str(path)) if path is not None else ("", "config.yaml")
    return parse(text, name, env)


def read_text(path: FilePath) -> str:
    """What stands in the file.

    Raises:
        ConfigError: it can not be read, or is no text.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ConfigError([f"{path}: can not be read: it is no file"])
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError([f"{path}: has more than {MAX_FILE_BYTES:,} bytes"])
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(
            [f"{path}: is not UTF-8 text ({exc.reason} at byte {exc.start})"]
        ) from exc
    except OSError as exc:
        raise ConfigError([f"{path}: can not be read: {exc.strerror}"]) from exc


def parse_config(text: str, name: str) -> tuple[Config, PassedThrough]:
    """As `parse`, without an environment."""
    loaded = parse(text, name, {})
    return loaded.config, loaded.sections


def parse(text: str, name: str, env: Mapping[str, str]) -> Loaded:
    """As `load`, from text; ``name`` stands in the errors."""
    written = parse_yaml(text, name)
    problems = lay_over(written, env)
    notes, renamed = to_new_names(written)
    ours, sections = _take_plugin_sections(written.data)
    try:
        config = Config.model_validate(ours)
    except ValidationError as exc:
        found = sorted(_explain(dict(error), name, written) for error in exc.errors())
        problems += dict.fromkeys(text for _, text in found)
        raise ConfigError([*renamed, *problems]) from exc
    if renamed or problems:
        raise ConfigError([*renamed, *problems])
    return Loaded(config, sections, tuple(notes), written)


def _take_plugin_sections(data: dict[str, Any]) -> tuple[dict[str, Any], PassedThrough]:
    """Split off sections named after the chosen engine, memory provider or an enabled plugin."""
    names: set[str] = set()
    for section, key in (("context", "engine"), ("memory", "provider"), ("plugins", "enabled")):
        value = (data.get(section) or {}) if isinstance(data.get(section), dict | None) else {}
        chosen = value.get(key)
        names.update(str(n) for n in (chosen if isinstance(chosen, list) else [chosen]) if n)
    names = {n.rsplit("/", 1)[-1].replace("-", "_") for n in names} - set(Config.model_fields)
    passed = {k: v for k, v in data.items() if str(k).replace("-", "_") in names}
    return {k: v for k, v in data.items() if k not in passed}, passed


def _explain(error: dict[str, Any], name: str, written: Written) -> tuple[Place, str]:
    """The place, and what is wrong there."""
    loc: Path = tuple(part for part in error["loc"] if not _is_branch_label(part))
    if error["type"] == "missing":
        loc, key = loc[:-1], loc[-1]
        place = written.keys.get(loc) or Place(name, 1, 1)
        return place, f"{place}: {'.'.join(map(str, loc))}: needs the key {key}"
    while loc and loc not in written.keys:
        loc = loc[:-1]
    unknown = error["type"] == "extra_forbidden"
    place = (written.keys if unknown else written.values).get(loc) or Place(name, 1, 1)
    called = next((old for path, old in written.called.items() if loc[: len(path)] == path), None)
    where = f"{place}: {'.'.join(str(part) for part in loc) or '(the file)'}"
    where += f" (written as {called})" if called else ""
    if unknown:
        return place, f"{where}: {_of_unknown(loc, place)}"
    if error["type"] in ("model_type", "model_attributes_type") and loc:
        return place, f"{where}: {shape_of_section(loc)}"
    message = str(error["msg"]).removeprefix("Value error, ")
    value = error.get("input")
    plain = isinstance(value, str | int | float | bool | None) and repr(value) not in message
    plain = plain and not is_secret(loc[-1:]) and _HANDED_ON.isdisjoint(loc)
    shown = f" (it is {redacted(value)!r})" if plain else ""
    return place, f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _of_unknown(loc: Path, place: Place) -> str:
    """A variable names a whole path, so what it was meant for is named whole."""
    if not place.is_variable:
        return unknown_key(loc)
    said = unknown_key(loc, variable)
    if "did you mean" in said and (near := nearest(place.source)) is not None:
        return f"unknown key; did you mean {near}?"
    like = f"; it is built like {variable('model.name')}, and config.yaml lists every key"
    return said + (like if said == "unknown key" else "")


def _is_branch_label(part: Any) -> bool:
    """Pydantic adds the name of the union's branch to a path; nobody wrote that in the file."""
    return isinstance(part, str) and (
        part.startswith(("literal[", "constrained-", "function-", "list[")) or part == "bool"
    )
