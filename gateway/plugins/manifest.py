"""Owns the reading of plugin.yaml: which keys count, what is broken, and in which line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from agent.errors import PosthouseError
from gateway.plugins.names import is_plugin_name

MAX_BYTES = 200_000
LONGEST_TEXT = 500


class ManifestError(PosthouseError):
    """A manifest can not be used; the text names file and line."""


class Kind(StrEnum):
    """What a plugin says that it is."""

    STANDALONE = "standalone"
    BACKEND = "backend"
    EXCLUSIVE = "exclusive"
    """Selected by a key of its own (``memory.provider``), never by ``plugins.enabled``."""
    PLATFORM = "platform"
    MODEL_PROVIDER = "model-provider"


@dataclass(frozen=True, slots=True)
class External:
    """A program that a plugin needs; how to install it is shown and never run."""

    name: str
    install: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A plugin's own words about itself. Plugins see it as ``ctx.manifest``."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    license: str = ""
    kind: str = ""
    """One of `Kind`; empty: it does not say."""
    requires_env: tuple[str, ...] = ()
    provides_tools: tuple[str, ...] = ()
    provides_hooks: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    pip_dependencies: tuple[str, ...] = ()
    external_dependencies: tuple[External, ...] = ()
    requires_hermes: str = ""
    config_schema: Any = None
    key: str = ""
    """What ``plugins.enabled`` calls it: its name, or ``<category>/<folder>``."""
    source: str = ""
    path: str | None = None
    remarks: tuple[str, ...] = ()
    """What is odd in it and does no harm."""


def parse_manifest(data: bytes, file: str, folder: str) -> Manifest:
    """Read a manifest; unknown keys are ignored. ``folder``: its name if it does not say one.

    Raises:
        ManifestError: file, line and what is wrong there.
    """
    values, lines, written = _load(data, file)

    def wrong(key: str, problem: str) -> ManifestError:
        return ManifestError(f"{file}:{lines.get(key, 1)}: {key} {problem}")

    def text(key: str) -> str:
        value = values.get(key)
        if value is None:
            return ""
        if isinstance(value, Mapping | list):
            raise wrong(key, "must be a text")
        # As it is written: version 1.10 is no number, and a plugin may be called `on`.
        return plain_line(written.get(key, str(value)))

    def texts(key: str) -> tuple[str, ...]:
        return tuple(name for name, _ in pairs(key, "name"))

    def pairs(key: str, *names: str) -> list[tuple[str, Mapping[str, Any]]]:
        value = values.get(key)
        if value is None:
            return []
        found: list[tuple[str, Mapping[str, Any]]] = []
        if isinstance(value, Mapping) and not any(n in value for n in names):
            value = list(value)  # {post_llm_call: what it does}
        for item in value if isinstance(value, list) else [value]:
            more = item if isinstance(item, Mapping) else {}
            name = next((more[n] for n in names if more.get(n)), None) if more else item
            if not isinstance(name, str | int | float) or isinstance(name, bool):
                raise wrong(key, "must be a list of names")
            found.append((plain_line(str(name)), more))
        return found

    name = text("name") or folder
    if not is_plugin_name(name):
        raise wrong("name", f"{name[:80]!r} can not be a plugin's name")
    kind = text("kind")
    odd: tuple[str, ...] = ()
    if kind and kind not in set(Kind):
        odd = (
            f"{file}:{lines.get('kind', 1)}: kind {kind[:80]!r} is not known; taken for standalone",
        )
        kind = Kind.STANDALONE
    return Manifest(
        name=name,
        version=text("version"),
        description=text("description"),
        author=text("author"),
        license=text("license"),
        kind=kind,
        requires_env=texts("requires_env"),
        provides_tools=texts("provides_tools"),
        provides_hooks=texts("provides_hooks"),
        hooks=texts("hooks"),
        pip_dependencies=texts("pip_dependencies"),
        external_dependencies=tuple(
            External(name, plain_line(str(more.get("install") or "")))
            for name, more in pairs("external_dependencies", "name")
        ),
        requires_hermes=text("requires_hermes"),
        config_schema=values.get("config_schema"),
        remarks=odd,
    )


def plain_line(text: str) -> str:
    """One line that a terminal and a log can show."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"


def _load(data: bytes, file: str) -> tuple[dict[str, Any], dict[str, int], dict[str, str]]:
    """Values, lines and plain values as they are written, by key."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{file}: has more than {MAX_BYTES:,} bytes")
    try:
        loader = yaml.SafeLoader(data.decode("utf-8-sig"))
        try:
            node = loader.get_single_node()
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            lines = {str(key.value): key.start_mark.line + 1 for key, _ in pairs}
            written = {
                str(key.value): str(value.value)
                for key, value in pairs
                if isinstance(value, yaml.ScalarNode)
            }
            value = loader.construct_document(node) if node is not None else {}
        finally:
            loader.dispose()
    except UnicodeDecodeError as exc:
        raise ManifestError(f"{file}: is not UTF-8 text") from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ManifestError(f"{file}{line}: not valid YAML: {exc.problem or exc.context}") from exc
    except (yaml.YAMLError, ValueError, OverflowError) as exc:
        raise ManifestError(f"{file}: not valid YAML: {plain_line(str(exc))}") from exc
    except RecursionError as exc:
        raise ManifestError(f"{file}: is nested too deeply") from exc
    if value is None:
        return {}, {}, {}
    if not isinstance(value, dict):
        raise ManifestError(f"{file}:1: must consist of `key: value` lines")
    return {str(key): item for key, item in value.items()}, lines, written
