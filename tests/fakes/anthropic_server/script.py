"""Owns what a test scripts: answers, faults, matchers, and the queues they wait in."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fakes.anthropic_server.request import MessageRequest
from tests.fakes.anthropic_server.units import Json

AUTO: Final = "<auto>"
_tool_ids = itertools.count(1)


def text(value: str) -> Json:
    """A text block."""
    return {"type": "text", "text": value}


def thinking(value: str) -> Json:
    """A thinking block; the server signs it when it goes out."""
    return {"type": "thinking", "thinking": value, "signature": ""}


def redacted_thinking() -> Json:
    """A redacted thinking block; the server seals it when it goes out."""
    return {"type": "redacted_thinking", "data": ""}


def tool_use(name: str, arguments: Mapping[str, Any] | None = None, id: str = "") -> Json:  # noqa: A002
    """A tool call; ids are unique in the process unless given."""
    return {
        "type": "tool_use",
        "id": id or f"toolu_{next(_tool_ids):024d}",
        "name": name,
        "input": dict(arguments or {}),
    }


@dataclass(frozen=True)
class Answer:
    """One scripted answer; a plain string is one text block."""

    content: str | Sequence[Json] = ""
    stop_reason: str | None = AUTO
    stop_sequence: str | None = None
    stop_details: Json | None = None
    thinking: bool | str | None = None  # None: as the request asks; a string: with this thought
    usage: Mapping[str, Any] = field(default_factory=dict)  # overrides single usage fields
    first_delay: float = 0.0
    chunk_delay: float = 0.0
    pieces: int | None = None  # deltas per block; None: by length
    input_json: str | None = None  # raw partial JSON in place of the last tool call's input

    def blocks(self) -> list[Json]:
        """The content as blocks."""
        if isinstance(self.content, str):
            return [text(self.content)] if self.content else []
        return [dict(b) for b in self.content]


class Fault:
    """A named fault with parameters, for example `Fault("429", retry_after=3)`."""

    __slots__ = ("name", "params")

    def __init__(self, name: str, **params: Any) -> None:
        self.name = name
        self.params = params

    def __repr__(self) -> str:
        inner = "".join(f", {k}={v!r}" for k, v in self.params.items())
        return f"Fault({self.name!r}{inner})"


Responder = Callable[[MessageRequest], "Reply | Awaitable[Reply]"]
Reply = Answer | Fault | str
Item = Reply | Responder


@dataclass(frozen=True)
class Match:
    """Which requests a rule is for; unset fields match everything."""

    text: str | None = None  # in the text of the newest user message that has any
    anywhere: str | None = None  # in any text of the request
    model: str | None = None
    summary: bool | None = None
    stream: bool | None = None
    tools: bool | None = None
    compaction: bool | None = None  # asks for a compaction
    results: bool | None = None  # the last message hands tool results back
    where: Callable[[MessageRequest], bool] | None = None

    def accepts(self, request: MessageRequest) -> bool:
        """Whether all set fields fit."""
        facts = (
            (self.summary, request.is_summary),
            (self.stream, request.stream),
            (self.tools, bool(request.tool_names)),
            (self.compaction, "compaction" in request.body),
            (self.results, bool(request.tool_results)),
            (self.model, request.model),
        )
        if any(wanted is not None and wanted != found for wanted, found in facts):
            return False
        if self.text is not None and self.text not in request.last_user_text:
            return False
        if self.anywhere is not None and self.anywhere not in request.all_text:
            return False
        return self.where is None or self.where(request)


@dataclass
class Rule:
    """A matcher with what it does, a limited number of times."""

    match: Match
    do: Item
    times: int | None = 1


class Script:
    """Rules first, then the queue of the request's kind; None when nothing is scripted."""

    def __init__(self) -> None:
        self.main: deque[Item] = deque()
        self.summary: deque[Item] = deque()
        self.rules: list[Rule] = []

    def clear(self) -> None:
        """Forget everything that waits."""
        self.main.clear()
        self.summary.clear()
        self.rules.clear()

    def pending(self) -> int:
        """Queued items and limited rules that have not fired."""
        limited = sum(rule.times or 0 for rule in self.rules)
        return len(self.main) + len(self.summary) + limited

    def next_for(self, request: MessageRequest) -> Item | None:
        """Take what is scripted for this request."""
        for rule in self.rules:
            if rule.times != 0 and rule.match.accepts(request):
                return self._fire(rule)
        queue = self.summary if request.is_summary or request.compacts else self.main
        return queue.popleft() if queue else None

    def _fire(self, rule: Rule) -> Item:
        if rule.times is not None:
            rule.times -= 1
            if rule.times == 0:
                self.rules.remove(rule)
        return rule.do


_ANSWER_KEYS = frozenset(
    {
        "content",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "thinking",
        "usage",
        "first_delay",
        "chunk_delay",
        "pieces",
        "input_json",
    }
)


def item_from_json(value: object) -> Reply:
    """A reply from JSON: a string or `fault` names a fault, `text`, `tool`, `content` answer."""
    if isinstance(value, str):
        return Fault(value)
    if not isinstance(value, dict):
        raise ValueError(f"neither answer nor fault: {value!r}")
    if "fault" in value:
        return Fault(str(value["fault"]), **{k: v for k, v in value.items() if k != "fault"})
    fields = dict(value)
    if "text" in fields:
        fields["content"] = str(fields.pop("text"))
    if "tool" in fields:
        call = tool_use(str(fields.pop("tool")), fields.pop("input", {}))
        said = fields.pop("content", "")
        fields["content"] = [*([text(said)] if said else []), call]
    unknown = set(fields) - _ANSWER_KEYS
    if unknown:
        raise ValueError(f"unknown answer fields: {sorted(unknown)}")
    return Answer(**fields)


_MATCH_KEYS = ("text", "anywhere", "model", "summary", "stream", "tools", "compaction", "results")


def match_from_json(value: Mapping[str, Any]) -> Match:
    """A matcher from its JSON form."""
    unknown = set(value) - set(_MATCH_KEYS)
    if unknown:
        raise ValueError(f"unknown match fields: {sorted(unknown)}")
    return Match(**value)


def items_from_json(values: Iterable[object]) -> list[Reply]:
    """A list of scripted items."""
    return [item_from_json(value) for value in values]
