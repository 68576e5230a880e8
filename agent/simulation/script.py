"""Owns a trace made ready to be replayed: rows without text, shared by all settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agent.compaction.plan.prune import ARGUMENTS_MIN_CHARS, LEAF_MIN_CHARS, PRUNE_MIN_CHARS
from agent.messages import Message, MessageKind, Row
from agent.model_metadata import CHARS_PER_TOKEN, MESSAGE_TOKENS, TOOL_CALL_TOKENS
from agent.simulation.trace import Event, Trace

STAND_IN_TOKENS = 40 + MESSAGE_TOKENS + TOOL_CALL_TOKENS
"""The line that stands for a pruned result: tool, argument, how it ended, size, reference. It is
as long as the argument allows."""
_PRUNABLE_TOKENS = PRUNE_MIN_CHARS // CHARS_PER_TOKEN + MESSAGE_TOKENS + TOOL_CALL_TOKENS
_LONG_CALL_TOKENS = ARGUMENTS_MIN_CHARS // CHARS_PER_TOKEN + TOOL_CALL_TOKENS
_SHORT_CALL_TOKENS = LEAF_MIN_CHARS // CHARS_PER_TOKEN + TOOL_CALL_TOKENS

StepKind = Literal["said", "answer", "result"]


@dataclass(frozen=True, slots=True)
class Step:
    """A row that comes into the list."""

    kind: StepKind
    gap_seconds: float
    """Since the step before it; for an answer how long the model took."""
    row: Row
    ends_turn: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """The steps of a trace, in order."""

    steps: tuple[Step, ...]
    pruned_tokens: tuple[int, ...]
    """By row id, which counts from 1: how large the row is once it is pruned."""

    @property
    def next_row_id(self) -> int:
        """The first id that no row of the trace has."""
        return len(self.pruned_tokens)


def make_script(trace: Trace, *, stand_in_tokens: int = STAND_IN_TOKENS) -> Script:
    """The steps that a trace stands for.

    What the assistant says and calls in one go is one answer of the model, and one row.

    Args:
        trace: The conversation.
        stand_in_tokens: Of the line that stands for a pruned result.
    """
    steps: list[Step] = []
    pruned = [0]
    groups = list(_in_rows(trace.events))
    for at, events in enumerate(groups):
        number, tokens = at + 1, sum(event.tokens for event in events)
        kind = _STEP_OF[events[0].kind]
        calls = [event.tokens for event in events if event.kind == "call"]
        match kind:
            case "said":
                message, shorter = _SAID, tokens
            case "result":
                message = _RESULT
                shorter = stand_in_tokens if tokens > _PRUNABLE_TOKENS else tokens
            case "answer":
                message = answer_message(len(calls), said=len(calls) < len(events))
                gained = sum(c - _SHORT_CALL_TOKENS for c in calls if c > _LONG_CALL_TOKENS)
                shorter = tokens - gained
        following = groups[at + 1][0].kind if at + 1 < len(groups) else "user"
        steps.append(
            Step(
                kind,
                sum(event.gap_seconds for event in events),
                made_row(number, message, tokens),
                ends_turn=kind != "said" and following == "user",
            )
        )
        pruned.append(shorter)
    return Script(tuple(steps), tuple(pruned))


_STEP_OF: dict[str, StepKind] = {
    "user": "said",
    "text": "answer",
    "call": "answer",
    "result": "result",
}


def _in_rows(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of each row: an answer's go together."""
    group: list[Event] = []
    for event in events:
        if group and not (_STEP_OF[event.kind] == "answer" == _STEP_OF[group[0].kind]):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


# --- rows without text --------------------------------------------------------------------------


@dataclass(slots=True)
class _Answers:
    """One message for each number of calls, shared by all rows that are alike."""

    made: dict[tuple[int, bool], Message] = field(default_factory=dict)


_ANSWERS = _Answers()
_SAID = cast(Message, {"role": "user", "content": "-", "_row": 0})
_RESULT = cast(Message, {"role": "tool", "tool_call_id": "-", "content": "-", "_row": 0})


def answer_message(calls: int, *, said: bool) -> Message:
    """What the boundary rules see of an answer: does it say something, how much does it call."""
    key = (calls, said)
    found = _ANSWERS.made.get(key)
    if found is None:
        message: dict[str, Any] = {"role": "assistant", "content": "-" if said else None, "_row": 0}
        if calls:
            call = {"id": "-", "type": "function", "function": {"name": "-", "arguments": "{}"}}
            message["tool_calls"] = [call] * calls
        found = _ANSWERS.made[key] = cast(Message, message)
    return found


def own_message(kind: MessageKind, role: Literal["user", "assistant"]) -> Message:
    """A message that the host makes: a summary, a note, a digest."""
    return cast(Message, {"role": role, "content": "-", "_row": 0, "_kind": kind})


def made_row(row_id: int, message: Message, tokens: int, *, kind: MessageKind | None = None) -> Row:
    """A row of so many tokens."""
    return Row(row_id, "", row_id, message, 0.0, kind=kind, tokens=tokens)


def resized(row: Row, tokens: int) -> Row:
    """The same row, shorter."""
    return Row(row.id, "", row.id, row.message, 0.0, kind=row.kind, tokens=tokens)
