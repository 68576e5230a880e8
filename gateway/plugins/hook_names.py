"""Owns which hooks and methods of plugins are ever called here (pure)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from agent.context_engine import ContextEngine
from agent.memory_provider import MemoryProvider

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


METHODS_NEVER_CALLED: Mapping[type, tuple[str, ...]] = {
    MemoryProvider: ("on_delegation", "get_config_schema", "save_config"),
    ContextEngine: ("should_compress_preflight", "get_status"),
}
"""Of the two contracts: nothing is delegated here, `posthouse init` asks nothing for plugins, one
question decides about a compression, and nobody shows an engine's own status."""


def overrides(given: object, contract: type, method: str) -> bool:
    """Has it a method of its own in this place of its contract? Runs none of its code."""
    own = inspect.getattr_static(contract, method)
    return given is not None and inspect.getattr_static(given, method, own) is not own


def methods_never_called(*given: object) -> list[str]:
    """Methods of its own that an engine or a provider has in vain."""
    return [
        method
        for one in given
        for contract, methods in METHODS_NEVER_CALLED.items()
        if isinstance(one, contract)
        for method in methods
        if overrides(one, contract, method)
    ]


def never_called(names: Iterable[str]) -> list[str]:
    """Those that are taken and have no moment here: there are no subagents, nothing is gated."""
    return [name for name in dict.fromkeys(names) if name not in CALLED]
