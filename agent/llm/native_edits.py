"""Owns what the provider may clear from a long prompt, by the numbers that compression goes by."""

from __future__ import annotations

from agent.model_metadata import Triggers
from agent.ports import ContextEdits

TRIGGER_RATIO = 0.70
"""Of the threshold: clearing comes before anything of ours, which looks at what is left."""
CLEAR_RATIO = 0.20
"""Of the threshold: less would break the cached prompt for too little."""
KEEP_MIN, KEEP_MAX = 3, 10
NEVER_CLEARED = ("recall",)
"""What was looked up because it was cleared must not be cleared again."""


def edits_for(triggers: Triggers, result_tokens: int) -> ContextEdits:
    """The edits for a window. ``result_tokens``: what the result of a tool takes at most."""
    fitting = triggers.tail_tokens // max(1, result_tokens)
    return ContextEdits(
        trigger_tokens=max(1, int(TRIGGER_RATIO * triggers.effective_tokens)),
        clear_at_least_tokens=max(1, int(CLEAR_RATIO * triggers.effective_tokens)),
        keep_tool_uses=min(KEEP_MAX, max(KEEP_MIN, fitting)),
        exclude_tools=NEVER_CLEARED,
    )
