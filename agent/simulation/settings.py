"""Owns what a replay runs under: a setting of the product or the reference, and assumptions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.compaction.micro.progress import MicroSettings
from agent.model_metadata import TriggerRules, Triggers, triggers_for
from agent.prompt_caching import TTL_SECONDS, CacheTtl, cache_marks, min_cacheable_tokens, ttl_for
from agent.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a trace can not say. Rates are those of a large model on a usual day."""

    call_seconds: float = 2.0
    """Of every call, until the first token comes."""
    read_tokens_per_second: float = 10_000.0
    write_tokens_per_second: float = 80.0
    summary_fill: float = 0.5
    """A summary's length, in parts of what it is asked to be at most."""
    identifier_share: float = 0.02
    """Exact identifiers that are kept, in parts of what is summarised, up to their limit."""
    digest_share: float = 0.12
    """What an exchange adds to micro-compaction's digest, in parts of it, up to its limit."""

    def seconds(self, input_tokens: int, output_tokens: int) -> float:
        """How long a call takes."""
        return (
            self.call_seconds
            + input_tokens / self.read_tokens_per_second
            + output_tokens / self.write_tokens_per_second
        )


@dataclass(frozen=True, slots=True)
class Manner:
    """In which ways a compression differs between the product and the reference."""

    prunes_alone: bool = True
    """Pruning is tried first, and may be enough."""
    reads_pruned: bool = False
    """The summary is made from what pruning left of tool results."""
    reads_tokens_of_each: int | None = None
    """Of each message; None: as much as the summary model can take."""
    carries_words: bool = True
    """People's words and exact identifiers are carried beside the summary."""
    shrinks_tail: bool = True
    head_ratio: float | None = 0.25
    """The most that the head may take, of the threshold; None: whatever it is."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to keep a conversation inside its window."""

    name: str
    triggers: Triggers
    cache_ttl: CacheTtl | None
    """None: the provider caches nothing that we could mark."""
    min_cache_tokens: int = 0
    protect_first_n: int = 3
    protect_last_n: int = 20
    enabled: bool = True
    background: bool = True
    prune_from_tokens: int = 0
    micro: MicroSettings = field(default_factory=MicroSettings)
    manner: Manner = field(default_factory=Manner)

    @property
    def cache_seconds(self) -> float | None:
        """How long a cached prefix lives after its last use."""
        return None if self.cache_ttl is None else TTL_SECONDS[self.cache_ttl]


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator can choose; the names are the configuration's."""

    rules: TriggerRules = field(default_factory=TriggerRules)
    cache_ttl: str = "5m"
    enabled: bool = True
    protect_first_n: int = 3
    protect_last_n: int = 20
    background: bool = True
    prune_from_tokens: int = 0
    micro: MicroSettings = field(default_factory=MicroSettings)


def setting_of(name: str, choice: Choice, trace: Trace, window_tokens: int) -> Setting:
    """The product's behaviour under a choice, for the model of a trace."""
    triggers = triggers_for(
        window_tokens, choice.rules, max_tokens=trace.max_tokens, model=trace.model
    )
    return Setting(
        name=name,
        triggers=triggers,
        cache_ttl=_ttl(choice.cache_ttl, trace),
        min_cache_tokens=min_cacheable_tokens(trace.model),
        protect_first_n=choice.protect_first_n,
        protect_last_n=choice.protect_last_n,
        enabled=choice.enabled,
        background=choice.background,
        prune_from_tokens=choice.prune_from_tokens,
        micro=choice.micro,
    )


def _ttl(wanted: str, trace: Trace) -> CacheTtl | None:
    if not cache_marks(trace.model, None).on:
        return None
    match wanted:
        case "1h" | "auto":
            return ttl_for(wanted, for_person=not trace.job)
        case _:
            return "5m"


# --- the reference ------------------------------------------------------------------------------

REFERENCE_THRESHOLD = 0.50
REFERENCE_SMALL_THRESHOLD = 0.75
"""Of windows below `REFERENCE_SMALL_WINDOW_TOKENS`."""
REFERENCE_SMALL_WINDOW_TOKENS = 512_000
REFERENCE_MIN_TOKENS = 64_000
REFERENCE_LAST_RATIO = 0.85
"""Where the smallest threshold would not fit."""
REFERENCE_TAIL_RATIO = 0.20
REFERENCE_TAIL_MESSAGES = 8
REFERENCE_SUMMARY_CEILING_TOKENS = 10_000
REFERENCE_READ_TOKENS = 1500
"""Of each message, for the summary: 6,000 characters."""


def reference_triggers(window_tokens: int) -> Triggers:
    """The numbers of Hermes Agent for a window, as its users measured them."""
    window = max(2, window_tokens)
    small = window < REFERENCE_SMALL_WINDOW_TOKENS
    ratio = max(REFERENCE_THRESHOLD, REFERENCE_SMALL_THRESHOLD if small else 0.0)
    threshold = max(int(window * ratio), REFERENCE_MIN_TOKENS)
    if threshold >= window:
        threshold = min(int(window * REFERENCE_LAST_RATIO), window - 1)
    own = triggers_for(window, TriggerRules())
    return replace(
        own,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * REFERENCE_TAIL_RATIO),
        summary_ceiling_tokens=min(own.summary_ceiling_tokens, REFERENCE_SUMMARY_CEILING_TOKENS),
    )


def reference(trace: Trace, window_tokens: int) -> Setting:
    """Hermes Agent as it comes: everybody waits for a summary, which is made from pruned results.

    Where the two differ in what can not be simulated, it is given the better of both: its prompt
    stays cached over its first compression, and its marks find what a long step has left behind.
    """
    return Setting(
        name="reference",
        triggers=reference_triggers(window_tokens),
        cache_ttl=_ttl("5m", trace),
        min_cache_tokens=min_cacheable_tokens(trace.model),
        protect_last_n=REFERENCE_TAIL_MESSAGES,
        background=False,
        manner=Manner(
            prunes_alone=False,
            reads_pruned=True,
            reads_tokens_of_each=REFERENCE_READ_TOKENS,
            carries_words=False,
            shrinks_tail=False,
            head_ratio=None,
        ),
    )


# --- what is compared ---------------------------------------------------------------------------

SWEEP = (0.5, 0.75, 1.5, 2.0)
"""Multiples of where the defaults compress."""


def usual_choices(base: Choice, window_tokens: int, *, max_tokens: int) -> dict[str, Choice]:
    """The choices that are worth a look, by name; the first one is the base itself."""
    choices = {"defaults": base}
    usual = triggers_for(window_tokens, base.rules, max_tokens=max_tokens)
    usable = window_tokens - usual.max_tokens
    for factor in SWEEP:
        tokens = int(usual.threshold_tokens * factor)
        ratio = round(tokens / window_tokens, 3)
        if not 0 < tokens <= min(usable, usual.hygiene_tokens):
            continue
        rules = replace(
            base.rules, threshold=ratio, max_threshold_tokens=None, small_window_floor=None
        )
        choices[f"threshold {ratio:g}"] = replace(base, rules=rules)
    for turns in (1, 3):
        micro = replace(base.micro, enabled=True, every_n_turns=turns)
        choices["micro" if turns == 1 else f"micro / {turns} turns"] = replace(base, micro=micro)
    choices["background off"] = replace(base, background=False)
    for ttl in ("1h", "auto"):
        choices[f"cache {ttl}"] = replace(base, cache_ttl=ttl)
    return choices
