"""Owns what is promised of every plugin's tool: `ToolSuite`, for authors' tests to inherit."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import re
import threading
from typing import Any, ClassVar

from plugins.testing.recorder import GivenTool, registered, taken_by

MAX_CHARS = 1_000_000
MAX_SCHEMA_CHARS = 32_000
THREADS = 8
SECONDS = 10.0


class ToolSuite:
    """Set the three attributes; run by pytest."""

    register: ClassVar[Any]
    """Wrapped in ``staticmethod``."""
    name: ClassVar[str]
    arguments: ClassVar[Any]
    """With which it works, without a network if possible."""
    settings: ClassVar[Any] = {}

    def given(self) -> GivenTool:
        """The tool, registered anew."""
        tools = registered(type(self).register, self.settings).tools
        assert self.name in tools, f"no tool {self.name} is registered, only {sorted(tools)}"
        return tools[self.name]

    def run(self, arguments: dict[str, Any] | None = None, tool: GivenTool | None = None) -> Any:
        """One call, as the host makes it; what has to be awaited is."""
        handler = (tool or self.given()).handler
        context = {"task_id": "t", "session_id": "s", "conversation_id": "c", "turn_id": "u"}
        args = dict(self.arguments) if arguments is None else arguments
        result = handler(args, **taken_by(handler, context))
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result

    def test_its_name_is_one_that_models_take(self) -> None:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", self.name)

    def test_its_schema_is_a_json_schema_of_an_object(self) -> None:
        schema = json.loads(json.dumps(dict(self.given().schema)))
        assert len(json.dumps(schema)) <= MAX_SCHEMA_CHARS
        parameters = schema["parameters"]
        properties = parameters.get("properties", {})
        assert parameters.get("type", "object") == "object"
        assert all(isinstance(value, dict) for value in properties.values())
        assert set(parameters.get("required", [])) <= set(properties)
        assert schema["description"].strip(), "the model only knows what stands here"

    def test_its_schema_never_changes(self) -> None:
        """A changed schema is a changed prefix: every conversation pays for it."""
        assert dict(self.given().schema) == dict(self.given().schema)

    def test_it_gives_text_that_is_not_too_long(self) -> None:
        result = self.run()
        assert isinstance(result, str | dict | list), type(result)
        text = result if isinstance(result, str) else json.dumps(result)
        assert 0 < len(text) <= MAX_CHARS

    def test_it_leaves_its_arguments_alone(self) -> None:
        arguments = copy.deepcopy(dict(self.arguments))
        self.run(arguments)
        assert arguments == self.arguments

    def test_it_is_called_on_several_threads_at_once(self) -> None:
        failed: list[BaseException] = []
        tool = self.given()

        def call() -> None:
            try:
                self.run(tool=tool)
            except BaseException as exc:  # noqa: BLE001  (told by the test's own thread)
                failed.append(exc)

        threads = [threading.Thread(target=call, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert not failed
        assert not any(thread.is_alive() for thread in threads)


async def _awaited(result: Any) -> Any:
    return await result
