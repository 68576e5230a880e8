"""Owns docs/simulation.md and its picture: what `posthouse simulate` says of the bundled traces.

`python scripts/simulation_page.py` writes them anew; a test compares them with the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agent.prices import price_table
from agent.simulation.comparing import compare, question_of
from agent.simulation.outcome import Outcome
from agent.simulation.plot import as_svg
from agent.simulation.replay import Prices, replay
from agent.simulation.report import clock
from agent.simulation.script import make_script
from agent.simulation.settings import Choice, reference, setting_of
from agent.simulation.trace import BUNDLED, Trace, bundled
from gateway.cli.simulate import as_text

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURE = "coding"
WINDOWS = (64_000, 128_000, 200_000, 400_000, 1_000_000)

_OPENING = """# What compaction costs, and who waits

This page is written by `python scripts/simulation_page.py`, and a test compares it with the
program. The same for a conversation of your own:

```
posthouse simulate --from SESSION_ID --output mine.jsonl   # sizes and times, no text
posthouse simulate mine.jsonl --set compression.threshold=0.3 --plot mine.svg
```

Each row replays the whole conversation under one setting, with the product's own rules for
triggers, cuts, preparation and micro-compaction. `reference` is Hermes Agent as it comes: a
threshold of half the window (three quarters of a window below 512,000), a larger tail, summaries
that everybody waits for.

| column | |
|---|---|
| STARTS AT | prompt size at which a compression is due |
| COST | of all requests and summaries, by the shipped price table |
| WAITS | how often somebody waited for a compression, and for how long in all |
| CACHED | share of the conversation's prompts that the provider's cache had |
| PEAK, MEAN | how full the window was |
| COMPRESSIONS | lists that became shorter, with a summary or by pruning alone |
| MICRO | passes of micro-compaction |
| TOKENS IN, OUT | all that models have read and written, summaries included |
"""

_ASSUMED = """
## What is assumed

A trace knows sizes and times, so what the words would decide is taken to be usual
(`agent/simulation/settings.py`): a call takes 2 s until its first token, reads 10,000 tokens a
second and writes 80; a summary is half as long as it may be; two in a hundred summarised tokens are
exact identifiers. A cached prefix lives as long as its TTL says after its last use, no provider
drops one early, and a mark finds what lies within 20 blocks before it. Where the reference does
something that can not be replayed, it is given the better of both (`reference` there).

The replay is held against the real compactor
(`tests/integration/test_simulation_against_the_compactor.py`): the same sizes lead to the same
compressions at the same places, up to the tolerances that stand there.

## What it shows

- The lower the threshold, the less each request has to read, and the less it costs. What a table
  can not show is the price of that: every compression forgets something, and the summary of a
  summary forgets more. The defaults keep more than the cheapest row does.
- Micro-compaction changes the list in front of what is cached, so with a cache each pass costs more
  than it saves. What it does save is batch compressions. Without a cache both cost about the same.
- An hour of TTL means dearer entries. It pays where people answer after more than five minutes and
  less than an hour; with pauses of seconds, or of half a day, five minutes are enough.
- Without preparation somebody waits for every summary, and it is not cheaper: a prepared one is
  taken when the cache has run out anyway. What is left are long turns that fill the window before
  they are over. Such a wait is longer than one of the reference: a summary is made from the
  originals here, and may be longer.
"""

_WINDOWS_INTRO = """
## Other windows

The same three conversations with other windows, at the prices of their models: the defaults against
the reference.

| trace | window | cost | reference | waits | reference |
|---|---|---|---|---|---|
"""

_WINDOWS_END = """
The defaults are not better everywhere: where a figure is printed in **bold**, the reference does
better. A day of tool calls is too much for half of so small a window; there
`compression.threshold: 0.75` halves the waits (`compression.small_window_floor: 0.75` sets it for
all windows below 512,000).
"""


def page() -> str:
    """The whole page."""
    return "".join(_parts())


def picture() -> str:
    """The picture on it."""
    question = question_of(bundled(PICTURE))
    window = f"{question.window_tokens:,}"
    title = f"{PICTURE}: {question.trace.model}, window {window} tokens"
    return as_svg(compare(question, price_table()), title)


def _parts() -> Iterator[str]:
    yield _OPENING
    for name in BUNDLED:
        question = question_of(bundled(name))
        lines = as_text(question, compare(question, price_table()), price_table(), name)
        yield f"\n## {name}\n\n```\n$ posthouse simulate {name}\n" + "\n".join(lines) + "\n```\n"
        if name == PICTURE:
            yield f"\n`posthouse simulate {name} --plot simulation.svg`:\n\n"
            yield "![how full the window was](simulation.svg)\n"
    yield _ASSUMED
    yield _WINDOWS_INTRO
    for name in BUNDLED:
        for window in WINDOWS:
            yield _window_row(name, bundled(name), window)
    yield _WINDOWS_END


def against_reference(trace: Trace, window_tokens: int) -> tuple[Outcome, Outcome]:
    """The defaults and the reference."""
    price = price_table().find(trace.model)
    prices = Prices(price, price) if price is not None else None
    script = make_script(trace)
    settings = (
        setting_of("defaults", Choice(), trace, window_tokens),
        reference(trace, window_tokens),
    )
    ours, theirs = (
        replay(script, setting, prefix_tokens=trace.prefix_tokens, prices=prices)
        for setting in settings
    )
    return ours, theirs


def _window_row(name: str, trace: Trace, window_tokens: int) -> str:
    ours, theirs = against_reference(replace(trace, window_tokens=None), window_tokens)
    assert ours.usd is not None
    assert theirs.usd is not None
    cost = _cell(f"${ours.usd:,.2f}", worse=ours.usd > theirs.usd)
    waits = _cell(_waited(ours), worse=ours.waited_seconds > theirs.waited_seconds)
    window = f"{window_tokens // 1000}k" if window_tokens < 1_000_000 else "1M"
    return f"| {name} | {window} | {cost} | ${theirs.usd:,.2f} | {waits} | {_waited(theirs)} |\n"


def _waited(outcome: Outcome) -> str:
    count = outcome.felt_pauses
    return f"{count} ({clock(outcome.waited_seconds)})" if count else "none"


def _cell(text: str, *, worse: bool) -> str:
    return f"**{text}**" if worse else text


def main() -> None:
    """Write both."""
    (DOCS / "simulation.md").write_text(page(), "utf-8")
    (DOCS / "simulation.svg").write_text(picture(), "utf-8")


if __name__ == "__main__":
    main()
