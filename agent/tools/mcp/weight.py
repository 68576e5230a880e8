"""Owns what a large message is reduced to before the `mcp` package reads it. Pure.

The package makes an object of every part, some sixty microseconds each: eight megabytes of empty
parts would hold everybody else up for ten seconds. What nobody reads in the end is taken out first.
"""

from __future__ import annotations

import json
from typing import Any

LARGE_BYTES = 64_000
"""Smaller ones are read as they are."""
MAX_PARTS = 200
MAX_TOOLS_A_PAGE = 200
MAX_PART_CHARS = 400_000


def lightened(message: bytes) -> bytes | None:
    """The message without what nobody reads; None: it is none, or nothing that is needed."""
    if len(message) <= LARGE_BYTES:
        return message
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "method" in found or "id" not in found:
        return None  # of this size only an answer is of use
    result = found.get("result")
    if isinstance(result, dict):
        found["result"] = _result(result)
    elif isinstance(found.get("error"), dict):
        found["error"] = {k: v for k, v in found["error"].items() if k != "data"}
    try:
        return json.dumps(found).encode("ascii")
    except (ValueError, RecursionError):
        return None


def _result(result: dict[str, Any]) -> dict[str, Any]:
    tools, parts = result.get("tools"), result.get("content")
    if isinstance(tools, list):
        result["tools"] = tools[:MAX_TOOLS_A_PAGE]
    if not isinstance(parts, list):
        return result
    kept = [_part(part) for part in parts[:MAX_PARTS]]
    structured = result.pop("structuredContent", None)
    if structured is not None and not any(_says(part) for part in kept):
        text = json.dumps(structured, ensure_ascii=False)
        kept.insert(0, _part({"type": "text", "text": text}))
    if len(parts) > MAX_PARTS:
        more = f"[{len(parts) - MAX_PARTS:,} more parts are left out]"
        kept.append({"type": "text", "text": more})
    result["content"] = kept
    return result


def _says(part: Any) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return isinstance(text, str) and bool(text.strip())


def _part(part: Any) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str) or len(text) <= MAX_PART_CHARS:
        return part
    missing = len(text) - MAX_PART_CHARS
    return {**part, "text": f"{text[:MAX_PART_CHARS]}\n[{missing:,} more characters are left out]"}
