"""Owns the benches of compaction (rows 4a, 4c, 4d): one pass over the list, or none at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

from agent.clock import SystemClock
from agent.compaction.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.messages import Message, Row
from agent.model_metadata import estimate_message_tokens, estimate_messages_tokens_rough
from agent.sessions import (
    CompressionState,
    LoadedSession,
    Session,
    SessionPrefix,
    UsageAnchor,
)
from tests.bench.measure import CJK, WORDS, Result
from tests.fakes.clock import SequentialIds
from tests.fakes.side_model import ScriptedSideModel


def conversation(count: int) -> list[Message]:
    """User, assistant with a tool call, 2 KB of result, assistant; every fifth text is CJK."""
    messages: list[dict[str, Any]] = []
    for k in range(count):
        words = (CJK * 10)[:200] if k % 5 == 0 else " ".join(WORDS * 4)[:200]
        text = f"{k} {words}"[:200]
        match k % 4:
            case 0:
                messages.append({"role": "user", "content": text})
            case 1:
                arguments = json.dumps({"path": f"/srv/app/{k}.py"})
                call = {"id": f"c{k}", "function": {"name": "read", "arguments": arguments}}
                messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
            case 2:
                body = f"{k} " + " ".join(WORDS * 40)[:2000]
                messages.append({"role": "tool", "tool_call_id": f"c{k - 1}", "content": body})
            case _:
                messages.append({"role": "assistant", "content": text})
        messages[-1]["_row"] = k + 1
    return cast(list[Message], messages)


def timed(call: Callable[[], object], repeat: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat * 1000


def alternate(
    ours: Callable[[], float], limit: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Call both in turns, so that a busy moment of the machine hits both."""
    pairs = [(ours(), limit()) for _ in range(rounds)]
    return [mine for mine, _ in pairs], [floor for _, floor in pairs]


def run() -> list[Result]:
    return [_compress(), _per_turn_check(), _whole_estimate()]


def _compress() -> Result:
    messages = conversation(10_000)

    def ours() -> float:
        engine = ContextCompressor(
            "m", config_context_length=200_000, side_model=ScriptedSideModel("## Goal\nx")
        )
        given = cast(list[dict[str, Any]], messages)
        return timed(lambda: engine.compress(given, current_tokens=160_000, force=True))

    def limit() -> float:
        return timed(lambda: json.dumps(messages, ensure_ascii=False))

    mine, floor = alternate(ours, limit, 3)
    return Result(
        "4b compress 10k, cold, with input",
        "ms",
        mine,
        floor,
        at_most=1.4,
        note="identifiers and redaction are not kept beside messages yet",
    )


def _loaded(count: int) -> LoadedSession:
    rows = tuple(
        Row(i + 1, "s", i + 1, message, 0.0, tokens=estimate_message_tokens(message))
        for i, message in enumerate(conversation(count))
    )
    session = Session(
        id="s",
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=SessionPrefix("bench", "m", "s" * 2000),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=count,
        anchor=UsageAnchor(90_000, 500, count - 2),
        compression=CompressionState(),
    )
    return LoadedSession(session, rows)


def _per_turn_check() -> Result:
    engine = ContextCompressor("m", config_context_length=200_000, side_model=ScriptedSideModel())
    store: Any = None  # deciding needs none
    compactor = SessionCompactor(engine, store, SystemClock(), SequentialIds())
    small, large = _loaded(100), _loaded(10_000)
    mine, floor = alternate(
        lambda: timed(lambda: compactor.due(large), 500),
        lambda: timed(lambda: compactor.due(small), 500),
        7,
    )
    return Result(
        "4c token check per turn, 10k vs 100",
        "ms",
        mine,
        floor,
        at_most=1.6,
        note="the limit is the same check on 100 messages",
    )


def _whole_estimate() -> Result:
    messages = conversation(1000)

    def one(message: Message) -> int:
        content = cast(str, message["content"])
        size = len(content) if content.isascii() else len(content.encode("utf-16-le"))
        for call in message.get("tool_calls") or ():
            size += len(call["function"]["arguments"]) + len(call["function"]["name"])
        return size

    mine, floor = alternate(
        lambda: timed(lambda: estimate_messages_tokens_rough(messages), 20),
        lambda: timed(lambda: sum(map(one, messages)), 20),
        7,
    )
    return Result("4d estimate of 1k messages", "ms", mine, floor, at_most=2.0)
