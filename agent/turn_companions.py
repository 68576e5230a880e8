"""Owns the port of what rides along with turns: memory, and plugins that add words to a message.

Companions are asked one after the other, in the order in which they were put together
(`gateway.turns.companions`), by one turn of a conversation at a time. None of them may break or
hold up a turn: each bounds its own time and the size of what it brings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agent.messages import Row

History = Callable[[], Awaitable[Sequence[Row]]]
"""The list of a conversation, read when it is asked for: `Row.message` is what was said."""


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What is known of a turn.

    The other ids are "" before the first turn of a conversation, unless a companion needs a session
    (`TurnCompanion.needs_session`).
    """

    turn_id: str
    """In `TurnCompanion.before`: of the turn that is about to begin. It may not come to that (a
    stop, a crash); the message is asked about again then, for a turn with another id."""
    conversation_id: str
    session_id: str
    """In `TurnCompanion.after`: in which the turn ended."""
    title: str
    session_key: str
    owner: str
    place: str
    """Whose lasting things may be seen here (`agent.ports.ToolContext.place`)."""
    platform: str
    model: str
    user_text: str
    """What the person said, without what anybody added."""
    revision: int = 0
    """Of the session's list: within a revision it only grows."""
    is_first_turn: bool = False
    is_retry: bool = False
    """The last turn is taken back, and its message is asked again."""
    user_id: str = ""
    user_name: str = ""
    chat_id: str = ""
    chat_name: str = ""
    chat_type: Literal["dm", "group", "thread"] = "dm"
    thread_id: str = ""


BoundaryReason = Literal["reset", "resume", "branch", "undo"]


@dataclass(frozen=True, slots=True)
class Boundary:
    """A person has led a place to another list: a new or another conversation, or one turned back.

    (A compression is none of these: the next turn's `TurnFacts` name another session.)
    """

    reason: BoundaryReason
    session_key: str
    owner: str
    old_conversation_id: str
    """ "": there was none."""
    old_session_id: str
    new_conversation_id: str
    new_session_id: str


class TurnCompanion(Protocol):
    """One that rides along."""

    @property
    def name(self) -> str:
        """What its words are called in the message, for the model: a noun in small letters."""
        ...

    @property
    def needs_session(self) -> bool:
        """Must the conversation exist before it is asked?"""
        ...

    async def before(self, facts: TurnFacts, history: History) -> str:
        """Words that ride in the person's message, as it is sent; "" for none.

        They are stored with the message, so they are neither asked for nor added again when a
        turn is resumed or the message is sent once more. Never raises.

        Args:
            facts: What is known before the turn is stored.
            history: The list before this message (at a retry: before the message asked again).
        """
        ...

    async def after(
        self,
        facts: TurnFacts,
        answer: str,
        history: History,
        *,
        completed: bool,
        interrupted: bool,
    ) -> None:
        """A turn is over, and its answer is stored. Returns at once; never raises.

        Args:
            facts: As `before`, and what is known by now.
            answer: What the person reads; "" where a turn did not come to its end.
            history: The list with the answer.
            completed: It has come to its normal end.
            interrupted: Somebody said stop.
        """
        ...

    async def crossed(self, boundary: Boundary, history: History) -> None:
        """A boundary was crossed. Never raises; bounded in time.

        ``history``: the list that was left (at an undo: as it is now).
        """
        ...
