"""Owns the answers that need no script: echo, tool orders, and well-formed summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.fakes.anthropic_server.request import MessageRequest, result_text
from tests.fakes.anthropic_server.script import Answer, text, tool_use
from tests.fakes.anthropic_server.units import Json, count_text

ECHO_CHARS = 200
SECTIONS = (
    "Goal",
    "Constraints & Preferences",
    "Progress",
    "Key Decisions",
    "Resolved Questions",
    "Open User Requests",
    "Relevant Files",
    "Remaining Work",
    "Critical Context",
)
_FILE = re.compile(r"(?<![\w./-])[\w./-]*\w\.[A-Za-z][A-Za-z0-9]{0,4}\b")
# Words that tests plant in a conversation to see whether they survive.
_MARKER = re.compile(r"\b(?:CANARY|FACT|MARKER|canary|fact|marker)[-_][A-Za-z0-9_-]+")


def tool_calls(request: MessageRequest) -> list[Json]:
    """The calls that the newest user message orders with `[[tool NAME {json}]]`."""
    return [tool_use(name, _arguments(raw)) for name, raw in request.tool_orders()]


def _arguments(raw: str) -> Json:
    try:
        value = json.loads(raw) if raw.strip() else {}
    except ValueError:
        return {"raw": raw}
    return value if isinstance(value, dict) else {"value": value}


def echo(request: MessageRequest) -> Answer:
    """Repeats the newest user text, calls ordered tools, reports what tools gave back."""
    calls = tool_calls(request)
    if calls:
        return Answer([text(f"calling {len(calls)}"), *calls])
    if request.tool_results and not request.fresh_text:
        given = " | ".join(result_text(r)[:ECHO_CHARS] for r in request.tool_results)
        return Answer(f"tool said: {given}")
    return Answer(f"reply to: {request.last_user_text[:ECHO_CHARS]}")


def static(request: MessageRequest) -> Answer:
    """The same short answer to everything."""
    return Answer("ok")


def long_winded(request: MessageRequest) -> Answer:
    """A long answer: `[[words N]]` in the request says how long."""
    match = re.search(r"\[\[words (\d+)\]\]", request.last_user_text)
    count = int(match[1]) if match else 400
    return Answer(" ".join(f"word{i}" for i in range(count)))


MODES: dict[str, Callable[[MessageRequest], Answer]] = {
    "echo": echo,
    "static": static,
    "long": long_winded,
}


def _unique(pattern: re.Pattern[str], source: str, limit: int) -> list[str]:
    return list(dict.fromkeys(m[0] for m in pattern.finditer(source)))[:limit]


def _excerpt(source: str, chars: int) -> str:
    return " ".join(source.split())[:chars] or "none"


def summary_text(request: MessageRequest, tokens: int | None) -> str:
    """A summary with every section, made of the request; padded or cut to `tokens` if given."""
    material = "\n".join(
        str(b.get("text", "")) for b in request.last_blocks if b.get("type") == "text"
    )
    files = _unique(_FILE, material, 20)
    markers = _unique(_MARKER, request.all_text, 200)
    bodies = dict.fromkeys(SECTIONS, "none")
    bodies["Goal"] = _excerpt(material, 160)
    bodies["Progress"] = f"{len(material)} characters were read."
    bodies["Relevant Files"] = ", ".join(files) or "none"
    bodies["Remaining Work"] = _excerpt(material[-320:], 160)
    bodies["Critical Context"] = " ".join(markers) or "none"
    if tokens is not None:
        _fit(bodies, tokens)
    return _render(bodies)


def _render(bodies: dict[str, str]) -> str:
    return "\n\n".join(f"## {name}\n{bodies[name]}" for name in SECTIONS)


def _fit(bodies: dict[str, str], tokens: int) -> None:
    """Grow or shrink the Progress section, so that the markers stay in."""
    missing = tokens - count_text(_render(bodies))
    if missing > 0:
        filler = "step done. " * (missing * 4 // 11 + 1)
        bodies["Progress"] += " " + filler[: missing * 4]
    elif missing < 0:
        for name in ("Goal", "Progress", "Remaining Work"):
            bodies[name] = bodies[name][:20] or "none"
