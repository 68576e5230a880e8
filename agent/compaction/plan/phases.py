"""Owns a compression's working state between its phases, and the arithmetic they share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agent.compaction.micro.marker import parse_marker
from agent.compaction.plan.assemble import assemble, problem_with, repair_pairs, with_changes
from agent.compaction.plan.boundary import (
    Boundaries,
    CutRules,
    find_boundaries,
    is_micro,
    is_summary,
    own_messages,
)
from agent.compaction.plan.frame import SummaryText, parse_summary, render_summary
from agent.compaction.plan.manifest import Loss, Mode, build_manifest, missing_from
from agent.compaction.plan.policy import MAX_BIAS
from agent.compaction.plan.prune import prune_messages, shrink_tail
from agent.compaction.plan.verbatim import choose_quotes, find_identifiers
from agent.messages import Message, newest_real_user, real_users, text_of
from agent.model_metadata import IMAGE_TOKENS, Triggers, messages_tokens
from agent.pressure import TIERS

PRUNE_ENOUGH_RATIO = 0.6
"""Pruning alone is enough if it brings the prompt to this share of the threshold."""
FIT_RATIO = 0.75
"""A compressed prompt should come to at most this share of the threshold."""
VERBATIM_RATIO = 0.05
IDENTIFIER_TOKENS = 2000
MIN_HEAD_RATIO = 0.25
CERTAINLY_WORTH_TOKENS = 4000
"""A middle of this size is always larger than the frame of a summary."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compression starts from: the list, its sizes, the cut, what pruning gives."""

    messages: Sequence[Message]
    """Every call answered."""
    tokens: Sequence[int]
    cut: Boundaries | None
    new_middle: Sequence[Message]
    """What the summary has to take in, the originals."""
    fixed_tokens: int
    """System prompt and tools, where they are not in the list."""
    image_tokens: int
    current_tokens: int
    """Prompt size as it was given; 0: not known."""
    bias: float
    """Real tokens for each estimated one; 1 if nothing real is known, never less."""
    triggers: Triggers
    previous: SummaryText | None
    """What is condensed already: the summary, and the digest of micro-compaction."""
    digests: Sequence[Message]
    """The markers of micro-compaction, which the summary takes in."""
    newest_user: int | None
    now: float
    """Unix seconds."""

    @property
    def estimated_tokens(self) -> int:
        """Estimate of the list as it is."""
        return sum(self.tokens)

    @property
    def current_projection(self) -> int:
        """The prompt size to expect from the list as it is."""
        return int((self.estimated_tokens + self.fixed_tokens) * self.bias)

    @property
    def middle_tokens(self) -> int:
        """Estimate of what is cut out."""
        if self.cut is None:
            return 0
        whole = sum(self.tokens[self.cut.head_end : self.cut.tail_start])
        return whole - sum(self.tokens[i] for i in self.cut.lifted)

    @property
    def outside(self) -> range:
        """What pruning may touch: all between the system message and the tail."""
        return range(self.cut.system_end, self.cut.tail_start) if self.cut else range(0)

    def projected(self, messages: Sequence[Message]) -> int:
        """The prompt size to expect from a list."""
        return int((self.size_of(messages) + self.fixed_tokens) * self.bias)

    def size_of(self, messages: Sequence[Message]) -> int:
        """Estimate of a list, pictures at the price of this plan."""
        return sum(messages_tokens(messages, image_tokens=self.image_tokens))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished list with what is worth knowing about it."""

    messages: list[Message]
    tokens: int
    """Estimate of them."""
    mode: Mode
    summary: SummaryText | None = None
    """What the summary message was rendered from."""
    covered: Sequence[Message] = ()
    manifest: dict[str, Any] = field(default_factory=dict)


def make_plan(
    messages: Sequence[Message],
    triggers: Triggers,
    *,
    protect_first_n: int,
    protect_last_n: int,
    decayed: bool,
    fixed_tokens: int = 0,
    image_tokens: int = IMAGE_TOKENS,
    current_tokens: int | None = None,
    now: float = 0.0,
) -> Plan:
    """Phase 2: where to cut. What pruning gives is only looked at where it is needed."""
    whole = repair_pairs([m if "content" in m else _with_content(m) for m in messages])
    tokens = messages_tokens(whole, image_tokens=image_tokens)
    rules = CutRules(
        protect_first_n=0 if decayed else protect_first_n,
        protect_last_n=protect_last_n,
        tail_tokens=triggers.tail_tokens,
        head_tokens=int(triggers.threshold_tokens * MIN_HEAD_RATIO),
    )
    own = own_messages(whole)
    cut = find_boundaries(whole, tokens, rules, own)
    estimate = sum(tokens) + fixed_tokens
    real = current_tokens or 0
    digests = [whole[i] for i in own if is_micro(whole[i])]
    return Plan(
        messages=whole,
        tokens=tokens,
        cut=cut,
        new_middle=_without(whole, cut, own) if cut is not None else (),
        fixed_tokens=fixed_tokens,
        image_tokens=image_tokens,
        current_tokens=real,
        bias=min(MAX_BIAS, max(1.0, real / estimate)) if estimate else 1.0,
        triggers=triggers,
        previous=_condensed([whole[i] for i in own if is_summary(whole[i])], digests),
        digests=digests,
        newest_user=newest_real_user(whole),
        now=now,
    )


def _condensed(summaries: Sequence[Message], digests: Sequence[Message]) -> SummaryText | None:
    """All that was condensed before, as one summary to be updated; None: nothing was."""
    if not summaries and not digests:
        return None
    summary = parse_summary(text_of(summaries[-1]["content"])) if summaries else SummaryText("")
    told = [summary.body, *(parse_marker(message).told for message in digests)]
    return replace(summary, body="\n\n".join(text for text in told if text))


def _with_content(message: Message) -> Message:
    """Other programs leave the key out where an assistant only calls tools."""
    return cast(Message, {**message, "content": None})


def _without(messages: Sequence[Message], cut: Boundaries, own: Sequence[int]) -> list[Message]:
    """The messages that are cut out, but not summaries and notes."""
    skipped = {*own, *cut.lifted}
    between = range(cut.head_end, cut.tail_start)
    if skipped.isdisjoint(between):
        return list(messages[cut.head_end : cut.tail_start])
    return [messages[i] for i in between if i not in skipped]


def pruned_only(plan: Plan, *, ahead: bool = False) -> Attempt | None:
    """The list after pruning, if the list was too long and pruning alone makes it short enough.

    ``ahead``: it is not too long yet; what is said until then has to find room as well.
    """
    threshold = plan.triggers.threshold_tokens
    enough = (PRUNE_ENOUGH_RATIO - (1 - TIERS[0] if ahead else 0.0)) * threshold
    if (not ahead and plan.current_projection < threshold) or _said_exceeds(plan, enough):
        return None
    pruned = prune_messages(plan.messages, plan.outside)
    shorter = with_changes(plan.messages, pruned)
    if not pruned or plan.projected(shorter) > enough:
        return None
    return _attempt(plan, shorter, "prune", covered=(), summary=None, pruned=len(pruned))


def _said_exceeds(plan: Plan, limit_tokens: float) -> bool:
    """Is it too much already without anything that pruning could make smaller?"""
    size = float(plan.fixed_tokens)
    for i in plan.outside:
        message = plan.messages[i]
        if message["role"] != "tool" and not message.get("tool_calls"):
            size += plan.tokens[i]
            if size * plan.bias > limit_tokens + 1:
                return True
    return False


def shrunk_only(plan: Plan) -> Attempt | None:
    """For a list in which nothing can be summarised: its bulky results are shortened, in the tail.

    None if that changes nothing.
    """
    changes = prune_messages(plan.messages, plan.outside)
    start = plan.cut.tail_start if plan.cut is not None else 0
    base = with_changes(plan.messages, changes)
    changes.update(
        shrink_tail(plan.messages, range(start, len(plan.messages)), _excess(plan, base))
    )
    if not changes:
        return None
    shorter = with_changes(plan.messages, changes)
    return _attempt(plan, shorter, "prune", covered=(), summary=None, pruned=len(changes))


def assembled(
    plan: Plan,
    body: str,
    mode: Mode,
    *,
    calls: int = 0,
    cost: Mapping[str, Any] | None = None,
) -> Attempt:
    """Phases 4 and 5: the summary in its frame, the new list, its manifest.

    Args:
        plan: What it started from.
        body: The summary of `Plan.new_middle`.
        mode: Who made it.
        calls: How many calls went into it.
        cost: What all calls took, those in vain too.
    """
    cut = plan.cut
    if cut is None:
        raise ValueError("nothing was cut out, so there is nothing to assemble")
    summary, complete = _summary_text(plan, body)
    content = render_summary(summary)
    changes = prune_messages(plan.messages, (*cut.head, *cut.lifted))
    result = assemble(plan.messages, cut, content, changes)
    extra = shrink_tail(plan.messages, cut.tail, _excess(plan, result))
    if extra:
        changes.update(extra)
        result = assemble(plan.messages, cut, content, changes)
    staying = {*cut.head, *cut.after_summary}
    still_there = sum(1 for i in changes if i in staying)
    return _attempt(
        plan,
        repair_pairs(result),
        mode,
        covered=plan.new_middle,
        summary=summary,
        pruned=still_there,
        parts=calls,
        cost=cost,
        identifiers_complete=complete,
    )


def worth_a_summary(plan: Plan) -> bool:
    """Could the list get shorter at all? Asked before a summary is paid for, where that is open."""
    if plan.middle_tokens >= CERTAINLY_WORTH_TOKENS:
        return True
    shortest = plan.previous.body if plan.previous is not None else "-"
    return not refusal(plan, assembled(plan, shortest, "summary"))


def refusal(plan: Plan, attempt: Attempt) -> str:
    """Why a finished list must not be taken; "" if it may: valid, nothing lost, and smaller."""
    problem = problem_with(plan.messages, attempt.messages, plan.newest_user) or _lost(attempt)
    if problem:
        return problem
    if attempt.tokens >= plan.estimated_tokens:
        return "nothing could be made smaller"
    return ""


def _lost(attempt: Attempt) -> str:
    """What is missing of what the summary has to carry, read back from the finished list."""
    if attempt.summary is None:
        return ""
    texts = [text_of(m["content"]) for m in attempt.messages if is_summary(m)]
    if not texts:
        return "the summary is missing"
    written = parse_summary(texts[0])
    return missing_from(written, attempt.summary, attempt.manifest, attempt.covered)


def _excess(plan: Plan, result: Sequence[Message]) -> int:
    """Estimated tokens by which a list is larger than it should be."""
    allowed = FIT_RATIO * plan.triggers.threshold_tokens
    return int((plan.projected(result) - allowed) / plan.bias)


def _summary_text(plan: Plan, body: str) -> tuple[SummaryText, bool]:
    previous = plan.previous or SummaryText(body="")
    share = int(plan.triggers.threshold_tokens * VERBATIM_RATIO)
    quotes, not_quoted = choose_quotes(real_users(plan.new_middle), previous, share)
    identifiers, complete = find_identifiers(
        [*plan.digests, *plan.new_middle], previous.identifiers, min(IDENTIFIER_TOKENS, share)
    )
    return SummaryText(body, identifiers, quotes, not_quoted), complete


def _attempt(
    plan: Plan,
    result: list[Message],
    mode: Mode,
    *,
    covered: Sequence[Message],
    summary: SummaryText | None,
    pruned: int,
    parts: int = 0,
    cost: Mapping[str, Any] | None = None,
    identifiers_complete: bool = True,
) -> Attempt:
    tokens = plan.size_of(result)
    loss = Loss(
        mode=mode,
        tokens_before=plan.estimated_tokens,
        tokens_after=tokens,
        rows_before=len(plan.messages),
        rows_after=len(result),
        pruned=pruned,
        parts=parts,
        identifiers_complete=identifiers_complete,
        cost=cost,
        at=plan.now,
    )
    return Attempt(
        messages=result,
        tokens=tokens,
        mode=mode,
        summary=summary,
        covered=covered,
        manifest=build_manifest(loss, covered, summary),
    )
