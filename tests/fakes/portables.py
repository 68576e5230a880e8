"""Owns ready-made portable conversations for tests."""

from __future__ import annotations

from agent.exchange.records import Portable, PortableAnchor, PortableMessage, PortableSession


def portable_session(
    session_id: str = "s_one", *messages: PortableMessage, live: bool = True
) -> PortableSession:
    """A session with these messages."""
    return PortableSession(
        id=session_id,
        revision=0,
        source="telegram",
        model="m",
        model_config={},
        system_prompt="be kind",
        tools=({"name": "t", "description": "d", "parameters": {"type": "object"}},),
        title="trip",
        started_at=1.0,
        ended_at=None if live else 2.0,
        end_reason=None if live else "compression",
        last_seq=len(messages),
        anchor=PortableAnchor(10, 2, messages[-1].number) if live and messages else None,
        compression={} if live else {"count": 1},
        manifest=None,
        messages=messages,
    )


def portable_chain() -> Portable:
    """Two sessions: the second one holds a summary that names rows, and a copy."""
    question = PortableMessage(1, 1, True, False, 1.0, "user", "where is /etc/hosts?")
    answer = PortableMessage(2, 2, True, False, 1.5, "assistant", "Right there.")
    summary = PortableMessage(
        3,
        1,
        True,
        False,
        2.0,
        "user",
        "asked about hosts (m1)\nNot quoted here: recall ref m1",
        kind="summary",
    )
    copy = PortableMessage(4, 2, True, False, 1.5, "assistant", "Right there.", origin=2)
    return Portable(
        "c_one",
        "telegram:7",
        '["telegram","b","7",null,"7"]',
        1.0,
        (
            portable_session("s_one", question, answer, live=False),
            portable_session("s_two", summary, copy),
        ),
    )
