"""Owns which conversation of the file the engine is in, whatever it was told or not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plugins.context_engine.lossless.nodes import Node, is_node, mark_in
from plugins.context_engine.lossless.sessions import Sessions
from plugins.context_engine.lossless.vault import Vault

MOST_RELATIVES = 20
BRANCH = "branch"


@dataclass(frozen=True, slots=True)
class Start:
    """What the host said of a session that begins."""

    session_id: str
    key: str
    old_session_id: str = ""
    reason: str = ""


class Belonging:
    """The conversation of one engine.

    Sessions are told one by one, and a crash may swallow the telling of one. So a session that
    nobody knows becomes a conversation of its own only until its first list is seen: where that
    holds a node of another conversation of the same place, word for word, it goes on with that one.
    """

    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault
        self._untold: list[Start] = []
        self._session_id = ""
        self._conversation: int | None = None

    @property
    def session_id(self) -> str:
        """Where the host is, as far as it said."""
        return self._untold[-1].session_id if self._untold else self._session_id

    def starts(self, start: Start, at: float) -> None:
        """A session begins. Where the file can not be used, it is entered the next time."""
        self._untold.append(start)
        self._enter(at)

    def _enter(self, at: float) -> None:
        while self._untold:
            start = self._untold[0]
            self._conversation = self._of(start, at)
            self._session_id = start.session_id
            del self._untold[0]

    def _of(self, start: Start, at: float) -> int:
        known = self._sessions.conversation_of(start.session_id)
        if known is not None:
            return known
        old = self._sessions.conversation_of(start.old_session_id) if start.old_session_id else None
        if old is not None and start.reason and start.reason != BRANCH:
            self._sessions.lead(start.session_id, old)
            return old
        parent = old if start.reason == BRANCH else None
        return self._sessions.begin(start.session_id, start.key, at, parent=parent)

    def conversation(self, at: float) -> int:
        """Where the engine is; a host that tells nothing of sessions has one conversation."""
        if self._untold:
            self._enter(at)
        if self._conversation is None:
            self._conversation = self._sessions.begin(f"untold-{id(self)}-{at}", "", at)
        return self._conversation

    def nodes_in(
        self, messages: Sequence[Mapping[str, Any]], at: float
    ) -> tuple[int, dict[int, Node]]:
        """(the conversation, which messages of a list are nodes of it, by their places)."""
        conversation = self.conversation(at)
        marked = {i: mark for i, m in enumerate(messages) if (mark := mark_in(m))}
        found = self._of_these(conversation, messages, marked)
        if len(found) == len(marked):
            return conversation, found
        parent, others = self._sessions.relatives(conversation)
        missing = {i: mark for i, mark in marked.items() if i not in found}
        generations = 0
        while parent is not None and generations < MOST_RELATIVES:
            if theirs := self._of_these(parent, messages, missing):
                self._vault.adopt(conversation, parent, {n.id for n in theirs.values()}, at)
                return conversation, found | theirs
            # A branch in which nothing was said has nothing of its own.
            parent, generations = self._sessions.relatives(parent)[0], generations + 1
        if self._sessions.is_empty(conversation):
            for other in others[:MOST_RELATIVES]:
                if theirs := self._of_these(other, messages, missing):
                    self._sessions.lead(self._session_id, other)
                    self._conversation = other
                    return other, theirs
        return conversation, found

    def _of_these(
        self, conversation: int, messages: Sequence[Mapping[str, Any]], marked: Mapping[int, str]
    ) -> dict[int, Node]:
        found = {}
        for i, mark in marked.items():
            node = self._vault.node(conversation, mark)
            if node is not None and is_node(messages[i], node):
                found[i] = node
        return found
