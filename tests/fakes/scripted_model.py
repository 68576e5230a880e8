"""Owns the model of the unit tests: scripted answers, and a judge of every request it gets."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from agent.errors import ModelError
from agent.llm.answers import message_of, plain_blocks
from agent.llm.clean import compact_json
from agent.llm.validator import ThinkingLedger, validate
from agent.llm.wire import build_body
from agent.messages import Message, text_of
from agent.model_metadata import estimate_messages_tokens_rough, estimate_tokens_rough
from agent.ports import ModelRequest, ModelResponse, Usage

_call_numbers = itertools.count(1)
_signatures = itertools.count(1)


def answer(
    text: str = "",
    *blocks: dict[str, Any],
    stop: str | None = None,
    usage: Usage | None = None,
) -> ModelResponse:
    """An answer of a text and further blocks; it stops as such an answer would."""
    content = [*([{"type": "text", "text": text}] if text else []), *blocks]
    calls = any(b["type"] == "tool_use" for b in blocks)
    return ModelResponse(
        message=message_of(content),
        stop_reason=stop or ("tool_use" if calls else "end_turn"),
        usage=usage,
        model="scripted",
    )


def call(name: str, arguments: dict[str, Any] | None = None, *, id: str = "") -> dict[str, Any]:  # noqa: A002
    """A tool call."""
    return {
        "type": "tool_use",
        "id": id or f"call_{next(_call_numbers)}",
        "name": name,
        "input": arguments or {},
    }


def thought(text: str = "hm") -> dict[str, Any]:
    """A thinking block with a signature of its own."""
    return {"type": "thinking", "thinking": text, "signature": f"sig_{next(_signatures)}"}


Item = ModelResponse | ModelError | Callable[[ModelRequest], "ModelResponse | ModelError"] | str


class ScriptedModel:
    """A model (`agent.ports.LanguageModel`) that answers from a script, in order.

    Every request must be valid, thinking in it must stand behind the prefix it was made behind;
    what is not so fails the test at `verify`.
    """

    def __init__(self, *items: Item, window: int = 200_000, name: str = "scripted") -> None:
        self.script: deque[Item] = deque(items)
        self.requests: list[ModelRequest] = []
        self.bodies: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.gate: asyncio.Event | None = None
        """If set: every answer waits for it."""
        self.closed = 0
        self._window = window
        self._name = name
        self._ledger = ThinkingLedger()

    @property
    def name(self) -> str:
        return self._name

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        body = build_body(request, request.model or self._name)
        self.requests.append(request)
        self.bodies.append(body)
        self.problems.extend(
            f"request {len(self.bodies)}: {v}"
            for v in validate(body, continues_pause=request.continues_pause, ledger=self._ledger)
        )
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if not self.script:
            raise AssertionError(f"request {len(self.bodies)} was not expected")
        item = self.script.popleft()
        if isinstance(item, str):
            item = answer(item)
        elif callable(item):
            item = item(request)
        text = text_of(item.message["content"]) if isinstance(item, ModelResponse) else ""
        for word in text.split(" "):
            if word and on_text is not None:
                on_text(f"{word} ")
        if isinstance(item, ModelError):
            raise item
        self._ledger.record(body, _blocks(item.message))
        return item if item.usage is not None else _with_usage(item, request)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return _prompt(request)

    async def window_tokens(self) -> int | None:
        return self._window

    async def aclose(self) -> None:
        self.closed += 1

    def verify(self) -> None:
        """Fail the test if any request was invalid, or the script is not used up."""
        assert self.problems == []
        assert not self.script, f"{len(self.script)} scripted answers were not asked for"


def _blocks(message: Message) -> list[dict[str, Any]]:
    return message.get("anthropic_content_blocks") or plain_blocks(message)


def _prompt(request: ModelRequest) -> int:
    tools = compact_json([[t.name, t.description, t.parameters] for t in request.tools])
    return (
        estimate_tokens_rough(request.system)
        + estimate_tokens_rough(tools)
        + estimate_messages_tokens_rough(request.messages)
    )


def _with_usage(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    return ModelResponse(
        message=response.message,
        stop_reason=response.stop_reason,
        usage=Usage(_prompt(request), estimate_messages_tokens_rough([response.message])),
        model=response.model,
        dropped_thinking=response.dropped_thinking,
    )
