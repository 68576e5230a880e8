"""Owns a lossless engine for tests: its model is scripted, its file in a folder of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plugins.context_engine.lossless.engine import LosslessEngine
from plugins.context_engine.lossless.nodes import Node, is_node, mark_in
from plugins.context_engine.lossless.options import Options
from plugins.context_engine.lossless.reading import public
from plugins.context_engine.lossless.vault import Vault

Message = dict[str, Any]
Answer = str | Exception | Callable[[str], str]


class ScriptedAsk:
    """A `plugins.context_engine.lossless.summarising.Ask`; the last answer is given for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers: list[Answer] = list(answers) or [lambda prompt: f"Summary of {len(prompt)}."]
        self.prompts: list[str] = []
        self.systems: list[str] = []

    def __call__(self, *, system: str, prompt: str, max_tokens: int) -> str:
        self.prompts.append(prompt)
        self.systems.append(system)
        answer = self.answers[min(len(self.prompts), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else answer(prompt)


class Ticking:
    """A time that is a minute later whenever it is read."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        self.at += 60
        return self.at


def lossless(
    home: Path, ask: ScriptedAsk | None = None, *, window: int = 8000, **options: Any
) -> LosslessEngine:
    """An engine that knows its window, in no session yet."""
    engine = LosslessEngine(Options(**options), home=home, ask=ask or ScriptedAsk(), now=Ticking())
    engine.update_model("m", window)
    return engine


def node_of(engine: LosslessEngine, message: Mapping[str, Any]) -> Node | None:
    """The node of the engine's conversation that a message is."""
    vault, conversation = inside(engine)
    mark = mark_in(message)
    node = vault.node(conversation, mark) if mark else None
    return node if node is not None and is_node(message, node) else None


def originals(engine: LosslessEngine, messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """What a list stands for: each node in it replaced by all that is below it, to the bottom."""
    found: list[Message] = []
    for message in messages:
        node = node_of(engine, message)
        found += [public(message)] if node is None else below(engine, node)
    return found


def below(engine: LosslessEngine, node: Node) -> list[Message]:
    """The originals under a node, in order."""
    vault, conversation = inside(engine)
    found: list[Message] = []
    for source in node.sources:
        if source.kind == "node":
            child = vault.node(conversation, source.ref)
            assert child is not None
            found += below(engine, child)
        else:
            original = vault.original(conversation, digest=source.ref)
            assert original is not None
            found.append(json.loads(original.stored))
    return found


def inside(engine: LosslessEngine) -> tuple[Vault, int]:
    """The engine's file and its conversation in it."""
    vault, belonging = engine._open()
    return vault, belonging.conversation(0.0)


def call(
    engine: LosslessEngine, name: str, messages: Sequence[Message] = (), **args: Any
) -> dict[str, Any]:
    """A tool call, its answer read."""
    answer = json.loads(engine.handle_tool_call(name, args, messages=list(messages)))
    assert isinstance(answer, dict)
    return answer


def talk(turns: int, *, first: int = 0, chars: int = 400) -> list[Message]:
    """So many turns; each says which one it is."""
    messages: list[Message] = []
    for k in range(first, first + turns):
        messages.append({"role": "user", "content": f"question {k} {'lorem ' * (chars // 6)}"})
        messages.append({"role": "assistant", "content": f"answer {k} {'ipsum ' * (chars // 6)}"})
    return messages
