"""Owns what is promised of every memory provider: `ProviderSuite`, for tests to inherit."""

from __future__ import annotations

import json
import re
import time
from typing import Any, ClassVar

import pytest

from agent.memory_provider import MemoryProvider
from plugins.testing import conversations
from plugins.testing.recorder import registered, taken_by

PREFETCH_SECONDS = 3.0
"""The host waits no longer."""


class ProviderSuite:
    """Give `register` or override `make`; run by pytest. It has to work without a network."""

    register: ClassVar[Any]
    """Wrapped in ``staticmethod``."""
    settings: ClassVar[Any] = {}

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hermes_home = tmp_path / "hermes"
        self.hermes_home.mkdir()
        monkeypatch.setenv("HERMES_HOME", str(self.hermes_home))

    def make(self) -> Any:
        """A provider as it comes out of `register`."""
        provider = registered(type(self).register, self.settings).provider
        assert provider is not None, "register(ctx) registered no memory provider"
        return provider

    def begun(self, session_id: str = "session-1") -> Any:
        """A provider in its conversation."""
        provider = self.make()
        offered = {
            "hermes_home": str(self.hermes_home),
            "platform": "telegram",
            "agent_context": "primary",
            "user_id": "7",
            "chat_id": "7",
            "gateway_session_key": "key-1",
        }
        provider.initialize(session_id, **taken_by(provider.initialize, offered))
        return provider

    def synced(self, provider: Any, user: str, assistant: str, session_id: str) -> None:
        """One turn, as the host tells of it."""
        offered = {"session_id": session_id, "messages": conversations.short()}
        provider.sync_turn(user, assistant, **taken_by(provider.sync_turn, offered))

    def test_it_is_a_provider_with_a_name_that_can_be_chosen(self) -> None:
        provider = self.make()
        assert isinstance(provider, MemoryProvider)
        assert re.fullmatch(r"[a-z0-9_-]{1,64}", provider.name)
        assert isinstance(provider.is_available(), bool)

    def test_its_tools_are_described(self) -> None:
        for schema in self.begun().get_tool_schemas():
            bare = schema.get("function", schema)
            json.dumps(bare)
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", bare["name"])

    def test_what_it_adds_is_text_and_comes_soon(self) -> None:
        provider = self.begun()
        self.synced(provider, "My dog is called Bello.", "A fine name.", "session-1")
        begun = time.monotonic()
        found = provider.prefetch("What is my dog called?", session_id="session-1")
        assert isinstance(found, str)
        assert time.monotonic() - begun < PREFETCH_SECONDS
        assert isinstance(provider.system_prompt_block(), str)

    def test_its_block_of_the_prompt_does_not_change_while_people_talk(self) -> None:
        """It stands in the prefix, which is only cheap while it stays the same."""
        provider = self.begun()
        before = provider.system_prompt_block()
        provider.prefetch("Hello", session_id="session-1")
        assert provider.system_prompt_block() == before

    def test_a_compression_and_a_new_conversation(self) -> None:
        provider = self.begun()
        assert isinstance(provider.on_pre_compress(conversations.long(4)), str)
        for reset, reason in ((False, "compression"), (True, "new_session")):
            offered = {"parent_session_id": "session-1", "reset": reset, "reason": reason}
            provider.on_session_switch("session-2", **taken_by(provider.on_session_switch, offered))

    def test_a_call_of_an_unknown_tool_is_an_answer(self) -> None:
        assert "error" in json.loads(self.begun().handle_tool_call("no_such_tool", {}))

    def test_it_says_whether_it_can_forget_a_person(self) -> None:
        """On an instance that was not initialised, and once more, as after a crash."""
        provider = self.make()
        offered = {
            "conversation_ids": ["key-0"],
            "session_ids": ["session-0"],
            "hermes_home": str(self.hermes_home),
        }
        for _ in range(2):
            call = provider.on_forget_person
            assert call("telegram:7", **taken_by(call, offered)) in (True, False, None)

    def test_it_says_whether_it_can_forget_old_conversations(self) -> None:
        """As above; what is asked may be nothing that it knows."""
        provider = self.make()
        for _ in range(2):
            call = provider.on_forget_sessions
            offered = taken_by(call, {"hermes_home": str(self.hermes_home)})
            assert call(["session-0"], **offered) in (True, False, None)

    def test_it_ends_and_may_be_told_so_twice(self) -> None:
        provider = self.begun()
        provider.on_session_end(conversations.short())
        provider.shutdown()
        provider.shutdown()
