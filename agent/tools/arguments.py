"""Owns the check of a call's arguments against the tool's schema, in words that a model can use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def problem_with(values: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The first thing that does not fit the schema (of its top level), or ""."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in values:
            return f"{name!r} is missing"
    for name, value in values.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                known = ", ".join(repr(p) for p in properties) or "none"
                return f"{name!r} is not known (there are: {known})"
            continue
        wanted = properties[name].get("type")
        if isinstance(wanted, str) and not _fits(value, wanted):
            return f"{name!r} must be of type {wanted}"
        choices = properties[name].get("enum")
        if choices and value not in choices:
            return f"{name!r} must be one of {', '.join(map(repr, choices))}"
    return ""


def _fits(value: object, wanted: str) -> bool:
    kinds = _TYPES.get(wanted)
    if kinds is None:
        return True
    # In Python a truth value is a number; in a schema it is not.
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, kinds)
