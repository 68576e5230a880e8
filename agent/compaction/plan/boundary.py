"""Owns where a list is cut: head, middle, tail, and what is lifted out of the middle. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from agent.messages import (
    SUMMARY_HEADER,
    Message,
    is_real_user,
    newest_real_user,
    text_of,
)

TAIL_SLACK = 1.5
"""A count floor may stretch the tail to this multiple of its budget."""
OPEN_SHARE = 0.25
"""Of the tail's budget: room that messages without an answer have in any case."""
TAIL_FLOORS = (8, 3)
"""The count floors after ``protect_last_n``, where that one does not fit."""


@dataclass(frozen=True, slots=True)
class CutRules:
    """What the boundaries depend on, beside the messages."""

    protect_first_n: int
    """Messages of the head beside the system message; 0 once the head has decayed."""
    protect_last_n: int
    tail_tokens: int
    head_tokens: int
    """The head never takes more."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """A cut. Every message is in exactly one of: system, head, lifted, middle, tail."""

    system_end: int
    head_end: int
    tail_start: int
    length: int
    lifted: tuple[int, ...] = ()
    """Messages from before the tail that stay as they are, between the summary and the tail."""

    @property
    def head(self) -> range:
        """Kept at the front, behind the system message."""
        return range(self.system_end, self.head_end)

    @property
    def middle(self) -> list[int]:
        """To be summarised."""
        between = range(self.head_end, self.tail_start)
        return [i for i in between if i not in self.lifted] if self.lifted else list(between)

    @property
    def tail(self) -> range:
        """Kept at the end."""
        return range(self.tail_start, self.length)

    @property
    def after_summary(self) -> list[int]:
        """Everything that is kept behind the summary, in order."""
        return [*self.lifted, *self.tail]


def is_summary(message: Message) -> bool:
    """Is this a batch summary? What the store knows decides; else its marker."""
    kind = message.get("_kind")
    if message.get("tool_calls"):
        return False
    if kind is not None or "_row" in message:
        return kind == "summary"
    return message["role"] in ("user", "assistant") and text_of(message["content"]).startswith(
        SUMMARY_HEADER
    )


def is_micro(message: Message) -> bool:
    """Is this a marker of micro-compaction? Only what the store knows says so."""
    return message.get("_kind") == "micro"


def is_note(message: Message) -> bool:
    """Is this the note that opens a compressed list?"""
    return message.get("_kind") == "note"


_OWN_KINDS = ("summary", "note", "micro")


def own_messages(messages: Sequence[Message]) -> list[int]:
    """Where summaries, notes and markers of micro-compaction are."""
    return [
        i
        for i, message in enumerate(messages)
        if ("_kind" in message and message["_kind"] in _OWN_KINDS)
        or ("_row" not in message and is_summary(message))
    ]


def side(message: Message) -> str:
    """On which side of the wire a message ends up: a tool's result is the user's side."""
    return "assistant" if message["role"] == "assistant" else "user"


def newest_reply(messages: Sequence[Message]) -> int | None:
    """Index of the newest assistant message with text that a person could read, or None."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if message["role"] != "assistant" or is_summary(message) or is_micro(message):
            continue
        if text_of(message["content"]).strip():
            return i
    return None


def open_requests(messages: Sequence[Message]) -> list[int]:
    """What people have said behind the newest answer, oldest first: nobody has answered it yet.

    There are several where a turn was steered, or gave way to the next message.
    """
    found: list[int] = []
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if is_real_user(message):
            found.append(i)
        elif is_summary(message) or _is_answer(message):
            break
    return found[::-1]


def _is_answer(message: Message) -> bool:
    """Words that end a turn: an assistant that calls no more tools."""
    return (
        message["role"] == "assistant"
        and not message.get("tool_calls")
        and not is_micro(message)
        and bool(text_of(message["content"]).strip())
    )


