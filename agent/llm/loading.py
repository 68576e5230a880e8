"""Owns getting the Anthropic SDK ready before anybody asks; with `anthropic`, its home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

_MESSAGE: dict[str, Any] = {
    "id": "msg_0",
    "type": "message",
    "role": "assistant",
    "model": "none",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": _MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
)


def preload() -> None:
    """Import the SDK (over a second): in a thread, once the daemon is ready."""
    import anthropic.lib.streaming  # noqa: PLC0415 - heavy: costs a second and 60 MB
    import anthropic.resources.messages  # noqa: F401, PLC0415 - else loaded by the first call


def rehearse() -> None:
    """Read one canned answer: with its first one the SDK builds how answers are read.

    In a thread: it takes 50 ms, for which the first turn would hold the loop. No network.
    """
    import anthropic  # noqa: PLC0415 - as above
    import httpx2  # noqa: PLC0415 - comes with it

    nowhere = httpx2.Client(transport=httpx2.MockTransport(_canned))
    with (
        anthropic.Anthropic(api_key="none", base_url="http://none", http_client=nowhere) as client,
        client.messages.stream(
            model="none", max_tokens=1, messages=[{"role": "user", "content": "x"}]
        ) as stream,
    ):
        stream.until_done()


def _canned(request: httpx2.Request) -> httpx2.Response:
    import httpx2  # noqa: PLC0415 - as above

    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
    kind = {"content-type": "text/event-stream"}
    return httpx2.Response(200, headers=kind, text="".join(lines))
