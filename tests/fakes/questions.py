"""Owns conversations with planted facts and the questions a person would type to find them again.

Seeded; English, Chinese, Japanese. Around the facts is talk that uses the same things and the same
attributes in other combinations, questions without answer, tool output full of numbers and paths.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from agent.messages import Message
from tests.fakes.question_words import LANGUAGES, Language, Wording

Kind = Literal["own", "endings", "short", "next", "changed", "reworded", "result"]
"""The fact's own words; other endings or word order; a CJK word of one or two characters; the topic
in one message and the value in the next; a value that was changed later; other words; a line of a
tool's long output."""

KINDS: tuple[Kind, ...] = ("own", "endings", "short", "next", "changed", "reworded", "result")


@dataclass(frozen=True, slots=True)
class Question:
    """What is typed, and the index of the one message that answers it."""

    text: str
    kind: Kind
    right: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation and what is asked about it."""

    messages: list[Message]
    questions: list[Question]


def conversation(language: str, *, messages: int, facts: int, seed: int = 1) -> Asked:
    """About so many messages in this language ("en", "zh", "ja"), with so many facts planted."""
    return _Writer(LANGUAGES[language], random.Random(f"{language} {seed}")).write(messages, facts)


_Plan = tuple[float, list[Message], Callable[[int], Question | None]]


class _Writer:
    """Writes one conversation."""

    def __init__(self, words: Language, rng: random.Random) -> None:
        self._words = words
        self._rng = rng
        self._used: set[str] = set()
        self._calls = 0

    def write(self, count: int, facts: int) -> Asked:
        kinds = [k for k in KINDS if k != "short" or self._words.rare]
        planned: list[_Plan] = []
        for n in range(facts):
            planned.extend(self._plant(kinds[n % len(kinds)], n // len(kinds)))
        planned.sort(key=lambda plan: plan[0])
        made: list[Message] = []
        questions: list[Question] = []
        for n, (_, texts, ask) in enumerate(planned):
            while len(made) < count * (n + 1) // (len(planned) + 1) - len(texts):
                made.extend(self._talk())
            made.extend(texts)
            if (question := ask(len(made) - 1)) is not None:
                questions.append(question)
        while len(made) < count:
            made.extend(self._talk())
        return Asked(made, questions)

    def _plant(self, kind: Kind, n: int) -> list[_Plan]:
        """Where each statement goes (0 to 1), its messages, and the question that it answers."""
        rng, place = self._rng, self._rng.random()
        if kind == "short":
            word = self._words.rare[n % len(self._words.rare)]
            text = self._around(self._words.mention.format(w=word, e=self._thing()))
            return [(place, [self._somebody(text)], lambda at: Question(word, "short", at))]
        wording = rng.choice(self._words.wordings)
        thing = self._thing(fresh=True)
        old, new = wording.value(rng), wording.value(rng)
        says = wording.says.format(e=thing, v=new)
        typed = rng.choice(
            {"endings": wording.endings, "reworded": wording.reworded}.get(kind, wording.own)
        ).format(e=thing)

        def ask(at: int) -> Question:
            return Question(typed, kind, at)

        if kind == "next":
            topic = self._around(wording.topic.format(e=thing))
            answer = self._somebody(self._words.answer.format(v=new))
            return [(place, [self._somebody(topic), answer], ask)]
        if kind == "result":
            return [(place, self._tool_step(says), ask)]
        if kind == "changed":
            before = self._somebody(self._around(wording.says.format(e=thing, v=old)))
            after = self._somebody(self._around(says))
            return [(place / 2, [before], lambda at: None), (0.5 + place / 2, [after], ask)]
        return [(place, [self._somebody(self._around(says))], ask)]

    def _somebody(self, text: str) -> Message:
        return _said(self._rng.choice(("user", "user", "assistant")), text)

    # --- the talk around

    def _thing(self, *, fresh: bool = False) -> str:
        """A thing that has a name of two words; a fresh one has had no fact yet."""
        words = self._words
        while True:
            name = self._rng.choice(words.firsts) + words.joint + self._rng.choice(words.seconds)
            if not fresh or name not in self._used:
                break
        if fresh:
            self._used.add(name)
        return name

    def _sentence(self) -> str:
        rng, words = self._rng, self._words
        return rng.choice(words.filler).format(
            e=self._thing(),
            n=rng.choice(words.nouns),
            m=rng.choice(words.nouns),
            v=rng.choice(words.verbs),
            a=rng.choice(words.adjectives),
            p=rng.choice(words.parts),
            x=rng.randrange(2, 900),
        )

    def _around(self, text: str) -> str:
        """The statement among some sentences that do not matter."""
        before = [self._sentence() for _ in range(self._rng.randrange(3))]
        after = [self._sentence() for _ in range(self._rng.randrange(3))]
        return self._words.space.join([*before, text, *after])

    def _talk(self) -> list[Message]:
        rng = self._rng
        asked = self._words.space.join(self._sentence() for _ in range(rng.randrange(1, 5)))
        if rng.random() < 0.15:
            open_question = rng.choice(rng.choice(self._words.wordings).own)
            asked = open_question.format(e=self._thing())
        told = self._words.space.join(self._sentence() for _ in range(rng.randrange(2, 12)))
        made = [_said("user", asked)]
        if rng.random() < 0.5:
            made.extend(self._tool_step())
        made.append(_said("assistant", told))
        return made

    def _tool_step(self, fact: str | None = None) -> list[Message]:
        rng = self._rng
        self._calls += 1
        call_id = f"call_{self._calls}"
        name = f"{rng.choice(_FILES)}_{rng.randrange(99)}.{rng.choice(('py', 'log', 'yaml'))}"
        path = f"/srv/{rng.choice(_FOLDERS)}/{name}"
        lines = []
        for _ in range(rng.randrange(8, 30)):
            stamp = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
            level = rng.choice(("INFO", "INFO", "WARN", "ERROR"))
            tail = self._sentence() if rng.random() < 0.4 else f"id={rng.randrange(10**6)} ok"
            lines.append(f"{stamp} {level} {rng.choice(_FILES)}: {tail}")
        if fact is not None:
            lines.insert(rng.randrange(len(lines)), f"{stamp} {level} {fact}")
        head: dict[str, Any] = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
                }
            ],
        }
        result = {"role": "tool", "tool_call_id": call_id, "name": "read_file"}
        return [
            cast(Message, head),
            cast(Message, {**result, "content": "\n".join(lines)}),
        ]


_FOLDERS = ("app", "web", "jobs", "data", "tools", "core", "edge", "media")
_FILES = ("intake", "worker", "router", "ledger", "parser", "mailer", "cron", "probe", "sync")


def _said(role: str, text: str) -> Message:
    return cast(Message, {"role": role, "content": text})


def shares(ranks: Sequence[int | None]) -> tuple[float, float, float]:
    """Of ranks from 0 (None: not found): how many are first, in the first three, in the ten."""
    count = max(1, len(ranks))
    return (
        sum(rank == 0 for rank in ranks) / count,
        sum(rank is not None and rank < 3 for rank in ranks) / count,
        sum(rank is not None and rank < 10 for rank in ranks) / count,
    )


__all__ = ["KINDS", "Asked", "Kind", "Question", "Wording", "conversation", "shares"]
