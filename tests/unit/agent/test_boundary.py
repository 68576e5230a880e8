"""Where a list is cut, by sizes: what must stay does, whatever the sizes are."""

from __future__ import annotations

import random
from typing import cast

import pytest

from agent.compaction.plan.boundary import (
    TAIL_SLACK,
    Boundaries,
    CutRules,
    find_boundaries,
    open_requests,
)
from agent.messages import Message, newest_real_user, tool_groups

RULES = CutRules(protect_first_n=0, protect_last_n=20, tail_tokens=2400, head_tokens=3000)


def message(kind: str) -> Message:
    match kind:
        case "u":
            return {"role": "user", "content": "said"}
        case "a":
            return {"role": "assistant", "content": "answered"}
        case "t":
            return {"role": "tool", "tool_call_id": "c", "content": "found"}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return cast(Message, {"role": "assistant", "content": None, "tool_calls": [call]})


def check(messages: list[Message], cut: Boundaries) -> None:
    newest = newest_real_user(messages)
    assert newest not in cut.middle
    for group in tool_groups(messages):
        inside = set(group)
        for part in (set(cut.head), set(cut.middle), set(cut.lifted), set(cut.tail)):
            assert inside <= part or not inside & part
    everything = [*cut.head, *cut.middle, *cut.lifted, *cut.tail]
    assert sorted(everything) == list(range(cut.system_end, len(messages)))


def test_a_reply_that_is_lifted_takes_the_newest_message_along() -> None:
    """Room for the reply before it was made by letting the person's message out of the tail."""
    kinds = [*"uaua", *"ct" * 8, *"aua", *"ct" * 6]
    tokens = [100] * len(kinds)
    at = kinds.index("u", 20)
    sizes = [246, 71, 82, 405, 52, 41, 133, 845, 667, 59, 654, 81, 275]
    kinds = [*kinds[: at - 1], *"auctctctctctc"]
    tokens = [*tokens[: at - 1], *sizes]
    messages = [message(kind) for kind in kinds]
    cut = find_boundaries(messages, tokens, RULES)
    assert cut is not None
    check(messages, cut)


def test_what_nobody_has_answered_yet_is_not_summarised() -> None:
    """A turn that was steered, or gave way: several messages wait for one answer."""
    kinds = [*"uaua", "u", *"ct" * 8, "u", *"ct" * 8, "u", *"ct" * 12]
    messages = [message(kind) for kind in kinds]
    tokens = [100] * len(kinds)
    waiting = [i for i, kind in enumerate(kinds) if kind == "u"][2:]
    assert open_requests(messages) == waiting
    cut = find_boundaries(messages, tokens, RULES)
    assert cut is not None
    check(messages, cut)
    assert cut.middle
    assert not {*waiting} & {*cut.middle}


def test_a_crowd_that_waits_does_not_fill_the_window() -> None:
    kinds = [*"ua", *"u" * 200, *"ct" * 12]
    messages = [message(kind) for kind in kinds]
    cut = find_boundaries(messages, [100] * len(kinds), RULES)
    assert cut is not None
    check(messages, cut)
    assert len(cut.lifted) * 100 <= RULES.tail_tokens * TAIL_SLACK
    assert cut.middle


@pytest.mark.parametrize("seed", range(15))
def test_what_must_stay_stays_whatever_the_sizes(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        kinds: list[str] = []
        for _ in range(chance.randint(1, 8)):
            kinds.append("u")
            for _ in range(chance.choice((0, 1, 3, 8))):
                kinds += ["c", *["t"] * chance.choice((1, 1, 2))]
            if chance.random() < 0.8:
                kinds.append("a")
        sizes = {"u": 300, "a": 500, "c": 90, "t": 900}
        tokens = [chance.randint(20, sizes[kind]) for kind in kinds]
        messages = [message(kind) for kind in kinds]
        for tail in (400, 1200, 2400):
            rules = CutRules(chance.choice((0, 3)), 20, tail, 3000)
            if (cut := find_boundaries(messages, tokens, rules)) is not None:
                check(messages, cut)
