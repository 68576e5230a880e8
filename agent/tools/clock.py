"""Owns the `current_time` tool: the prompt holds no clock, so that its bytes never change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from agent.errors import ToolError
from agent.messages import ToolSchema
from agent.ports import Clock, ToolContext, ToolResult


class CurrentTimeTool:
    """Date, weekday and time of now (`agent.ports.Tool`)."""

    schema = ToolSchema(
        name="current_time",
        description="The current date, weekday and time, with its offset from UTC.",
        parameters={
            "type": "object",
            "properties": {
                "timezone": {
                    "type": "string",
                    "description": "IANA name such as Europe/Berlin; without it: the local zone.",
                }
            },
            "additionalProperties": False,
        },
    )

    def __init__(self, clock: Clock, zone: Callable[[], tzinfo] = lambda: UTC) -> None:
        self._clock = clock
        self._zone = zone

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        name = str(arguments.get("timezone", "")).strip()
        zone = _zone(name) if name else self._zone()
        now = datetime.fromtimestamp(self._clock.now(), zone)
        offset = now.strftime("%z")
        return ToolResult(
            f"{now:%A, %Y-%m-%d %H:%M:%S} (UTC{offset[:3]}:{offset[3:5]}, {name or now.tzname()})"
        )


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as exc:  # unknown, a folder, a path, or too long a name
        raise ToolError(f"there is no time zone {name!r}; use a name such as Asia/Tokyo") from exc
