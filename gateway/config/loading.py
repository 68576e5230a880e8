"""Owns reading config.yaml: positions, duplicate keys, unknown names, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agent.errors import ConfigError
from gateway.config.hints import is_secret, shape_of_section, unknown_key
from gateway.config.models import Config

PassedThrough = dict[str, Any]
_Lines = dict[tuple[str | int, ...], int]

_INT = "tag:yaml.org,2002:int"
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")

MAX_FILE_BYTES = 4_000_000
"""A parser in Python takes seconds for this already; no configuration comes near it."""
MAX_VALUES = 50_000
"""With every alias written out: ten lines of aliases of aliases make ten thousand million."""
MAX_DEPTH = 50


def load_config(path: Path | None) -> tuple[Config, PassedThrough]:
    """Read and check a configuration; no file (None, or an empty one) means the defaults.

    Gives back the configuration and the sections that belong to plugins, as they stand.

    Raises:
        ConfigError: one line per problem: file, line, dotted path, what is wrong, nearest name.
    """
    if path is None:
        return Config(), {}
    return parse_config(read_text(path), str(path))


def read_text(path: Path) -> str:
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
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(
            [f"{path}: is not UTF-8 text ({exc.reason} at byte {exc.start})"]
        ) from exc
    except OSError as exc:
        raise ConfigError([f"{path}: can not be read: {exc.strerror}"]) from exc


def parse_config(text: str, name: str) -> tuple[Config, PassedThrough]:
    """As `load_config`, from text; ``name`` stands in the errors."""
    data, lines = _parse_yaml(text, name)
    ours, passed = _take_plugin_sections(data)
    try:
        return Config.model_validate(ours), passed
    except ValidationError as exc:
        problems = sorted(_explain(dict(error), name, lines) for error in exc.errors())
        raise ConfigError(list(dict.fromkeys(text for _, text in problems))) from exc


def _parse_yaml(text: str, name: str) -> tuple[dict[str, Any], _Lines]:
    lines: _Lines = {}
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return {}, lines
            problems = [f"{name}:{line}: {what}" for what, line in _walk(node, (), lines)]
            if problems:
                raise ConfigError(problems)
            data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = exc.problem or exc.context or ""
        tab = ": indent with spaces, not tabs" if "\\t" in problem or "tab" in problem else ""
        raise ConfigError([f"{where}: not valid YAML: {problem}{tab}"]) from exc
    except yaml.YAMLError as exc:
        raise ConfigError([f"{name}: not valid YAML: {exc}"]) from exc
    except ValueError as exc:  # a date or a number that YAML takes for one and Python does not
        raise ConfigError([f"{name}: not valid YAML: {exc}"]) from exc
    except RecursionError as exc:
        raise ConfigError([f"{name}: is nested more than {MAX_DEPTH} levels deep"]) from exc
    if data is None:
        return {}, lines
    if not isinstance(data, dict):
        raise ConfigError([f"{name}:1: must consist of `section:` keys, but is a {_kind(data)}"])
    return data, lines


def _walk(node: yaml.Node, path: tuple[str | int, ...], lines: _Lines) -> Iterator[tuple[str, int]]:
    """Note the line of every path; yield keys that stand twice in one mapping.

    Raises:
        ConstructorError: it unfolds into more than a configuration can be.
    """
    if len(path) > MAX_DEPTH:
        raise _unreadable(f"more than {MAX_DEPTH} levels deep, or an alias inside itself", node)
    if len(lines) > MAX_VALUES:
        raise _unreadable(f"more than {MAX_VALUES:,} values, with all aliases written out", node)
    lines.setdefault(path, node.start_mark.line + 1)
    if (
        isinstance(node, yaml.ScalarNode)
        and node.tag == _INT
        and not _DECIMAL.fullmatch(node.value)
    ):
        # An id with a zero in front would be read as an octal number: another person's.
        yield (
            f"{node.value} is another number in YAML than it looks like; quote it or write it "
            "without leading zeros, colons or letters",
            node.start_mark.line + 1,
        )
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _unreadable("a key has to be a plain word", key)
            label = str(key.value)
            line = key.start_mark.line + 1
            if label in seen:
                yield f"{'.'.join(map(str, (*path, label)))} stands there twice", line
            seen.add(label)
            lines[(*path, label)] = line
            yield from _walk(value, (*path, label), lines)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            yield from _walk(item, (*path, i), lines)


def _unreadable(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


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


def _explain(error: dict[str, Any], name: str, lines: _Lines) -> tuple[int, str]:
    """The line, and what is wrong there."""
    loc = tuple(part for part in error["loc"] if not _is_branch_label(part))
    while loc and loc not in lines:
        loc = loc[:-1]
    path = ".".join(str(part) for part in loc) or "(the file)"
    line = lines.get(loc, 1)
    where = f"{name}:{line}: {path}"
    if error["type"] == "extra_forbidden":
        return line, f"{where}: {unknown_key(loc)}"
    if error["type"] in ("model_type", "model_attributes_type") and loc:
        return line, f"{where}: {shape_of_section(loc)}"
    message = str(error["msg"]).removeprefix("Value error, ")
    value = error.get("input")
    plain = isinstance(value, str | int | float | bool | None) and repr(value) not in message
    plain = plain and not is_secret(loc[-1:])
    shown = f" (it is {value!r})" if plain else ""
    return line, f"{where}: {message[:1].lower()}{message[1:]}{shown}"


def _is_branch_label(part: Any) -> bool:
    """Pydantic adds the name of the union's branch to a path; nobody wrote that in the file."""
    return isinstance(part, str) and (
        part.startswith(("literal[", "constrained-", "function-", "list[")) or part == "bool"
    )


def _kind(value: Any) -> str:
    return "list" if isinstance(value, list) else type(value).__name__
