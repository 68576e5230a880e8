"""Owns the wire form of an answer: the message object and its server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.fakes.anthropic_server.units import Json, compact

PIECE_CHARS = 24
MAX_PIECES = 64


@dataclass(frozen=True)
class Final:
    """A finished answer, ready for the wire."""

    id: str
    model: str
    content: Sequence[Json]
    stop_reason: str | None
    stop_sequence: str | None
    stop_details: Json | None
    usage: Json
    transformations: Sequence[Json] | None = None
    pieces: int | None = None
    input_json: str | None = None
    extra: Json | None = None


@dataclass(frozen=True)
class Event:
    """One server-sent event; `is_delta` marks content on its way."""

    name: str
    data: Json
    is_delta: bool = False

    def encode(self) -> bytes:
        """The bytes of the event."""
        return encode_event(self.name, self.data)


def encode_event(name: str, data: Json) -> bytes:
    """An `event:` and a `data:` line."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {body}\n\n".encode()


def message_object(final: Final) -> Json:
    """The body of a non-streaming answer."""
    out: Json = {
        "id": final.id,
        "type": "message",
        "role": "assistant",
        "model": final.model,
        "content": list(final.content),
        "stop_reason": final.stop_reason,
        "stop_sequence": final.stop_sequence,
        "stop_details": final.stop_details,
        "usage": final.usage,
    }
    if final.transformations is not None:
        out["input_transformations"] = list(final.transformations)
    out.update(final.extra or {})
    return out


def split_text(value: str, pieces: int | None) -> list[str]:
    """A text in several deltas, never more than a bounded number."""
    if not value:
        return []
    wanted = pieces or max(2, min(MAX_PIECES, len(value) // PIECE_CHARS))
    size = max(1, -(-len(value) // wanted))
    return [value[i : i + size] for i in range(0, len(value), size)]


def events_of(final: Final) -> Iterator[Event]:
    """The whole event sequence of an answer."""
    yield _start(final)
    last = len(final.content) - 1
    for index, block in enumerate(final.content):
        raw = final.input_json if index == last and block["type"] == "tool_use" else None
        yield from _block_events(index, block, final.pieces, raw)
    yield _message_delta(final)
    yield Event("message_stop", {"type": "message_stop"})


def _start(final: Final) -> Event:
    message = message_object(final)
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    message["usage"] = {**final.usage, "output_tokens": min(1, final.usage["output_tokens"])}
    message["usage"].pop("output_tokens_details", None)
    return Event("message_start", {"type": "message_start", "message": message})


def _message_delta(final: Final) -> Event:
    usage = {
        key: final.usage.get(key)
        for key in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
            "output_tokens_details",
        )
    }
    delta = {
        "stop_reason": final.stop_reason,
        "stop_sequence": final.stop_sequence,
        "stop_details": final.stop_details,
    }
    return Event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})


def _block_events(index: int, block: Json, pieces: int | None, raw: str | None) -> Iterator[Event]:
    start = {"type": "content_block_start", "index": index, "content_block": _opened(block)}
    yield Event("content_block_start", start)
    if index == 0:
        yield Event("ping", {"type": "ping"})
    for delta in _deltas(block, pieces, raw):
        data = {"type": "content_block_delta", "index": index, "delta": delta}
        yield Event("content_block_delta", data, is_delta=True)
    yield Event("content_block_stop", {"type": "content_block_stop", "index": index})


def _opened(block: Json) -> Json:
    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}
    if kind == "thinking":
        return {**block, "thinking": "", "signature": ""}
    if kind == "tool_use":
        return {**block, "input": {}}
    return block


def _deltas(block: Json, pieces: int | None, raw: str | None) -> Iterator[Json]:
    kind = block["type"]
    if kind == "text":
        for part in split_text(block["text"], pieces):
            yield {"type": "text_delta", "text": part}
    elif kind == "thinking":
        for part in split_text(block["thinking"], pieces):
            yield {"type": "thinking_delta", "thinking": part}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif kind == "tool_use":
        # The real stream opens with an empty fragment, also for a call without arguments.
        yield {"type": "input_json_delta", "partial_json": ""}
        for part in split_text(raw if raw is not None else compact(block["input"]), pieces):
            yield {"type": "input_json_delta", "partial_json": part}
