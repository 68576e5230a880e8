"""Owns the bundled traces of `posthouse simulate`: which kind of conversation each stands for.

Nobody's conversation was used: every size and gap is drawn from the figures below, always the same
ones. `python scripts/make_traces.py` writes them anew; a test compares.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from agent.simulation.trace import Event, EventKind, Trace, write_trace

FOLDER = Path(__file__).resolve().parent.parent / "agent" / "simulation" / "traces"
HOUR, DAY = 3600.0, 86_400.0


class Author:
    """Writes a trace event by event; time only goes forward."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.events: list[Event] = []
        self.now = 0.0

    def size(self, usual: float, *, spread: float = 0.7, most: int = 12_000) -> int:
        """A number of tokens: mostly about the usual one, now and then far more."""
        return max(1, min(most, round(self.chance.lognormvariate(0.0, spread) * usual)))

    def add(self, kind: EventKind, tokens: int, gap_seconds: float) -> None:
        """The next event, so long after the last one."""
        self.events.append(Event(round(gap_seconds, 1), kind, tokens))
        self.now += round(gap_seconds, 1)

    def until(self, moment: float) -> float:
        """How long it is until then."""
        return max(1.0, moment - self.now)

    def answer(self, tokens: int, kind: EventKind = "text") -> None:
        """The model writes about 80 tokens in a second."""
        self.add(kind, tokens, 1.5 + tokens / 80)

    def tool(self, call_tokens: int, result_tokens: int, seconds: float) -> None:
        """One call with its result."""
        self.answer(call_tokens, "call")
        self.add("result", result_tokens, seconds)


def daily(author: Author) -> None:
    """Eight weeks of a personal chat: a few talks a day, hours apart, at night nothing.

    Short questions, answers of a paragraph or two; every sixth one looks something up; now and then
    somebody pastes a letter.
    """
    chance = author.chance
    for day in range(56):
        talks = sorted(chance.uniform(7.5, 23.0) for _ in range(chance.choice((2, 3, 3, 4, 5))))
        for hour in talks:
            gap = author.until(day * DAY + hour * HOUR)
            for turn in range(chance.choice((3, 4, 6, 8, 11))):
                pasted = chance.random() < 0.04
                said = author.size(1500, spread=0.4) if pasted else author.size(45)
                author.add("user", said, gap if turn == 0 else 15 + chance.expovariate(1 / 70))
                if chance.random() < 0.17:
                    author.tool(author.size(35), author.size(2600, spread=0.6), 1.2)
                author.answer(author.size(330))


def coding(author: Author) -> None:
    """A working day with a coding agent: eight hours, tasks of up to fifty rounds of tools.

    Files are read, commands run, tests fail and pass; the results are most of what there is.
    Between two tasks somebody reads what was done, and has lunch.
    """
    chance = author.chance
    for task in range(48):
        pause = 2400.0 if task in (16, 32) else 40 + chance.expovariate(1 / 240)
        author.add("user", author.size(160), pause)
        for _ in range(chance.choice((2, 5, 9, 14, 22, 34, 50))):
            if chance.random() < 0.35:
                author.add("text", author.size(60), 2.0)
            calls = chance.choice((1, 1, 1, 1, 2, 3))
            for _ in range(calls):
                author.answer(author.size(110, spread=0.9, most=4000), "call")
            for _ in range(calls):
                author.add("result", author.size(900, spread=1.1), 0.3 + chance.expovariate(1 / 3))
        author.answer(author.size(420))


def group(author: Author) -> None:
    """Six weeks of a group that writes Chinese and Japanese: bursts of short messages, then hours.

    A character is a token here, so short messages are not small. The assistant is asked by several
    people within a minute, and answers each; long pauses let every cache entry run out.
    """
    chance = author.chance
    for day in range(42):
        bursts = sorted(chance.uniform(9.0, 24.0) for _ in range(chance.choice((1, 2, 3))))
        for hour in bursts:
            gap = author.until(day * DAY + hour * HOUR)
            for turn in range(chance.choice((6, 10, 16, 24))):
                author.add(
                    "user", author.size(70), gap if turn == 0 else 3 + chance.expovariate(1 / 18)
                )
                if chance.random() < 0.08:
                    author.tool(author.size(50), author.size(1800, spread=0.5), 1.5)
                author.answer(author.size(300))


TRACES: dict[str, tuple[Callable[[Author], None], int, dict[str, int | str]]] = {
    "daily": (daily, 7, {"model": "claude-sonnet-5-5", "prefix_tokens": 5200}),
    "coding": (coding, 11, {"model": "claude-sonnet-5-5", "prefix_tokens": 9800}),
    "group": (group, 23, {"model": "claude-haiku-4-5", "prefix_tokens": 4300}),
}


def make(name: str) -> Trace:
    """One of the traces."""
    write, seed, facts = TRACES[name]
    author = Author(seed)
    write(author)
    about = (write.__doc__ or "").splitlines()[0]
    return Trace(
        model=str(facts["model"]),
        events=tuple(author.events),
        prefix_tokens=int(facts["prefix_tokens"]),
        about=about,
    )


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name in TRACES:
        (FOLDER / f"{name}.jsonl").write_text("".join(write_trace(make(name))), "utf-8")


if __name__ == "__main__":
    main()
