"""Owns what a stored manifest says for people: figures and cost, whoever wrote it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.messages import Row, visible
from agent.sessions import Session

_MOST = 2**53
"""More is no count of anything, and no number for prices."""


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """What the summary calls of one compression took."""

    models: tuple[str, ...]
    calls: int
    input_tokens: int
    """Without the cached part."""
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    seconds: float = 0.0
    failed_calls: int = 0
    """Those of the calls that never came back: what they took, nobody says."""
    unmeasured_calls: int = 0
    """Those that came back without their figures."""

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class CompressionReport:
    """One compression as it can be told. Zeros where its manifest does not say."""

    mode: str
    """``prune``, ``summary``, ``deterministic``; ``native``: the provider's own summary;
    ``engine``: a third party's, which tells no more; or one that this version does not know."""
    at: float | None
    """Unix seconds."""
    tokens_before: int = 0
    """Of the messages, without system prompt and tools."""
    tokens_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    covered: int = 0
    """Messages that went into the summary."""
    user_messages: int = 0
    """Those of them that a person said."""
    quoted: int = 0
    """Person's messages that stand word for word in the summary."""
    listed: int = 0
    """Person's messages that are only named there, to be looked up."""
    identifiers: int = 0
    identifiers_complete: bool = True
    pruned: int = 0
    """Messages that stay in a shorter form."""
    cost: SummaryCost | None = None


def read_manifest(manifest: Mapping[str, Any], *, at: float | None = None) -> CompressionReport:
    """A manifest's figures; keys that are missing or of an odd type count as nothing.

    Args:
        manifest: As stored.
        at: When the compression was, if the manifest does not say.
    """
    covered = _mapping(manifest.get("covered"))
    users = _mapping(manifest.get("user_messages"))
    identifiers = _mapping(manifest.get("identifiers"))
    stored_at = _seconds(manifest.get("at"))
    return CompressionReport(
        mode=str(manifest.get("mode") or ""),
        at=stored_at if stored_at is not None else at,
        tokens_before=_count(manifest.get("tokens_before")),
        tokens_after=_count(manifest.get("tokens_after")),
        rows_before=_count(manifest.get("rows_before")),
        rows_after=_count(manifest.get("rows_after")),
        covered=_count(covered.get("messages")),
        user_messages=_count(covered.get("user_messages")),
        quoted=_length(users.get("quoted")),
        listed=_length(users.get("listed")),
        identifiers=_count(identifiers.get("kept")),
        identifiers_complete=identifiers.get("complete") is not False,
        pruned=_count(manifest.get("pruned")),
        cost=_cost(manifest.get("cost")),
    )


def last_compression(lineage: Sequence[Session], session_id: str) -> CompressionReport | None:
    """The compression whose result a session shows; None: there was none, or it was undone.

    Args:
        lineage: Root first; it may go on behind the session.
        session_id: Which one.
    """
    left = {session.id: session for session in lineage}
    session = left.pop(session_id, None)
    while session is not None:  # each is looked at once, whatever a damaged store says
        parent = left.pop(session.parent_session_id or "", None)
        if session.manifest is not None:
            split = parent is not None and parent.end_reason == "compression"
            return read_manifest(session.manifest, at=session.started_at if split else None)
        if parent is None or parent.end_reason == "uncompress":
            return None
        session = parent
    return None


def verbatim_rows(before: Sequence[Row], after: Sequence[Row]) -> int:
    """How many messages of a list still say the same, to the character, in the list made of it."""
    said = {row.root_id: visible(row.message) for row in before if row.kind is None}
    return sum(row.kind is None and said.get(row.root_id) == visible(row.message) for row in after)


def _cost(value: object) -> SummaryCost | None:
    cost = _mapping(value)
    models = cost.get("models")
    calls = _count(cost.get("calls"))
    if not calls:
        return None
    return SummaryCost(
        models=tuple(str(m) for m in models) if isinstance(models, list | tuple) else (),
        calls=calls,
        input_tokens=_count(cost.get("input_tokens")),
        output_tokens=_count(cost.get("output_tokens")),
        cache_read_tokens=_count(cost.get("cache_read_tokens")),
        cache_write_tokens=_count(cost.get("cache_write_tokens")),
        seconds=_seconds(cost.get("seconds")) or 0.0,
        failed_calls=_count(cost.get("failed_calls")),
        unmeasured_calls=_count(cost.get("unmeasured_calls")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _seconds(value: object) -> float | None:
    """A number that can be reckoned with; JSON holds infinite and endlessly long ones as well."""
    try:
        seconds = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _count(value: object) -> int:
    return max(0, min(value, _MOST)) if isinstance(value, int) else 0


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0
