"""Owns the JSON schema of config.yaml, for editors: as strict as the loader, in the same words."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from gateway.config.models import Config
from gateway.config.renamed import HERMES, RENAMED
from gateway.config.shape import field_at, model_in

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_EXAMPLES: dict[str, list[Any]] = {
    "model.fallback": [["claude-haiku-5-5"]],
    "model.base_url": ["http://127.0.0.1:8080"],
    "compression.model_thresholds": [{"haiku": 0.4}],
    "compression.small_window_floor": [0.75],
    "agent.tools.mcp": [{"docs": {"command": "npx", "args": ["-y", "@some/server"]}}],
    "telegram.allow_from": [[123456789], ["*"]],
    "telegram.allow_chats": [[-1001234567890]],
    "telegram.webhook.url": ["https://bot.example.org/telegram"],
    "discord.allow_from": [[123456789012345678], ["*"]],
    "timezone": ["Europe/Berlin"],
    "auxiliary": [{"compression": {"model": "claude-haiku-5-5", "timeout": 120}}],
    "budget.usd_per_user_day": [2.5],
}


def json_schema() -> dict[str, Any]:
    """The same for the same version: keys in the order of the file."""
    schema = Config.model_json_schema()
    definitions = schema.get("$defs", {})
    sections = {section.__name__: section for section in _sections(Config)}
    for name, definition in [("Config", schema), *definitions.items()]:
        _describe(definition, sections.get(name))
    for name in definitions:
        _nullable(definitions[name])
    _nullable(schema)
    for path, examples in _EXAMPLES.items():
        _at(schema, path)["examples"] = examples
    for entry in RENAMED:
        _say_other_name(schema, entry.old, " and ".join(entry.new))
    _allow_sections_of_plugins(schema)
    described = "posthouse's configuration. Sections named after an enabled plugin are its own."
    return {"$schema": DIALECT, **schema, "title": "config.yaml", "description": described}


def _sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield section
    for field in section.model_fields.values():
        inner = model_in(field.annotation)
        if inner is None:
            inner = next(filter(None, map(model_in, _inside(field.annotation))), None)
        if inner is not None:
            yield from _sections(inner)


def _inside(annotation: Any) -> Iterator[Any]:
    for inner in get_args(annotation):
        yield inner
        if get_origin(inner) is not None:
            yield from _inside(inner)


def _describe(definition: dict[str, Any], section: type[BaseModel] | None) -> None:
    words = words_of(section) if section is not None else {}
    for key, schema in definition.get("properties", {}).items():
        schema["title"] = key
        if key in words:
            schema["description"] = words[key]


def _nullable(definition: dict[str, Any]) -> None:
    """`section:` with nothing below it means its defaults."""
    for key, schema in list(definition.get("properties", {}).items()):
        if "$ref" in schema and key not in definition.get("required", []):
            reference = schema.pop("$ref")
            schema["anyOf"] = [{"$ref": reference}, {"type": "null"}]
            schema.pop("default", None)
            definition["properties"][key] = schema


def words_of(section: type[BaseModel]) -> dict[str, str]:
    """The words below each key of a section, and of those that it is made from."""
    words: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if not (issubclass(kind, BaseModel) and kind.__module__.startswith("gateway.config.")):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        for node, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = _text(below)
                inner = model_in(kind.model_fields[node.target.id].annotation)
                if text is None and inner is not None:
                    text = inner.__doc__
                if text is not None:
                    words[node.target.id] = " ".join(text.split())
    return words


def _text(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None


def _say_other_name(schema: dict[str, Any], old: str, new: str) -> None:
    """Accepted, and struck out by editors."""
    section, _, key = old.rpartition(".")
    said = {"description": f"Another name of {new}.", "deprecated": True}
    if not section:
        schema["properties"][key] = said
    elif "." not in section and field_at((section,)) is None:
        whole = schema["properties"].setdefault(
            section, {"title": section, "type": "object", "properties": {}, "deprecated": True}
        )
        whole["description"] = f"A section of {HERMES}: its keys have other names here."
        whole["properties"][key] = said
    elif "auxiliary" not in section:
        _section(schema, section)["properties"][key] = said


def _allow_sections_of_plugins(schema: dict[str, Any]) -> None:
    """Where one is asked for, any section may be its own; only the loader knows which are."""

    def asked(section: str, key: str, value: dict[str, Any]) -> dict[str, Any]:
        inner = {"type": "object", "required": [key], "properties": {key: value}}
        return {"type": "object", "required": [section], "properties": {section: inner}}

    schema["additionalProperties"] = True
    schema["if"] = {
        "anyOf": [
            asked("plugins", "enabled", {"type": "array", "minItems": 1}),
            asked("context", "engine", {"not": {"const": "compressor"}}),
            asked("memory", "provider", {"type": "string"}),
        ]
    }
    schema["else"] = {"propertyNames": {"enum": list(schema["properties"])}}


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    section, _, key = path.rpartition(".")
    found = (_section(schema, section) if section else schema)["properties"][key]
    assert isinstance(found, dict)
    return found


def _section(schema: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = schema
    for part in path.split("."):
        reference = found["properties"][part]["anyOf"][0]["$ref"]
        found = schema["$defs"][reference.rsplit("/", 1)[-1]]
    return found
