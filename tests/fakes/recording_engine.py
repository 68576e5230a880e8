"""Owns an engine that takes down all that its host does to it: in order, and on which thread."""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from agent.context_engine import ContextEngine

THRESHOLD = 8000
LOOK_UP = {"name": "look_up", "description": "Look.", "parameters": {"type": "object"}}
PLUGIN = """
from tests.fakes.recording_engine import Recording, {name}
def register(ctx):
    ctx.register_context_engine({name}())
"""


def is_short(messages: list[dict[str, Any]]) -> bool:
    """Is there nothing worth a summary?"""
    return len(json.dumps(messages)) < 4000


@dataclass(frozen=True, slots=True)
class Heard:
    """One call."""

    engine: int
    """Which instance: 0 is the plugin's own."""
    method: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    thread: str


class Recording(ContextEngine):
    """Takes everything down, in one list for all instances; compresses over the threshold."""

    heard: ClassVar[list[Heard]] = []
    numbers: ClassVar[Iterator[int]] = itertools.count()
    name = "recording"

    def __init__(self) -> None:
        self.number = next(Recording.numbers)

    @classmethod
    def begin(cls) -> None:
        """Of a test: nothing was heard, and there is no instance."""
        cls.heard.clear()
        Recording.numbers = itertools.count()

    def __deepcopy__(self, memo: dict[int, Any]) -> Recording:
        return type(self)()

    def note(self, method: str, *args: Any, **keywords: Any) -> None:
        said = copy.deepcopy((args, keywords))
        thread = threading.current_thread().name
        self.heard.append(Heard(self.number, method, *said, thread))

    def update_model(self, model: str, context_length: int, **more: Any) -> None:  # type: ignore[override]
        self.note("update_model", model, context_length, **more)
        super().update_model(model, context_length, **more)
        self.threshold_tokens = THRESHOLD

    def bind_session_state(self, session_db: Any = None, session_id: str = "") -> None:
        self.note("bind_session_state", session_id, session_db is not None)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        self.note("get_tool_schemas")
        return [{"type": "function", "function": LOOK_UP}, LOOK_UP, {"description": "nameless"}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self.note("handle_tool_call", name, args, **kwargs)
        if name != "look_up":
            return super().handle_tool_call(name, args, **kwargs)
        return json.dumps({"found_by": self.number, "seen": len(kwargs["messages"])})

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.note("on_session_start", session_id, **kwargs)

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        self.note("on_session_end", session_id, len(messages))

    def on_session_reset(self) -> None:
        self.note("on_session_reset")
        super().on_session_reset()

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.note("update_from_response", **usage)
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        self.note("should_defer_preflight_to_real_usage", rough_tokens)
        return False

    def get_active_compression_failure_cooldown(self) -> None:
        self.note("get_active_compression_failure_cooldown")

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.note("should_compress", prompt_tokens)
        return (prompt_tokens or 0) >= THRESHOLD

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        self.note("has_content_to_compress", len(messages))
        return True

    def pending_compression_operation(self, messages: list[dict[str, Any]]) -> str | None:
        self.note("pending_compression_operation", len(messages))
        return None

    def compress(self, messages: list[dict[str, Any]], **kwargs: Any) -> list[dict[str, Any]]:  # type: ignore[override]
        self.note("compress", len(messages), **kwargs)
        if is_short(messages):
            return messages
        self.compression_count += 1
        for message in messages[:-1]:
            message["content"] = "vandalised"  # a copy: nobody else may see it
        return [{"role": "user", "content": "SUMMARY of it"}, messages[-1]]

    def get_automatic_compaction_status_message(
        self, *, phase: str, default_message: str, **context: Any
    ) -> str | None:
        self.note("status", phase, **context)
        return f"shortening ({phase})"

    def on_turn_complete(
        self, messages: list[dict[str, Any]], usage: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self.note("on_turn_complete", [m["content"] for m in messages], usage, **kwargs)

    def shutdown(self) -> None:
        self.note("shutdown")


class Old(Recording):
    """With the parameters of the oldest engines."""

    name = "old"

    def update_model(self, model: str, context_length: int) -> None:  # type: ignore[override]
        self.note("update_model", model, context_length)
        self.context_length, self.threshold_tokens = context_length, THRESHOLD

    def compress(  # type: ignore[override]
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[dict[str, Any]]:
        self.note("compress", len(messages), current_tokens=current_tokens, focus_topic=focus_topic)
        if is_short(messages):
            return messages
        return [{"role": "user", "content": "SUMMARY of it"}, messages[-1]]

    def handle_tool_call(self, name: str, args: dict[str, Any]) -> str:  # type: ignore[override]
        return super().handle_tool_call(name, args, messages=[])

    def on_turn_complete(self, messages: list[dict[str, Any]]) -> None:  # type: ignore[override]
        self.note("on_turn_complete", len(messages))


class Uncopyable(Recording):
    """Can only be had by registering anew."""

    name = "uncopyable"

    def __deepcopy__(self, memo: dict[int, Any]) -> Recording:
        raise TypeError("cannot pickle 'sqlite3.Connection' object")


class Selecting(Recording):
    """Sends what it likes with each request."""

    name = "selecting"
    choice: ClassVar[Any] = None

    def select_context(
        self, request_messages: list[dict[str, Any]], **kwargs: Any
    ) -> list[dict[str, Any]] | None:
        self.note("select_context", len(request_messages), **kwargs)
        chosen: list[dict[str, Any]] | None = Selecting.choice(request_messages)
        return chosen
