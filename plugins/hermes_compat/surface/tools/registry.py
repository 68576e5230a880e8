"""Owns the texts that tools of plugins answer with (`tools.registry`)."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["tool_error", "tool_result"]


def tool_error(message: object, **extra: Any) -> str:
    """JSON text of a failure: ``{"error": message, …}``."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **fields: Any) -> str:
    """JSON text of an answer: the value, or the keywords."""
    return json.dumps(fields if data is None else data, ensure_ascii=False, default=str)
