"""Owns which hooks of plugins are ever called here (pure)."""

from __future__ import annotations

from collections.abc import Iterable

PRE_LLM_CALL = "pre_llm_call"
POST_LLM_CALL = "post_llm_call"
SESSION_START = "on_session_start"
SESSION_END = "on_session_end"
SESSION_FINALIZE = "on_session_finalize"
SESSION_RESET = "on_session_reset"
PRE_TOOL_CALL = "pre_tool_call"
POST_TOOL_CALL = "post_tool_call"
TRANSFORM_TOOL_RESULT = "transform_tool_result"

CALLED = frozenset(
    {
        PRE_LLM_CALL,
        POST_LLM_CALL,
        SESSION_START,
        SESSION_END,
        SESSION_FINALIZE,
        SESSION_RESET,
        PRE_TOOL_CALL,
        POST_TOOL_CALL,
        TRANSFORM_TOOL_RESULT,
    }
)


def never_called(names: Iterable[str]) -> list[str]:
    """Those that are taken and have no moment here: there are no subagents, nothing is gated."""
    return [name for name in dict.fromkeys(names) if name not in CALLED]
