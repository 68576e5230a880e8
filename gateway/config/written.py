"""Owns what somebody has written down, with the place of every value: YAML text into plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from agent.errors import ConfigError

Path = tuple[str | int, ...]

_INT = "tag:yaml.org,2002:int"
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")

MAX_VALUES = 50_000
"""With every alias written out: ten lines of aliases of aliases make ten thousand million."""
MAX_DEPTH = 50


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands: in a file, or in a variable of the environment."""

    source: str
    line: int = 0
    """0: it is a variable."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    @property
    def is_variable(self) -> bool:
        """From the environment."""
        return not self.line


@dataclass(slots=True)
class Written:
    """The data, and where each of it stands."""

    data: dict[str, Any]
    keys: dict[Path, Place] = field(default_factory=dict)
    """Of every path its key, or its item."""
    values: dict[Path, Place] = field(default_factory=dict)
    called: dict[Path, str] = field(default_factory=dict)
    """Of paths that were moved: what stands there in their place."""

    def get(self, path: Path) -> Any:
        """What stands there; None: nothing, or null."""
        value: Any = self.data
        for part in path:
            if not isinstance(value, dict):
                return None
            value = value.get(str(part))
        return value

    def has(self, path: Path) -> bool:
        """Does anything stand there?"""
        above = self.get(path[:-1])
        return isinstance(above, dict) and path[-1] in above

    def put(self, path: Path, value: Any) -> Path | None:
        """Write it there; else the path at which something else stands than a section."""
        section = self.data
        for depth, part in enumerate(path[:-1], 1):
            inner = section.get(str(part))
            if inner is None:
                inner = section[str(part)] = {}
            if not isinstance(inner, dict):
                return path[:depth]
            section = inner
        section[str(path[-1])] = value
        return None

    def take(self, path: Path) -> Any:
        """Take it away, and sections that are empty then."""
        section = self.get(path[:-1])
        value = section.pop(path[-1])
        if len(path) > 1 and not section:
            self.take(path[:-1])
        return value

    def place(self, path: Path) -> Place | None:
        """Where this stands, or what it is in."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.keys:
                return self.keys[path[:length]]
        return None

    def move_places(self, old: Path, new: Path, *, keep: bool = False) -> None:
        """What stood at the one path stands at the other now."""
        for places in (self.keys, self.values):
            for path in [p for p in places if p[: len(old)] == old]:
                places[(*new, *path[len(old) :])] = places[path] if keep else places.pop(path)


def parse_yaml(text: str, name: str) -> Written:
    """One document of keys; an empty one is none.

    Raises:
        ConfigError: it is no YAML, or more than a configuration can be.
    """
    written = Written({})
    data = _parse(text, name, written)
    if data is None:
        return written
    if not isinstance(data, dict):
        kind = "list" if isinstance(data, list) else type(data).__name__
        raise ConfigError([f"{name}:1:1: must consist of `section:` keys, but is a {kind}"])
    written.data = data
    return written


def parse_value(text: str) -> Any:
    """One value as YAML takes it.

    Raises:
        ConfigError: it takes it for none.
    """
    return _parse(text, "", Written({}))


def _parse(text: str, name: str, written: Written) -> Any:
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            problems = [f"{place}: {what}" for what, place in _walk(node, (), written, name)]
            if problems:
                raise ConfigError(problems)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = exc.problem or exc.context or ""
        tab = ": indent with spaces, not tabs" if "\\t" in problem or "tab" in problem else ""
        raise ConfigError([f"{where}: not valid YAML: {problem}{tab}"]) from exc
    except yaml.reader.ReaderError as exc:
        before = text[: exc.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        what = f"the character {ord(text[exc.position]):#06x} can not stand in it"
        raise ConfigError([f"{name}:{line}:{column}: not valid YAML: {what}"]) from exc
    except yaml.YAMLError as exc:
        raise ConfigError([f"{name}: not valid YAML: {exc}"]) from exc
    except RecursionError as exc:
        raise ConfigError([f"{name}: is nested more than {MAX_DEPTH} levels deep"]) from exc


def _walk(node: yaml.Node, path: Path, written: Written, name: str) -> Iterator[tuple[str, Place]]:
    """Note the place of every path; yield keys that stand twice, and numbers that mislead.

    Raises:
        ConstructorError: it unfolds into more than a configuration can be.
    """
    if len(path) > MAX_DEPTH:
        raise _unreadable(f"more than {MAX_DEPTH} levels deep, or an alias inside itself", node)
    if len(written.values) > MAX_VALUES:
        raise _unreadable(f"more than {MAX_VALUES:,} values, with all aliases written out", node)
    place = _place(node, name)
    written.keys.setdefault(path, place)
    written.values[path] = place
    if isinstance(node, yaml.ScalarNode):
        yield from ((what, place) for what in _doubts(node))
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _unreadable("a key has to be a plain word", key)
            label = str(key.value)
            if label in seen:
                yield f"{'.'.join(map(str, (*path, label)))} stands there twice", _place(key, name)
            seen.add(label)
            written.keys[(*path, label)] = _place(key, name)
            yield from _walk(value, (*path, label), written, name)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            yield from _walk(item, (*path, i), written, name)


def _doubts(node: yaml.ScalarNode) -> Iterator[str]:
    if node.tag == _INT and not _DECIMAL.fullmatch(node.value):
        # An id with a zero in front would be read as an octal number: another person's.
        yield (
            f"{node.value} is another number in YAML than it looks like; quote it or write it "
            "without leading zeros, colons or letters"
        )
    elif node.tag in _BUILT:
        try:
            _BUILT[node.tag](node)
        except ValueError as exc:  # a date or a number that YAML takes for one and Python does not
            yield f"not valid YAML: {node.value}: {exc}"


_constructor = yaml.constructor.SafeConstructor()
_BUILT = {
    "tag:yaml.org,2002:timestamp": _constructor.construct_yaml_timestamp,
    "tag:yaml.org,2002:float": _constructor.construct_yaml_float,
    _INT: _constructor.construct_yaml_int,
}
"""What can fail in Python."""


def _place(node: yaml.Node, name: str) -> Place:
    return Place(name, node.start_mark.line + 1, node.start_mark.column + 1)


def _unreadable(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
