"""Owns the public contract of memory providers: what the host calls, when, and what comes back.

Third-party providers import this module, so it needs nothing but the standard library. At most one
provider is active, chosen by ``memory.provider``. Providers are synchronous; the host calls them
from worker threads with deadlines, `sync_turn` on one worker in order. An error in a provider is
logged and never breaks a turn. The host leaves out keywords that a method's signature lacks.
"""

# ruff: noqa: B027  (optional methods do nothing by default, on purpose)

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class MemoryProvider(ABC):
    """Remembers things across conversations."""

    # --- required -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The value of ``memory.provider`` that selects it; constant."""

    @abstractmethod
    def is_available(self) -> bool:
        """Could it work now (configured, dependencies there)? Makes no network call."""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Get ready, once per conversation.

        Keywords: hermes_home, platform, agent_context, agent_identity, agent_workspace,
        gateway_session_key, and as far as known session_title, user_id, user_id_alt, user_name,
        chat_id, chat_name, chat_type, thread_id.
        """

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Its tools: ``{name, description, parameters}``; ``[]`` for none."""

    # --- optional: around a turn ----------------------------------------------------------------

    def system_prompt_block(self) -> str:
        """Text for the system prompt, constant for a session; ``""`` for none."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """What is worth knowing for this user message; it rides in that message. Quick."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Start to look things up for the next turn; returns at once."""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """A turn is over: remember what is worth it."""

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """A turn begins."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run one of its tools; gives back JSON text."""
        return json.dumps({"error": f"unknown memory tool: {tool_name}"})

    # --- optional: around a conversation --------------------------------------------------------

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """A session ends for good."""

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The conversation goes on in another session.

        Args:
            new_session_id: Where it goes on.
            parent_session_id: Where it comes from.
            reset: It was started anew: forget what belonged to the old one.
            rewound: Messages were taken back.
            kwargs: ``reason="compression"`` after a split.
        """

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """These messages are about to be summarised: text that the summary has to keep."""
        return ""

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """The built-in memory was written to: mirror it if that makes sense."""

    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """Another agent has finished a task for this one. Never called: nothing is delegated."""

    def on_forget_person(
        self,
        owner: str,
        *,
        conversation_ids: Sequence[str],
        session_ids: Sequence[str],
        **kwargs: Any,
    ) -> bool | None:
        """A person asked to be forgotten: erase what is remembered of them, wherever it is kept.

        Called on an instance that was made for it, on which `initialize` was not called; those of
        the conversations concerned were shut down before, what waited for them was let go. It may
        be called again for the same person. True: nothing of them is left. False, an exception or a
        missed deadline (60 s): not now, it is tried again. None: this provider can not; whoever
        asked is told so.

        Args:
            owner: ``platform:user id``.
            conversation_ids: Conversations, as `initialize` calls them (``gateway_session_key``),
                that are this person's alone.
            session_ids: All sessions of all conversations in which they had a part.
            kwargs: ``hermes_home``.
        """
        return None

    def on_forget_sessions(self, session_ids: Sequence[str], **kwargs: Any) -> bool | None:
        """Conversations were deleted as nothing was said in them for long: erase what is kept.

        Called as `on_forget_person` is, and answered as that. Nobody comes back to these sessions.

        Args:
            session_ids: All sessions of some conversations, and of all that hang together with
                them by forks.
            kwargs: ``hermes_home``.
        """
        return None

    def shutdown(self) -> None:
        """Finish what is queued and let go; the process ends."""

    # --- optional: set-up -----------------------------------------------------------------------

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Fields that a set-up dialogue asks for. Never called here: there is none for plugins."""
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store what that dialogue collected (no secrets). Never called here."""

    def backup_paths(self) -> list[str]:
        """Files outside the home that a backup should take along."""
        return []
