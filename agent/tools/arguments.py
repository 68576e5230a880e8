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
    """The first thing that does not fit the schema (of its top level), or "".

    Schemas of others may hold anything: what says nothing that is understood here demands nothing.
    """
    given = schema.get("properties")
    properties: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list | tuple) else ():
        if isinstance(name, str) and name not in values:
            return f"{name!r} is missing"
    for name, value in values.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                known = ", ".join(repr(p) for p in properties) or "none"
                return f"{name!r} is not known (there are: {known})"
            continue
        about = properties[name]
        if not isinstance(about, Mapping):
            continue  # `true`: anything fits
        wanted = about.get("type")
        if isinstance(wanted, str) and not _fits(value, wanted):
            return f"{name!r} must be of type {wanted}"
        choices = about.get("enum")
        if isinstance(choices, list | tuple) and choices and value not in choices:
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
