"""Owns the scripts: what people do, one function for each kind of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.acceptance.places import Place
from tests.torture.facts import Fact, Telling

HUMAN_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Stage:
    """Where something happens, and by what dice."""

    name: str
    place: Place
    telling: Telling
    dice: random.Random

    def fact(self, happening: str, words: int = 40, han: int = 0) -> Fact:
        return self.telling.new(self.name, happening, words, han)


async def plain(stage: Stage) -> None:
    stage.place.say(stage.fact("plain").versions[0])


async def heavy(stage: Stage) -> None:
    stage.place.say(stage.fact("heavy", han=900).versions[0])


async def tool(stage: Stage) -> None:
    fact = stage.fact("tool")
    fact.wish = "recall"
    stage.place.say(fact.versions[0])


async def burst(stage: Stage) -> None:
    """Words on top of one another: they queue up, go into what runs, or end it."""
    await tool(stage)
    for _ in range(stage.dice.randint(1, 3)):
        await asyncio.sleep(stage.dice.uniform(0, 2 * HUMAN_SECONDS))
        await plain(stage)


async def edit(stage: Stage) -> None:
    """Said behind something else, and changed while it waits, or a moment too late."""
    await tool(stage)
    fact = stage.fact("edit")
    message = stage.place.say(fact.versions[0])
    for _ in range(stage.dice.randint(1, 2)):
        await asyncio.sleep(stage.dice.uniform(0, 2 * HUMAN_SECONDS))
        stage.place.edit(message, stage.telling.edited(fact))


async def paste(stage: Stage) -> None:
    """More than one message takes."""
    if not stage.place.is_private:
        return await heavy(stage)
    length = 700 if stage.place.platform == "telegram" else 350
    stage.place.paste(stage.fact("paste", words=length).versions[0])


async def picture(stage: Stage) -> None:
    fact = stage.fact("picture", words=5)
    stage.place.show(stage.telling.pictures(fact, 1), fact.versions[0])


async def album(stage: Stage) -> None:
    fact = stage.fact("album", words=5)
    count = stage.dice.randint(2, 3)
    stage.place.show(stage.telling.pictures(fact, count), fact.versions[0])


async def document(stage: Stage) -> None:
    fact = stage.fact("document", words=5)
    fact.wish, fact.inside = "open", f"inside of {fact.tag} stands a word"
    stage.place.hand_over(f"{fact.tag}.txt", fact.inside.encode(), fact.versions[0])


async def approval(stage: Stage) -> None:
    """A deed that is asked about; `decide` answers, once the question is there."""
    fact = stage.fact("approval", words=5)
    fact.wish = "shell"
    stage.place.say(fact.versions[0])


def decide(stage: Stage) -> None:
    """Answer the questions that are open in this place, each once."""
    for fact in stage.telling.facts.values():
        if fact.place != stage.name or fact.wish != "shell" or fact.pressed:
            continue
        question = stage.place.question(fact.tag)
        if question is not None:
            yes = stage.dice.random() < 0.7
            fact.pressed = "yes" if yes else "no"
            stage.place.decide(question, yes)


HAPPENINGS: Final[Mapping[str, Callable[[Stage], Awaitable[None]]]] = {
    "plain": plain, "heavy": heavy, "tool": tool, "burst": burst, "edit": edit, "paste": paste,
    "picture": picture, "album": album, "document": document, "approval": approval,
}  # fmt: skip
