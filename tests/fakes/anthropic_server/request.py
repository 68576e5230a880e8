"""Owns the view of a request that responders and matchers work with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.fakes.anthropic_server.units import Json, blocks_of

SUMMARY_MARK = "[posthouse:summary]"
_TOOL_ORDER = re.compile(r"\[\[tool\s+([A-Za-z0-9_-]+)\s*(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True)
class MessageRequest:
    """One accepted `POST /v1/messages`."""

    number: int
    body: Json
    headers: Mapping[str, str]

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> Sequence[Json]:
        return self.body["messages"]

    @cached_property
    def system_text(self) -> str:
        return "\n\n".join(str(b.get("text", "")) for b in blocks_of(self.body.get("system")))

    @cached_property
    def is_summary(self) -> bool:
        return self.system_text.startswith(SUMMARY_MARK)

    @property
    def compacts(self) -> bool:
        """Whether the API is to summarise by itself."""
        return "compaction" in self.body

    @cached_property
    def last_blocks(self) -> Sequence[Json]:
        """Blocks of the last user message."""
        for message in reversed(self.messages):
            if message["role"] == "user":
                return blocks_of(message["content"])
        return []

    @cached_property
    def last_user_text(self) -> str:
        """Text of the newest user message that has any."""
        for message in reversed(self.messages):
            if message["role"] == "user":
                texts = [b["text"] for b in blocks_of(message["content"]) if b["type"] == "text"]
                if texts:
                    return "\n".join(texts)
        return ""

    @cached_property
    def fresh_text(self) -> str:
        """Text of the last user message only: empty while tool results are handed back."""
        return "\n".join(b["text"] for b in self.last_blocks if b["type"] == "text")

    @cached_property
    def tool_results(self) -> Sequence[Json]:
        """Results that the last user message hands back."""
        return [b for b in self.last_blocks if b["type"] == "tool_result"]

    @cached_property
    def tool_names(self) -> Sequence[str]:
        return [str(t.get("name")) for t in self.body.get("tools") or []]

    @cached_property
    def all_text(self) -> str:
        """Every text of the request, for digests."""
        parts = [self.system_text]
        for message in self.messages:
            parts.extend(_texts(blocks_of(message["content"])))
        return "\n".join(parts)

    def tool_orders(self) -> Sequence[tuple[str, str]]:
        """(name, JSON) of each `[[tool NAME {json}]]` in the newest user message."""
        return [(m[1], m[2]) for m in _TOOL_ORDER.finditer(self.fresh_text)]


def _texts(blocks: Sequence[Json]) -> list[str]:
    out: list[str] = []
    for block in blocks:
        if block["type"] == "text":
            out.append(block["text"])
        elif block["type"] == "tool_result":
            out.extend(_texts(blocks_of(block.get("content"))))
    return out


def result_text(block: Json) -> str:
    """The text of one tool result."""
    return "\n".join(_texts(blocks_of(block.get("content"))))