def find_boundaries(
    messages: Sequence[Message],
    tokens: Sequence[int],
    rules: CutRules,
    own: Sequence[int] | None = None,
) -> Boundaries | None:
    """Where to cut, or None if nothing lies between what has to stay.

    The cut never runs through a tool group. The newest message of a person is never in the middle;
    neither are others that wait for an answer, as far as there is room for them, nor the newest
    visible reply, as long as it is not larger than the tail may be. Earlier summaries and markers
    of micro-compaction always are in the middle.

    Args:
        messages: The list, with every call answered.
        tokens: The estimate of each message.
        rules: Budgets and counts.
        own: `own_messages`, if known.
    """
    system_end = _system_end(messages)
    groups = _Groups(messages)
    if own is None:
        own = own_messages(messages)
    condensed = [i for i in own if not is_note(messages[i])]
    first_free = 1 + condensed[-1] if condensed else system_end
    decayed = any(is_summary(messages[i]) for i in condensed)
    head_end = system_end if decayed else _head_end(messages, tokens, groups, system_end, rules)
    for tail_start in _tail_candidates(groups, tokens, rules):
        found = _settle(
            messages, tokens, groups, rules, system_end, head_end, max(tail_start, first_free)
        )
        if not set(own).issuperset(found.middle):
            return found
    return None


