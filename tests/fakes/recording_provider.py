"""Owns memory providers for tests: one that writes down what it hears, an old one, and bad ones."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent.memory_provider import MemoryProvider

PLUGIN = """
from tests.fakes.recording_provider import {name}

def register(ctx):
    ctx.register_memory_provider({name}())
"""


@dataclass(frozen=True, slots=True)
class Heard:
    """One call."""

    instance: int
    method: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    thread: str


class Recording(MemoryProvider):
    """Takes every keyword; ``heard`` is everybody's, in order."""

    heard: ClassVar[list[Heard]] = []
    made: ClassVar[int] = 0
    clashes: ClassVar[int] = 0

    def __init__(self) -> None:
        self._number = Recording.made
        Recording.made += 1
        self._at_work = threading.Lock()

    @classmethod
    def begin(cls) -> None:
        Recording.heard.clear()
        Recording.made = Recording.clashes = 0

    def note(self, method: str, *args: Any, **keywords: Any) -> None:
        if not self._at_work.acquire(blocking=False):
            Recording.clashes += 1
            return
        try:
            time.sleep(0.001)  # so that a second call at once would be seen
            heard = Heard(
                self._number,
                method,
                copy.deepcopy(args),
                copy.deepcopy(keywords),
                threading.current_thread().name,
            )
            Recording.heard.append(heard)
        finally:
            self._at_work.release()

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.note("initialize", session_id, **kwargs)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "look_up", "description": "x", "parameters": {"type": "object"}}]

    def system_prompt_block(self) -> str:
        self.note("system_prompt_block")
        return "I keep facts."

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        self.note("prefetch", query, session_id=session_id)
        return f"found for {query[:20]}"

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        self.note("queue_prefetch", query, session_id=session_id)

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        self.note(
            "sync_turn", user_content, assistant_content, session_id=session_id, messages=messages
        )
        for message in messages or ():
            message["content"] = "vandalised"

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        self.note("on_turn_start", turn_number, message, **kwargs)

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self.note("handle_tool_call", tool_name, args, **kwargs)
        return '{"known": "tea"}'

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        self.note("on_session_end", messages)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        self.note(
            "on_session_switch",
            new_session_id,
            parent_session_id=parent_session_id,
            reset=reset,
            rewound=rewound,
            **kwargs,
        )

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        self.note("on_pre_compress", messages)
        return "KEEP THE LIGHTHOUSE"

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        self.note("on_memory_write", action, target, content, metadata=metadata)

    def shutdown(self) -> None:
        self.note("shutdown")


class Old(Recording):
    """As providers were written before there were so many keywords."""

    def prefetch(self, query: str) -> str:  # type: ignore[override]
        self.note("prefetch", query)
        return "old facts"

    def sync_turn(  # type: ignore[override]
        self, user_content: str, assistant_content: str
    ) -> None:
        self.note("sync_turn", user_content, assistant_content)

    def on_turn_start(self, turn_number: int, message: str) -> None:  # type: ignore[override]
        self.note("on_turn_start", turn_number, message)

    def on_session_switch(self, new_session_id: str) -> None:  # type: ignore[override]
        self.note("on_session_switch", new_session_id)

    def on_memory_write(  # type: ignore[override]
        self, action: str, target: str, content: str
    ) -> None:
        self.note("on_memory_write", action, target, content)


class Raising(Recording):
    """Fails at everything but being there."""

    def note(self, method: str, *args: Any, **keywords: Any) -> None:
        super().note(method, *args, **keywords)
        if method != "initialize":
            raise RuntimeError(f"{method} does not work")


class Hanging(Recording):
    """Never comes back from what it is asked."""

    gate: ClassVar[threading.Event] = threading.Event()

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        self.note("prefetch", query)
        self.gate.wait(30)
        return "too late"


class Stuck(Recording):
    """Never gets ready."""

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.note("initialize", session_id, **kwargs)
        Hanging.gate.wait(30)


class Unavailable(Recording):
    """Is not set up."""

    def is_available(self) -> bool:
        return False


class Idle(MemoryProvider):
    """Does nothing at all."""

    name = "idle"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        pass

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []


class Clearing(Recording):
    """Can forget old conversations."""

    def on_forget_sessions(self, session_ids: Sequence[str], **kwargs: Any) -> bool | None:
        self.note("on_forget_sessions", list(session_ids), **kwargs)
        return True

    def shutdown(self) -> None:
        self.note("shutdown")


class Erasing(Recording):
    """Can forget a person."""

    def on_forget_person(self, owner: str, **kwargs: Any) -> bool | None:
        self.note("on_forget_person", owner, **kwargs)
        return True

    def shutdown(self) -> None:
        self.note("shutdown")
