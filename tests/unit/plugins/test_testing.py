"""The suites for authors: they pass on what is right, and fail on what is not."""

from __future__ import annotations

from typing import Any

import pytest

from agent.context_compressor import ContextCompressor
from agent.memory_provider import MemoryProvider
from plugins.testing.conversations import long, orphans, rough_tokens
from plugins.testing.engines import EngineSuite, SummaryModel
from plugins.testing.providers import ProviderSuite
from plugins.testing.recorder import registered
from plugins.testing.tools import ToolSuite


class Compressor(ContextCompressor):
    """The built-in engine under a name that may be chosen."""

    @property
    def name(self) -> str:
        return "plain"


class TestTheBuiltInEngine(EngineSuite):
    """It is held to what others are."""

    @staticmethod
    def register(ctx: Any) -> None:
        ctx.register_context_engine(Compressor("a-model", threshold_percent=0.5))


class Remembers(MemoryProvider):
    """A provider that keeps what was said in a list."""

    name = "remembers"

    def __init__(self) -> None:
        self.said: list[str] = []

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.session = session_id

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []

    def sync_turn(self, user_content: str, assistant_content: str, *, session_id: str = "") -> None:  # type: ignore[override]
        self.said.append(user_content)

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        return "\n".join(self.said)


class TestAPlainProvider(ProviderSuite):
    """One that takes fewer keywords than the host offers."""

    @staticmethod
    def register(ctx: Any) -> None:
        ctx.register_memory_provider(Remembers())


def suite_for(handler: Any, schema: Any) -> ToolSuite:
    class Suite(ToolSuite):
        name = "t"
        arguments = {"a": 1}  # noqa: RUF012

        @staticmethod
        def register(ctx: Any) -> None:
            ctx.register_tool("t", "", schema, handler)

    return Suite()


GOOD = {"name": "t", "description": "A tool.", "parameters": {"type": "object", "properties": {}}}


def test_a_tool_that_breaks_a_promise_fails_the_suite() -> None:
    suite_for(lambda args: "x", GOOD).test_it_gives_text_that_is_not_too_long()
    with pytest.raises(AssertionError):
        suite_for(lambda args: None, GOOD).test_it_gives_text_that_is_not_too_long()
    with pytest.raises(AssertionError):
        suite_for(lambda args: args.clear(), GOOD).test_it_leaves_its_arguments_alone()
    with pytest.raises(AssertionError):
        suite_for(lambda args: 1 / 0, GOOD).test_it_is_called_on_several_threads_at_once()
    for parameters in ({"type": "array"}, {"properties": {"a": 1}}, {"required": ["b"]}):
        with pytest.raises(AssertionError):
            suite_for(
                str, {**GOOD, "parameters": parameters}
            ).test_its_schema_is_a_json_schema_of_an_object()


def test_an_engine_that_loses_the_question_fails_the_suite() -> None:
    class Loses(Compressor):
        def compress(self, messages: Any, *arguments: Any, **more: Any) -> Any:
            return messages[:-1]

    class Suite(EngineSuite):
        @staticmethod
        def register(ctx: Any) -> None:
            ctx.register_context_engine(Loses("a-model"))

    with pytest.raises(AssertionError, match="the question has to stay"):
        Suite().test_a_long_list_gets_shorter_and_stays_a_conversation()
    with pytest.raises(AssertionError):
        Suite().test_without_its_model_it_raises_or_leaves_a_conversation(SummaryModel())


def test_conversations_of_the_suites_are_whole() -> None:
    messages = long()
    assert orphans(messages) == []
    assert orphans([m for m in messages if m["role"] != "tool"]) != []
    assert rough_tokens(messages) > 8_000


def test_what_a_plugin_registers_twice_is_said() -> None:
    def twice(ctx: Any) -> None:
        ctx.register_command("/a", print)
        ctx.register_command("A", print)

    with pytest.raises(AssertionError, match="registered twice"):
        registered(twice)
