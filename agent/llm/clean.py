"""Owns making any value safe to send: no lone surrogates, no numbers that JSON does not know."""

from __future__ import annotations

import json
import math
from typing import Any

from agent.messages import clean_text

MAX_DEPTH = 64
"""Deeper values are no tool's arguments; they would blow the stack of whoever encodes them."""


def clean_json(value: Any, depth: int = 0) -> Any:
    """The value with clean strings and finite numbers; itself, uncopied, if it was clean.

    Raises:
        RecursionError: deeper than `MAX_DEPTH`.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        _guard(depth)
        cleaned = {clean_text(str(k)): clean_json(v, depth + 1) for k, v in value.items()}
        return value if _same_items(value, cleaned) else cleaned
    if isinstance(value, list):
        _guard(depth)
        items = [clean_json(v, depth + 1) for v in value]
        return value if all(a is b for a, b in zip(value, items, strict=True)) else items
    return value


def _guard(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError("nested too deeply")


def _same_items(value: dict[str, Any], cleaned: dict[str, Any]) -> bool:
    return len(value) == len(cleaned) and all(
        k in value and value[k] is v for k, v in cleaned.items()
    )


def input_object(arguments: str) -> dict[str, Any]:
    """A call's arguments as the object that the wire wants.

    What is no object is kept as the text that it is, so that the model can see its own mistake.
    """
    if not arguments.strip():
        return {}
    try:
        value = clean_json(json.loads(arguments))
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": clean_text(arguments)}


def compact_json(value: Any) -> str:
    """JSON without spaces, keys in their order, as text is stored and sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
