"""Owns the numbered facts that people tell, and the model that answers each of them.

A fact is told once, in whatever form, and answered by a text that ends with `F017 is done.`, so
that what became of it can be read off the chats, the store and the model's requests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.messages import SUMMARY_HEADER
from storage.repair import INTERRUPTED_RESULT
from tests.fakes.anthropic_server import Answer, MessageRequest, tool_use
from tests.fakes.anthropic_server import text as text_block
from tests.fakes.anthropic_server.request import result_text
from tests.fakes.anthropic_server.units import blocks_of
from tests.fakes.files import png

TAG: Final = re.compile(r"\bfact (F\d{3}):")
Wish = Literal["nothing", "recall", "open", "shell"]
"""The tool that the model uses before it answers."""
_WORDS: Final = [
    "harbour", "lantern", "gravel", "orchard", "compass", "thimble", "meadow", "railway",
    "copper", "saffron", "window", "ledger", "anchor", "violin", "pepper", "glacier", "ribbon",
    "tunnel", "walnut", "beacon", "marble", "cellar", "feather", "engine", "river",
]  # fmt: skip
_HAN: Final = "山水风云日月星辰江河湖海草木花鸟鱼虫春夏秋冬东西南北茶酒书画琴棋金石土火雨雪霜露"
_ATTACHED: Final = re.compile(r": attachment (\S+?)\]")
MOST_SECONDS_OF_THOUGHT: Final = 0.4


@dataclass(slots=True)
class Fact:
    """One thing that somebody tells."""

    tag: str
    place: str
    happening: str
    versions: list[str]
    """The words; more than one: they were edited, and any of these may count."""
    wish: Wish = "nothing"
    pictures: tuple[bytes, ...] = ()
    inside: str = ""
    """What stands in its document."""
    pressed: str = ""
    """What somebody said to the question before its deed."""

    @property
    def last_line(self) -> str:
        return f"{self.tag} is done."


class Telling:
    """All facts of one run, and the model's side of them."""

    def __init__(self, seed: int, is_answered: Callable[[Fact], bool]) -> None:
        """``is_answered``: does an answer of the model stand in the store?"""
        self.facts: dict[str, Fact] = {}
        self._seed = seed
        self._is_answered = is_answered
        self._called: set[str] = set()

    def new(self, place: str, happening: str, words: int = 40, han: int = 0) -> Fact:
        """The next fact, not told yet."""
        tag = f"F{len(self.facts) + 1:03d}"
        dice = random.Random(f"{self._seed} {tag}")
        text = " ".join([f"fact {tag}:", *dice.choices(_WORDS, k=words)])
        text += "".join(dice.choices(_HAN, k=han))
        fact = self.facts[tag] = Fact(tag, place, happening, [text])
        return fact

    def edited(self, fact: Fact) -> str:
        """Other words for it."""
        fact.versions.append(f"{fact.versions[-1]} in other words {len(fact.versions)}")
        return fact.versions[-1]

    def pictures(self, fact: Fact, count: int) -> tuple[bytes, ...]:
        """That many, of which there are no others."""
        number = int(fact.tag[1:])
        fact.pictures = tuple(png(3 + number, 3 + n, 40 + n) for n in range(count))
        return fact.pictures

    # --- the model

    def respond(self, request: MessageRequest) -> Answer:
        """Use the tools that are wished for, then answer everything that is open."""
        open_facts = self._open(request)
        if not open_facts:
            return Answer(f"no fact in: {request.last_user_text[:60]}")
        self._called.update(_calls_in(request))
        # What only reads is tried again, as a model would; a deed is not.
        cut_off = {tag for tag in _cut_off_in(request) if self.facts[tag].wish != "shell"}
        self._called -= cut_off
        wanted = [f for f in open_facts if f.wish != "nothing" and f.tag not in self._called]
        calls = [call for fact in wanted if (call := _call(fact, request)) is not None]
        dice = random.Random(f"{self._seed} {open_facts[-1].tag} thinks")
        delay = dice.uniform(0, MOST_SECONDS_OF_THOUGHT)
        if calls:
            return Answer([text_block("looking"), *calls], first_delay=delay)
        text = "\n\n".join(answer_to(fact) for fact in open_facts)
        return Answer(text, first_delay=delay, chunk_delay=0.02, pieces=dice.randint(1, 30))

    def _open(self, request: MessageRequest) -> list[Fact]:
        """What waits for an answer, in order; also what was condensed before it had one.

        Words that came into a turn may be condensed in the middle of it: a summary quotes them.
        """
        told, condensed = behind_the_last_answer(request)
        facts = [self.facts[tag] for tag in dict.fromkeys(told) if tag in self.facts]
        if not facts:
            return []
        earlier = [self.facts[tag] for tag in sorted({*condensed} - {*told}) if tag in self.facts]
        place = facts[-1].place
        return [*(f for f in earlier if f.place == place and not self._is_answered(f)), *facts]


