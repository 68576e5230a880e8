"""The contract of context engines (`plugins.testing`), over ours and those of our own tests."""

from __future__ import annotations

import copy
from typing import Any

from agent.context_compressor import ContextCompressor
from plugins.context_engine import lossless
from plugins.testing.engines import EngineSuite
from tests.fakes.recording_engine import Old, Recording


class WithOneTool(Recording):
    """The recording one gives nonsense among its tools, for its host to leave out."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return super().get_tool_schemas()[:1]


class OldWithOneTool(Old):
    """Likewise."""

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return super().get_tool_schemas()[:1]


class TestBuiltIn(EngineSuite):
    def make(self) -> Any:
        return ContextCompressor("a-model")

    # It has the name that none may have.
    test_it_is_an_engine_with_a_name_that_can_be_chosen = None  # type: ignore[assignment]


class TestRecording(EngineSuite):
    def make(self) -> Any:
        return copy.deepcopy(WithOneTool())


class TestOfTheOldestShape(EngineSuite):
    def make(self) -> Any:
        return OldWithOneTool()


class TestLossless(EngineSuite):
    register = staticmethod(lossless.register)
