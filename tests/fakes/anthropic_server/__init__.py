"""Owns the public names of the strict loopback Messages API that all tests talk to.

In a test: `async with AnthropicServer(window=8000) as server:` and point the SDK at
`server.base_url` with `server.api_key`. As a process: `python -m tests.fakes.anthropic_server`.
"""

from tests.fakes.anthropic_server.errors import ApiError
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.records import RequestRecord
from tests.fakes.anthropic_server.request import SUMMARY_MARK, MessageRequest
from tests.fakes.anthropic_server.responders import SECTIONS, echo, summary_text
from tests.fakes.anthropic_server.rules import check_request
from tests.fakes.anthropic_server.script import (
    AUTO,
    Answer,
    Fault,
    Match,
    redacted_thinking,
    text,
    thinking,
    tool_use,
)
from tests.fakes.anthropic_server.server import DEFAULT_KEY, AnthropicServer
from tests.fakes.anthropic_server.units import canonical_units, common_prefix, count_text

__all__ = [
    "AUTO",
    "DEFAULT_KEY",
    "SECTIONS",
    "SUMMARY_MARK",
    "Answer",
    "AnthropicServer",
    "ApiError",
    "Fault",
    "Match",
    "MessageRequest",
    "ModelFacts",
    "RequestRecord",
    "canonical_units",
    "check_request",
    "common_prefix",
    "count_text",
    "echo",
    "redacted_thinking",
    "summary_text",
    "text",
    "thinking",
    "tool_use",
]
