"""Owns the thinking parameters of a request, and what an endpoint has refused of them so far."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from agent.errors import ModelBadRequest
from agent.llm.families import thinking_of
from agent.messages import THINKING_TYPES

BINDING_BETA = "thinking-binding-controls-2026-08-01"
DROP_UNBOUND = {"prefix_mismatch_behavior": "drop_block"}
MIN_BUDGET_TOKENS = 1024
"""Smaller budgets for thinking are refused."""
DEFAULT_BUDGET_TOKENS = 4096
"""Where adaptive thinking is wanted of a family that only takes budgets."""

log = logging.getLogger(__name__)

_NAMES_BINDING = re.compile(
    rf"block_binding|prefix_mismatch|anthropic-beta|beta (flag|header|feature)"
    rf"|{BINDING_BETA.rsplit('-', 3)[0]}",
    re.IGNORECASE,
)
_NAMES_THINKING = re.compile(
    r"(?<![.\w])thinking(\.\w+)*['`\"]?(:| is)? "
    r"(extra inputs|unknown|unexpected|input should be|input tag"
    r"|not (supported|permitted|allowed|available))"
    r"|adaptive thinking is not supported"
    r"|(does not|doesn't) support ['`\"]?(adaptive )?thinking",
    re.IGNORECASE,
)


class ThinkingControls:
    """What one model's requests say about thinking; remembers for this process what it refuses."""

    def __init__(
        self, model: str, configured: Mapping[str, Any] | None, *, drop_unbound: bool | None
    ) -> None:
        """Build what is tried in order: everything, then without the binding, then nothing.

        ``configured`` is the provider's parameter as the operator wants it, and never left out.
        """
        family = thinking_of(model)
        bound = family is not None and family.bound
        drops = bound if drop_unbound is None else drop_unbound
        base: dict[str, Any] | None = dict(configured) if configured is not None else None
        if base and base.get("type") == "adaptive" and family and family.kind == "enabled":
            base = {"type": "enabled", "budget_tokens": DEFAULT_BUDGET_TOKENS}
        if base is None and family is not None and (bound or family.display):
            base = {"type": family.kind}
            if family.display:
                base["display"] = family.display
        tried: list[dict[str, Any] | None] = []
        if drops and (base is None or base.get("type") in ("adaptive", "enabled")):
            tried.append({**(base or {"type": "adaptive"}), "block_binding": DROP_UNBOUND})
        tried.append(base)
        if configured is None and base is not None:
            tried.append(None)
        self._tried = tuple(tried)
        self.level = 0
        """How many of them the endpoint has refused."""

    def add_to(self, body: dict[str, Any]) -> None:
        """Put the parameters into a request, in place."""
        thinking = self._tried[self.level]
        if thinking is None:
            return
        if thinking.get("type") == "enabled":
            if _open_loop_without_thinking(body):
                return  # its thinking was stripped by a split: this turn ends without
            if not MIN_BUDGET_TOKENS <= thinking.get("budget_tokens", 0) < body["max_tokens"]:
                return  # the answer's room was lowered below the budget
        body["thinking"] = thinking
        if "block_binding" in thinking:
            body["extra_headers"] = {"anthropic-beta": BINDING_BETA}

    def refused(self, error: ModelBadRequest, body: Mapping[str, Any], level: int) -> bool:
        """Was a request refused for what was put into it? Then it may be sent again, with less.

        ``level`` is that of the request: another one may have been refused meanwhile.
        """
        sent = body.get("thinking")
        if type(error) is not ModelBadRequest or sent is None or level + 1 >= len(self._tried):
            return False
        text = str(error)
        if not ("block_binding" in sent and _NAMES_BINDING.search(text)) and not (
            _NAMES_THINKING.search(text)
        ):
            return False
        if self.level == level:
            self.level = level + 1
            log.warning(
                "The endpoint does not know a thinking parameter; going on without",
                extra={"left_out": "block_binding" if "block_binding" in sent else "thinking"},
            )
        return True


def _open_loop_without_thinking(body: Mapping[str, Any]) -> bool:
    turns = body["messages"]
    if len(turns) < 2 or turns[-1]["content"][0].get("type") != "tool_result":
        return False
    return turns[-2]["content"][0].get("type") not in THINKING_TYPES
