"""Owns which parameters of others' tools can be sent to a model. Runs on their threads."""

from __future__ import annotations

import json
from typing import Any

from agent.messages import clean_text

MAX_SCHEMA_CHARS = 32_000


def usable_parameters(given: object) -> dict[str, Any] | None:
    """A copy that nobody can change any more; None: no model takes it.

    One tool that can not be sent would fail each request of each conversation.
    """
    try:
        text = clean_text(json.dumps(given, ensure_ascii=False, allow_nan=False))
        parameters = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) > MAX_SCHEMA_CHARS or not isinstance(parameters, dict):
        return None
    parameters.setdefault("type", "object")
    properties = parameters.setdefault("properties", {})
    required = parameters.get("required", [])
    fits = (
        parameters["type"] == "object"
        and isinstance(properties, dict)
        and all(isinstance(value, dict) for value in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )
    return parameters if fits else None
