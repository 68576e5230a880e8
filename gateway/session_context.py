"""Owns which session plugin code runs for: read by `get_session_env`, the name plugins import.

A thread begins without one: whoever runs plugin code binds the session on the thread that runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_session: ContextVar[Mapping[str, str] | None] = ContextVar("session of plugin code", default=None)


def get_session_env(name: str, default: str = "") -> str:
    """A fact of the session: ``HERMES_SESSION_ID``, ``HERMES_SESSION_KEY`` and others.

    Where a session is bound, nothing but it answers: another one's facts would be worse than none.
    Where none is, the environment of the process does, as in a plugin's own test suite.
    """
    bound = _session.get()
    return os.environ.get(name, default) if bound is None else bound.get(name, default)


@contextmanager
def session_bound(
    *,
    session_id: str,
    session_key: str,
    platform: str = "",
    chat_id: str = "",
    chat_name: str = "",
    thread_id: str = "",
    user_id: str = "",
    user_name: str = "",
    message_id: str = "",
) -> Iterator[None]:
    """What runs inside runs for this session. An empty fact is one that is not known."""
    facts = {
        "HERMES_SESSION_ID": session_id,
        "HERMES_SESSION_KEY": session_key,
        "HERMES_SESSION_PLATFORM": platform,
        "HERMES_SESSION_CHAT_ID": chat_id,
        "HERMES_SESSION_CHAT_NAME": chat_name,
        "HERMES_SESSION_THREAD_ID": thread_id,
        "HERMES_SESSION_USER_ID": user_id,
        "HERMES_SESSION_USER_NAME": user_name,
        "HERMES_SESSION_MESSAGE_ID": message_id,
    }
    token = _session.set({name: value for name, value in facts.items() if value})
    try:
        yield
    finally:
        _session.reset(token)