class _Groups(Sequence[range]):
    """The tool groups of a list in which all pairs are whole (`agent.messages.tool_groups`)."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._starts = [i for i, m in enumerate(messages) if i == 0 or m["role"] != "tool"]
        self._starts.append(len(messages))

    @overload
    def __getitem__(self, at: int) -> range: ...
    @overload
    def __getitem__(self, at: slice) -> list[range]: ...
    def __getitem__(self, at: int | slice) -> range | list[range]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError(at)
        return range(self._starts[at], self._starts[at + 1])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def of(self, index: int) -> range:
        """The group that a message belongs to."""
        return self[bisect_right(self._starts, index) - 1]

    def starting_from(self, index: int) -> Iterator[range]:
        """The groups that start at or behind a message."""
        return map(self.__getitem__, range(bisect_left(self._starts, index), len(self)))


def _system_end(messages: Sequence[Message]) -> int:
    return 1 if messages and messages[0]["role"] == "system" else 0


def _head_end(
    messages: Sequence[Message],
    tokens: Sequence[int],
    groups: _Groups,
    system_end: int,
    rules: CutRules,
) -> int:
    """Whole groups from the front, until there are enough or the budget is used up."""
    end, spent = system_end, 0
    for group in groups.starting_from(system_end):
        spent += sum(tokens[i] for i in group)
        if end - system_end >= rules.protect_first_n or spent > rules.head_tokens:
            break
        if is_summary(messages[group.start]) or is_micro(messages[group.start]):
            break
        end = group.stop
    return end


def _tail_candidates(groups: _Groups, tokens: Sequence[int], rules: CutRules) -> Iterator[int]:
    """Starts of the tail, the wanted one first, each further one with a smaller tail."""
    n = groups[-1].stop if groups else 0
    by_budget = _tail_start(groups, tokens, rules.tail_tokens, at_least=1)
    slack = int(rules.tail_tokens * TAIL_SLACK)
    wanted = by_budget
    for floor in (rules.protect_last_n, *TAIL_FLOORS):
        start = _tail_start(groups, tokens, 0, at_least=floor)
        if sum(tokens[start:n]) <= slack:
            wanted = min(by_budget, start)
            break
    yield wanted
    smaller = sorted(
        {_tail_start(groups, tokens, 0, at_least=floor) for floor in (*TAIL_FLOORS, 1)}
    )
    yield from (start for start in smaller if start > wanted)


def _tail_start(
    groups: _Groups, tokens: Sequence[int], budget_tokens: int, *, at_least: int
) -> int:
    """Start of the longest run of whole groups at the end that fits; at least so many messages."""
    start = groups[-1].stop if groups else 0
    end, spent = start, 0
    for group in reversed(groups):
        spent += sum(tokens[i] for i in group)
        if spent > budget_tokens and end - start >= at_least:
            break
        start = group.start
    return start


def _settle(
    messages: Sequence[Message],
    tokens: Sequence[int],
    groups: _Groups,
    rules: CutRules,
    system_end: int,
    head_end: int,
    tail_start: int,
) -> Boundaries:
    """Move the rough cut so that everything protected is protected."""
    n = len(messages)
    slack = int(rules.tail_tokens * TAIL_SLACK)
    head_end = min(head_end, tail_start)
    lifted: list[int] = []

    user = newest_real_user(messages)
    if user is not None and user < tail_start:
        if user >= head_end and sum(tokens[user:n]) <= slack:
            tail_start = user
        else:
            lifted.append(user)
            head_end = min(head_end, user)
    room = slack - sum(tokens[i] for i in lifted)
    if lifted:
        tail_start = _shortened(tokens, groups, tail_start, room)
    reply = newest_reply(messages)
    if reply is not None and head_end <= reply < tail_start:
        group = groups.of(reply)
        cost = sum(tokens[i] for i in group)
        if sum(tokens[group.start : n]) <= room:
            tail_start = group.start
            lifted = [i for i in lifted if i < tail_start]
        elif cost <= rules.tail_tokens:
            shorter = _shortened(tokens, groups, tail_start, room - cost)
            if user is not None and tail_start <= user < shorter:  # it goes along, or is lost
                cost += tokens[user]
                shorter = _shortened(tokens, groups, tail_start, room - cost)
            if sum(tokens[shorter:n]) <= room - cost:
                lifted.extend(group)
                if user is not None and tail_start <= user < shorter:
                    lifted.append(user)
                tail_start = shorter
    spent = sum(tokens[i] for i in lifted)
    tail_start = _whole_pair(messages, tokens, rules, head_end, tail_start, slack - spent)
    room = max(slack - spent - sum(tokens[tail_start:n]), int(rules.tail_tokens * OPEN_SHARE))
    waiting = _waiting(messages, tokens, range(head_end, tail_start), {*lifted}, room)
    lifted.extend(waiting)
    cut = Boundaries(
        system_end=system_end,
        head_end=head_end,
        tail_start=tail_start,
        length=n,
        lifted=tuple(sorted(i for i in lifted if i < tail_start)),
    )
    return _alternating(messages, groups, cut)


def _waiting(
    messages: Sequence[Message],
    tokens: Sequence[int],
    between: range,
    lifted: set[int],
    room_tokens: int,
) -> list[int]:
    """Those of the middle that wait for an answer and find room, the newest ones first.

    A summary is read as what is over: a request in there would be taken as done. In the head they
    are read as they are.
    """
    found: list[int] = []
    for i in reversed(open_requests(messages)):
        if i in between and i not in lifted and tokens[i] <= room_tokens:
            room_tokens -= tokens[i]
            found.append(i)
    return found


def _shortened(tokens: Sequence[int], groups: _Groups, tail_start: int, room_tokens: int) -> int:
    """Where the tail starts if it may take so much: later by whole groups; the newest one stays."""
    spent = sum(tokens[tail_start:])
    for group in groups.starting_from(tail_start):
        if spent <= room_tokens or group.stop >= len(tokens):
            return group.start
        spent -= sum(tokens[i] for i in group)
    return tail_start


def _whole_pair(
    messages: Sequence[Message],
    tokens: Sequence[int],
    rules: CutRules,
    head_end: int,
    tail_start: int,
    room_tokens: int,
) -> int:
    """Take the question into the tail along with its answer, where it costs little."""
    before = tail_start - 1
    if before < head_end or tail_start >= len(messages):
        return tail_start
    if not is_real_user(messages[before]) or messages[tail_start]["role"] != "assistant":
        return tail_start
    cheap = tokens[before] * 2 <= rules.tail_tokens and sum(tokens[before:]) <= room_tokens
    return before if cheap else tail_start


def _alternating(messages: Sequence[Message], groups: _Groups, cut: Boundaries) -> Boundaries:
    """Shorten the head until a summary fits between it and what follows without a second of a kind.

    It fits if both neighbours are on the same side of the wire. An empty head always works: the
    summary then opens the list, or follows the note that does.
    """
    after = cut.after_summary
    if not after:
        return cut
    following = side(messages[after[0]])
    head_end = cut.head_end
    while head_end > cut.system_end and side(messages[head_end - 1]) != following:
        head_end = groups.of(head_end - 1).start
    return Boundaries(cut.system_end, head_end, cut.tail_start, cut.length, cut.lifted)
