"""Owns what the fake knows about each model: limits, and which request rules apply to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ID = re.compile(
    r"^claude-(?P<line>opus|sonnet|haiku|fable|mythos)-(?P<major>\d)(?:-(?P<minor>\d))?"
    r"(?:-(?P<date>20\d{6}))?$"
)

KNOWN_IDS: tuple[str, ...] = (
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-haiku-5-5",
    "claude-sonnet-5-5",
    "claude-opus-5-5",
    "claude-fable-5-1",
    "claude-mythos-5-1",
    "claude-sonnet-5",
    "claude-fable-5",
    "claude-mythos-5",
    "claude-opus-5",
    "claude-opus-4-8",
    "claude-opus-4-7",
    "claude-opus-4-6",
    "claude-sonnet-4-6",
    "claude-haiku-4-5",
    "claude-opus-4-5",
    "claude-sonnet-4-5",
    "claude-sonnet-4",
    "claude-opus-4-1",
)


@dataclass(frozen=True)
class ModelFacts:
    """Limits and switches of one model."""

    id: str
    line: str = "sonnet"
    version: tuple[int, int] = (5, 5)
    window: int = 1_000_000
    max_output: int = 128_000
    min_cacheable: int = 1024
    prefill: bool = False
    system_in_messages: bool = True
    binds_thinking: bool = True
    thinks_always: bool = False
    forced_tool_choice: bool = True
    compacts: bool = True  # has compaction on demand
    overflow: str = "stop"  # "stop" | "error": input + max_tokens beyond the window


def _min_cacheable(line: str, version: tuple[int, int]) -> int:
    if version >= (5, 0):
        # The figures of the 5.5 family are not published; they follow their line here.
        return 512 if line in ("opus", "fable", "mythos") else 1024
    table = {(4, 5): 4096, (4, 6): 4096, (4, 7): 2048, (4, 8): 1024}
    return table.get(version, 1024) if line in ("opus", "haiku") else 1024


def _window(line: str, version: tuple[int, int]) -> tuple[int, int]:
    if version >= (4, 6):
        return 1_000_000, 128_000
    return 200_000, 64_000 if version >= (4, 5) else 32_000


def facts_from_id(model_id: str) -> ModelFacts | None:
    """Facts for a known id, with or without its date; None for a model that does not exist."""
    match = _ID.match(model_id)
    if match is None:
        return None
    undated = re.sub(r"-20\d{6}$", "", model_id)
    if undated not in KNOWN_IDS:
        return None
    line = match["line"]
    version = (int(match["major"]), int(match["minor"] or 0))
    window, max_output = _window(line, version)
    return ModelFacts(
        id=model_id,
        line=line,
        version=version,
        window=window,
        max_output=max_output,
        min_cacheable=_min_cacheable(line, version),
        prefill=version < (4, 6),
        system_in_messages=version >= (4, 8) and undated != "claude-sonnet-5",
        binds_thinking=version >= (5, 1),
        thinks_always=undated in ("claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2"),
        forced_tool_choice=undated != "claude-sonnet-5-5",
        compacts=version >= (4, 6),
        overflow="stop" if version >= (4, 5) else "error",
    )


def _supported(value: bool) -> dict[str, bool]:
    return {"supported": value}


def model_info(facts: ModelFacts) -> dict[str, object]:
    """The body of `GET /v1/models/{id}`."""
    newer = facts.version >= (4, 6)
    return {
        "type": "model",
        "id": facts.id,
        "display_name": facts.id.replace("-", " ").title(),
        "created_at": "2026-10-01T00:00:00Z",
        "lifecycle": "active" if newer else "deprecated",
        "line": facts.line,
        "deprecated_at": None if newer else "2026-06-01T00:00:00Z",
        "retires_at": None,
        "max_input_tokens": facts.window,
        "max_tokens": facts.max_output,
        "capabilities": {
            "batch": _supported(True),
            "citations": _supported(True),
            "code_execution": _supported(True),
            "context_management": {
                "supported": True,
                "clear_tool_uses_20250919": _supported(True),
                "clear_thinking_20251015": _supported(True),
                "compact_20260112": _supported(newer),
            },
            "effort": {
                "supported": newer,
                **{level: _supported(newer) for level in ("low", "medium", "high", "max")},
            },
            "image_input": _supported(True),
            "pdf_input": _supported(True),
            "server_tools": {
                "supported": True,
                "code_execution": _supported(True),
                "web_search": _supported(True),
            },
            "structured_outputs": _supported(True),
            "thinking": {
                "supported": True,
                "types": {
                    "adaptive": _supported(newer),
                    "between_tools": _supported(facts.version >= (5, 5)),
                    "disabled": _supported(not facts.thinks_always),
                    "enabled": _supported(facts.version < (4, 7)),
                },
            },
        },
    }