def answer_to(fact: Fact) -> str:
    """Whole."""
    dice = random.Random(fact.tag)
    return f"re {fact.tag}: {' '.join(dice.choices(_WORDS, k=40))}\n\n{fact.last_line}"


def behind_the_last_answer(request: MessageRequest) -> tuple[list[str], list[str]]:
    """Facts that people told behind the last final answer, and those in a summary before them."""
    told: list[str] = []
    for message in reversed(request.messages):
        blocks = blocks_of(message["content"])
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        condensed = [text for text in texts if SUMMARY_HEADER in text]
        if condensed:
            return told, [tag for text in condensed for tag in TAG.findall(text)]
        if message["role"] == "user":
            told[:0] = [tag for text in texts for tag in TAG.findall(text)]
        elif not any(block["type"] == "tool_use" for block in blocks):
            break
    return told, []


def people_say(messages: Iterable[Any]) -> Iterator[str]:
    """Every text block of a person in a request, summaries left out."""
    for message in messages:
        if message["role"] == "user":
            for block in blocks_of(message["content"]):
                if block["type"] == "text" and SUMMARY_HEADER not in block["text"]:
                    yield block["text"]


def tools_say(messages: Iterable[Any]) -> Iterator[str]:
    """Every result of a tool in a request."""
    for message in messages:
        for block in blocks_of(message["content"]):
            if block["type"] == "tool_result":
                yield result_text(block)


def _calls_in(request: MessageRequest) -> Iterator[str]:
    for message in request.messages:
        for block in blocks_of(message["content"]):
            if block["type"] == "tool_use":
                yield block["id"].rpartition("_")[2]


def _cut_off_in(request: MessageRequest) -> set[str]:
    """Facts whose newest call has no result, for a kill in the middle of it."""
    newest: dict[str, bool] = {}
    for message in request.messages:
        for block in blocks_of(message["content"]):
            if block["type"] == "tool_result":
                tag = block["tool_use_id"].rpartition("_")[2]
                newest[tag] = result_text(block).startswith(INTERRUPTED_RESULT[:20])
    return {tag for tag, is_cut_off in newest.items() if is_cut_off}


def _call(fact: Fact, request: MessageRequest) -> dict[str, Any] | None:
    """Its id names the fact: whoever sees it in a request knows that it was made."""
    # Made again if nobody has seen it: an answer that was cut off was never stored.
    made = f"toolu_{request.number}_{fact.tag}"
    match fact.wish:
        case "recall":
            return tool_use("recall", {"queries": [_WORDS[0], _WORDS[1]], "limit": 3}, made)
        case "shell":
            return tool_use("shell", {"command": f"echo {fact.tag} >> {fact.tag}.ran"}, made)
        case "open":
            for text in people_say(request.messages):
                if f"fact {fact.tag}:" in text or f"{fact.tag}.txt" in text:
                    names = _ATTACHED.findall(text)
                    if names:
                        return tool_use("open_attachment", {"name": names[-1]}, made)
            return None
        case "nothing":
            return None
