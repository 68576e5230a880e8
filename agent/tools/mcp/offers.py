"""Owns what of a server's list of tools reaches a model: names, caps, schemas that hold. Pure.

All of it was written by the server, and a model reads it like a prompt. A schema that the provider
does not take would make it refuse every request of every conversation, so such a tool is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent.messages import ToolSchema, clean_text
from agent.tools.mcp.nouns import Listing, Offer

MAX_TOOLS = 100
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_CHARS = 16_000
MAX_ALL_CHARS = 120_000
"""Of all tools of one server: they are part of every request."""
MAX_DEPTH = 24
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_THE_TOP = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$schema", "$id", "enum")


def tool_name(server: str, tool: str) -> str:
    """``mcp__SERVER__TOOL``, in what providers take; another tool has another name, mostly."""
    name = f"mcp__{server}__{_ODD.sub('_', tool)}"
    if _ODD.search(tool) is None and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - 7]}_{mark}"


def listing(
    server: str,
    tools: Iterable[Mapping[str, Any]],
    *,
    problem_of: Callable[[Mapping[str, Any]], str] = lambda schema: "",
    left_out: Sequence[str] = (),
) -> Listing:
    """The tools as the wire has them, made fit, by name.

    ``problem_of`` a schema, by the standard; ``left_out``: what is known to be missing already.
    """
    missing = list(left_out)
    offers: dict[str, Offer] = {}
    room = MAX_ALL_CHARS
    for tool in tools:
        shown = repr(str(tool.get("name"))[:64])
        fit = _offer(server, tool, problem_of)
        if isinstance(fit, str):
            missing.append(f"{shown}: {fit}")
            continue
        name = fit.schema.name
        size = len(fit.schema.description) + len(json.dumps(fit.schema.parameters))
        if name in offers:
            missing.append(f"{shown}: another one has its name")
        elif len(offers) >= MAX_TOOLS:
            missing.append(f"{shown}: more than {MAX_TOOLS} tools")
        elif size > room:
            missing.append(f"{shown}: the tools of this server are too long for a model")
        else:
            room -= size
            offers[name] = fit
    return Listing(tuple(offers[name] for name in sorted(offers)), tuple(missing))


def _offer(
    server: str, tool: Mapping[str, Any], problem_of: Callable[[Mapping[str, Any]], str]
) -> Offer | str:
    """The tool made fit, or why it is left out."""
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > 1_000:
        return "it has no usable name"
    given = tool.get("inputSchema")
    if not isinstance(given, Mapping):
        return "it has no schema"
    try:
        parameters = _parameters(given)
        length = len(json.dumps(parameters))
    except (ValueError, TypeError, RecursionError) as exc:
        return f"its schema does not hold: {exc}"[:200]
    if length > MAX_SCHEMA_CHARS:
        return f"its schema has {length:,} characters, at most {MAX_SCHEMA_CHARS:,} are taken"
    if problem := problem_of(parameters):
        return f"its schema does not hold: {problem}"[:200]
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    schema = ToolSchema(tool_name(server, name), _description(tool, hints), parameters)
    return Offer(
        tool=name,
        schema=schema,
        read_only=hints.get("readOnlyHint") is True,
        destructive=hints.get("destructiveHint") is not False,
        open_world=hints.get("openWorldHint") is not False,
    )


def _description(tool: Mapping[str, Any], hints: Mapping[str, Any]) -> str:
    for found in (tool.get("description"), tool.get("title"), hints.get("title")):
        if isinstance(found, str) and found.strip():
            text = clean_text(found).strip()
            cut = len(text) > MAX_DESCRIPTION_CHARS
            return text[: MAX_DESCRIPTION_CHARS - 1] + "…" if cut else text
    return "(the server says nothing about it)"


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The schema in the form that providers and the check of arguments take.

    Raises:
        ValueError: it can not be brought into it; the text says why.
    """
    _require_depth(given)
    schema = {k: v for k, v in given.items() if k not in _NOT_AT_THE_TOP}
    if schema.get("type", "object") != "object":
        raise ValueError("its type is not object")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError("its properties are no object")
    kept: dict[str, Any] = {}
    for name, value in properties.items():
        if not _PROPERTY.fullmatch(str(name)):
            raise ValueError(f"the property {str(name)[:64]!r} has no name that providers take")
        if isinstance(value, Mapping):
            kept[str(name)] = dict(value)
        elif value is True:
            kept[str(name)] = {}
        elif value is not False:
            raise ValueError(f"the property {str(name)!r} is no schema")
    required = schema.get("required") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError("what is required is no list of names")
    schema.update(type="object", properties=kept)
    schema.pop("required", None)
    if names := [name for name in dict.fromkeys(required) if name in kept]:
        schema["required"] = names
    # Half a surrogate pair is no text that could be sent.
    cleaned: dict[str, Any] = json.loads(clean_text(json.dumps(schema, ensure_ascii=False)))
    return cleaned


def _require_depth(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        for item in value.values():
            _require_depth(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _require_depth(item, depth + 1)


# --- remembered on disk ---------------------------------------------------------------------------


def as_record(found: Listing) -> list[dict[str, Any]]:
    """The offers in the form that is kept."""
    return [
        {
            "tool": offer.tool,
            "name": offer.schema.name,
            "description": offer.schema.description,
            "parameters": offer.schema.parameters,
            "hints": [offer.read_only, offer.destructive, offer.open_world],
        }
        for offer in found.offers
    ]


def from_record(server: str, record: object) -> Listing:
    """What was kept, checked like what a server says: the file may have been edited."""
    if not isinstance(record, list):
        return Listing()
    tools = [
        {
            "name": entry.get("tool"),
            "description": entry.get("description"),
            "inputSchema": entry.get("parameters"),
            "annotations": _hints(entry.get("hints")),
        }
        for entry in record
        if isinstance(entry, Mapping)
    ]
    return Listing(listing(server, tools).offers)


def _hints(kept: object) -> dict[str, Any]:
    names = ("readOnlyHint", "destructiveHint", "openWorldHint")
    return dict(zip(names, kept, strict=False)) if isinstance(kept, list) else {}
