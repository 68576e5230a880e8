"""Owns the bench of rendering: 200 kB of Markdown, the longest answer that is sent as messages, and
what either holds up the loop.

The limit twin of a text that goes as messages is the parser alone, over the same text, once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pyromark

from agent.mail import Address, OutboxDraft, PartDraft
from gateway.delivery.rendering import rendered
from gateway.delivery.splitting import split_markdown
from gateway.platforms.discord.render import render as for_discord
from gateway.platforms.telegram.render import render as for_telegram
from tests.bench.measure import Result

HUGE_BYTES = 200_000
HUGE_MS = 50.0
LOOP_MS = 20.0
ROUNDS = 7
TELEGRAM_MESSAGES_BYTES = 33_000
DISCORD_MESSAGES_BYTES = 19_000
"""The longest that are still sent as messages, about."""
BLOCKS = (
    "The session keeps its **context window** in order: every `turn` is stored before the next "
    "one, see [the guide](https://example.org/guide?a=1&b=2). It costs $5, about ~10 %.\n\n",
    "```python\ndef f(x):\n    return x * 2  # note\n\nfor i in (1, 2):\n    print(f(i))\n```\n\n",
    "| name | size | note |\n|---|---:|---|\n| one | 1 | first |\n| two | 22 | **second** |\n\n",
    "- one item\n  - nested *item*\n    1. deeper\n- [x] done\n- [ ] open\n\n",
    "> quoted words that go on\n> and on\n\n",
    "## A heading\n\n",
    "这是一个**重要**的测试，会话压缩网关消息数据库索引查询。\n\n",
)


def answer(size: int) -> str:
    """Markdown of so many bytes, as models write it."""
    source = random.Random(5)
    blocks: list[str] = []
    written = 0
    while written < size:
        blocks.append(source.choice((*BLOCKS[:1] * 3, *BLOCKS[1:])))
        written += len(blocks[-1].encode())
    return "".join(blocks)


class _Platform:
    def __init__(self, render: Callable[[str], list[PartDraft]]) -> None:
        self._render = render

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        return self._render(draft.text)


def _ms(call: Callable[[], object]) -> float:
    """Of the processor: it waits for nothing, and what else the machine does is no part of it."""
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1000


async def _lag_ms(render: Callable[[str], list[PartDraft]], text: str) -> float:
    """The longest that the loop stood still while the text was planned."""
    draft = OutboxDraft(Address("bench", "1", "1"), text)
    task = asyncio.ensure_future(rendered(_Platform(render), draft))  # type: ignore[arg-type]
    worst = 0.0
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - start - 0.001)
    await task
    return worst * 1000


def _parsed(text: str) -> None:
    for _ in pyromark.events_with_range(text, options=pyromark.Options.ENABLE_TABLES):
        pass


def run() -> list[Result]:
    huge = answer(HUGE_BYTES)
    sides = {
        "telegram": (for_telegram, answer(TELEGRAM_MESSAGES_BYTES)),
        "discord": (for_discord, answer(DISCORD_MESSAGES_BYTES)),
    }
    results: list[Result] = []
    for name, (render, longest) in sides.items():
        assert "document" in render(huge)[-1].payload
        assert "document" not in render(longest)[-1].payload
        whole = [_ms(lambda r=render: r(huge)) for _ in range(ROUNDS)]  # type: ignore[misc]
        results.append(_budget(f"9a 200 kB, {name}", whole, HUGE_MS))
        ours, limit = [], []
        for _ in range(ROUNDS):
            ours.append(_ms(lambda r=render, t=longest: r(t)))  # type: ignore[misc]
            limit.append(_ms(lambda t=longest: _parsed(t)))  # type: ignore[misc]
        note = f"{len(longest) // 1000} kB, as {len(render(longest))} messages"
        results.append(Result(f"9b longest, {name}", "ms", ours, limit, at_most=20.0, note=note))
        for size, text in (("200 kB", huge), ("longest", longest)):
            lags = [asyncio.run(_lag_ms(render, text)) for _ in range(ROUNDS)]
            results.append(_budget(f"9c loop, {size}, {name}", lags, LOOP_MS))
    cut = [_ms(lambda: split_markdown(huge, 2000)) for _ in range(ROUNDS)]
    results.append(_budget("9d cutting 200 kB", cut, HUGE_MS))
    return results


def _budget(name: str, found: list[float], most: float) -> Result:
    return Result(name, "ms", found, [most] * len(found), at_most=1.0)
