"""Owns the way of a request without any socket: judged, counted, bound, cached, answered."""

from __future__ import annotations

import base64
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.fakes.anthropic_server.binding import (
    BindingPolicy,
    Bound,
    Compacted,
    Signer,
    bind,
    has_sealed,
    seal_answer,
)
from tests.fakes.anthropic_server.cache import CacheUse, PromptCache
from tests.fakes.anthropic_server.edits import apply_edits
from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.models import ModelFacts, facts_from_id
from tests.fakes.anthropic_server.request import MessageRequest
from tests.fakes.anthropic_server.rules import check_request
from tests.fakes.anthropic_server.script import AUTO, Answer, thinking
from tests.fakes.anthropic_server.sse import Final
from tests.fakes.anthropic_server.units import (
    THINKING_TYPES,
    Chain,
    Json,
    Unit,
    blocks_of,
    compact,
    count_blocks,
    digest_of,
    units_of,
)

REMEMBERED = 10_000


@dataclass
class Settings:
    """What a test may set, at the start or while the server runs."""

    window: int | None = None  # None: by model
    bearer_only: bool = False  # a server of others, which takes its key as OpenRouter does
    max_output: int | None = None
    min_cacheable: int | None = None
    overflow: str = "auto"  # auto | error | stop
    thinking: str = "auto"  # auto | always | never
    binding: str = "auto"  # auto | on | off
    token_scale: float = 1.0
    mode: str = "echo"
    summary_tokens: int | None = None
    chunk_delay: float = 0.0
    first_delay: float = 0.0
    pieces: int | None = None
    compaction: str = "text"  # text | opaque | null | none: what a compaction answers
    diagnosis: str | None = None  # what `diagnostics` answers; None: still pending


@dataclass(frozen=True)
class Judged:
    """An accepted request with all that is known about it."""

    request: MessageRequest
    facts: ModelFacts
    bound: Bound
    tokens: list[int]
    warnings: list[tuple[str, str]]
    applied_edits: list[Json] = field(default_factory=list)

    @property
    def input_tokens(self) -> int:
        return sum(self.tokens)


class TooLong(ApiError):
    """The request is well-formed but does not fit the window."""


class Memory:
    """A bounded set of things the server has to recognise again."""

    def __init__(self) -> None:
        self._items: OrderedDict[bytes, None] = OrderedDict()

    def add(self, item: bytes) -> None:
        self._items[item] = None
        if len(self._items) > REMEMBERED:
            self._items.popitem(last=False)

    def __contains__(self, item: bytes) -> bool:
        return item in self._items


class Engine:
    """Judges requests and builds answers; holds the cache and what was issued."""

    def __init__(
        self, settings: Settings, models: Mapping[str, ModelFacts], clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.models = dict(models)
        self.cache = PromptCache(clock)
        self.signer = Signer()
        self._paused = Memory()
        self._compacted: OrderedDict[str, Compacted] = OrderedDict()
        self._message_ids = itertools.count(1)

    # -- the model -----------------------------------------------------------------------------

    def facts(self, model: object) -> ModelFacts:
        """Facts of a model under the current settings."""
        if not isinstance(model, str):
            raise broken("shape", "model: Field required")
        found = self.models.get(model) or facts_from_id(model)
        if found is None:
            raise ApiError(404, f"model: {model}")
        changes = {
            name: value
            for name in ("window", "max_output", "min_cacheable")
            if (value := getattr(self.settings, name)) is not None
        }
        if self.settings.overflow != "auto":
            changes["overflow"] = self.settings.overflow
        if self.settings.binding != "auto":
            changes["binds_thinking"] = self.settings.binding == "on"
        return replace(found, **changes) if changes else found

    # -- judging -------------------------------------------------------------------------------

    def judge(self, number: int, body: Json, headers: Mapping[str, str], counting: bool) -> Judged:
        """Raise ApiError for a broken rule or a full window; the judged request otherwise."""
        facts = self.facts(body.get("model"))
        warnings = check_request(
            body,
            facts,
            version=headers.get("anthropic-version", ""),
            betas=betas_of(headers),
            counting=counting,
            # A compaction may end anywhere: nothing is sampled after it.
            resumes="compaction" in body or self._resumes(body),
        )
        request = MessageRequest(number, body, headers)
        bound = self._bind(body, facts, betas_of(headers))
        scale = self.settings.token_scale
        tokens = [unit.tokens() for unit in bound.units]
        if scale != 1.0:
            tokens = [round(count * scale) for count in tokens]
        edited = apply_edits(body, bound.units, tokens, scale)
        if edited.applied:
            digests = edited.digests() if bound.digests else []
            bound = Bound(edited.units, bound.chain, digests, bound.transformations)
        judged = Judged(request, facts, bound, edited.tokens, warnings, edited.applied)
        if not counting:
            _check_window(judged)
        return judged

    def _resumes(self, body: Json) -> bool:
        """Whether the last message hands a paused answer back unchanged."""
        messages = body.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        if not isinstance(last, dict) or last.get("role") != "assistant":
            return False
        blocks = blocks_of(last.get("content"))
        return any(digest_of(blocks[i:]) in self._paused for i in range(len(blocks)))

    def _bind(self, body: Json, facts: ModelFacts, betas: set[str]) -> Bound:
        units = units_of(body)
        if not (has_sealed(units) or _needs_digests(body, units, self._may_think(body, facts))):
            return Bound(units, Chain(), [], [])
        settings = body.get("thinking")
        binding = settings.get("block_binding") if isinstance(settings, dict) else None
        drop = isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block"
        policy = BindingPolicy(facts.id, facts.binds_thinking, drop, self._compacted)
        return bind(units, policy)

    def _may_think(self, body: Json, facts: ModelFacts) -> bool:
        if self.settings.thinking != "auto":
            return self.settings.thinking == "always"
        settings = body.get("thinking")
        kind = settings.get("type") if isinstance(settings, dict) else None
        return facts.thinks_always or kind in ("enabled", "adaptive", "between_tools")

    # -- answering -----------------------------------------------------------------------------

    def finish(self, judged: Judged, answer: Answer) -> Final:
        """The answer as it goes on the wire: thought, cut, signed, billed."""
        request, facts = judged.request, judged.facts
        blocks, reason, partial, sequence = self._shape(judged, answer)
        content = list(seal_answer(blocks, self._chain(judged, blocks), self.signer, facts.id))
        usage = self._bill(judged).usage() | _output_usage(content, partial)
        if reason == "pause_turn":
            self._paused.add(digest_of(content))
        beta = "thinking-binding-controls-2026-08-01" in betas_of(request.headers)
        return Final(
            id=f"msg_{next(self._message_ids):024d}",
            model=request.model,
            content=content,
            stop_reason=reason,
            stop_sequence=sequence,
            stop_details=answer.stop_details,
            usage={**usage, "service_tier": "standard", **answer.usage},
            transformations=judged.bound.transformations if beta else None,
            pieces=answer.pieces or self.settings.pieces,
            input_json=partial,
            extra=_edits(judged) | self._diagnosis(request.body),
        )

    def compact(self, judged: Judged, summary: str) -> Final:
        """The answer to an on-demand compaction: one sealed block, billed apart."""
        units = judged.bound.units
        head = Chain()
        for unit in units:
            if unit.section != "messages":
                head.add(unit)
        chain = judged.bound.chain
        block = self._block(summary, chain.digest(), judged.facts.id)
        if "signature" in block:
            self._compacted[block["signature"]] = Compacted(
                chain.copy(), head.digest(), units[-1].role, block, judged.facts.binds_thinking
            )
        while len(self._compacted) > REMEMBERED:
            self._compacted.popitem(last=False)
        billed = self._bill(judged).usage() | _output_usage([block], None)
        nothing = CacheUse().usage() | {"output_tokens": 0}
        return Final(
            id=f"msg_{next(self._message_ids):024d}",
            model=judged.request.model,
            content=[block],
            stop_reason="compaction",
            stop_sequence=None,
            stop_details=None,
            usage={**nothing, "iterations": [{"type": "compaction", **billed}]},
        )

    def _block(self, summary: str, prefix: bytes, model: str) -> Json:
        kind = self.settings.compaction
        if kind == "null" or not summary:
            return {"type": "compaction", "content": None}
        signed = {"signature": self.signer.sign(summary, prefix, model), "tool_changes": []}
        if kind == "opaque":
            sealed = base64.b64encode(summary.encode()).decode()
            return {"type": "compaction", "content": None, "encrypted_content": sealed, **signed}
        return {"type": "compaction", "content": summary, "encrypted_content": None, **signed}

    def _diagnosis(self, body: Json) -> Json:
        if "diagnostics" not in body:
            return {}
        kind = self.settings.diagnosis
        reason = {"type": kind, "cache_missed_input_tokens": 1} if kind else None
        return {"diagnostics": {"cache_miss_reason": reason}}

    def _chain(self, judged: Judged, blocks: list[Json]) -> Chain:
        """The prefix behind which an answer is signed; only a late thought needs hashing now."""
        if judged.bound.digests or all(b["type"] not in THINKING_TYPES for b in blocks):
            return judged.bound.chain
        chain = Chain()
        for unit in judged.bound.units:
            chain.add(unit)
        return chain

    def _shape(
        self, judged: Judged, answer: Answer
    ) -> tuple[list[Json], str | None, str | None, str | None]:
        """(blocks, stop reason, partial tool input, stop sequence)."""
        body = judged.request.body
        if body["max_tokens"] == 0:
            return [], "max_tokens", None, None
        blocks = self._with_thought(judged, answer)
        if answer.stop_reason != AUTO:
            return blocks, answer.stop_reason, answer.input_json, answer.stop_sequence
        blocks, sequence = _stop_at(blocks, body.get("stop_sequences") or [])
        if sequence is not None:
            return blocks, "stop_sequence", None, sequence
        room = judged.facts.window - judged.input_tokens
        budget = min(body["max_tokens"], room)
        if count_blocks(blocks) > budget:
            kept, partial = cut_blocks(blocks, budget)
            full = room < body["max_tokens"]
            return kept, "model_context_window_exceeded" if full else "max_tokens", partial, None
        calls = any(b["type"] == "tool_use" for b in blocks)
        return blocks, "tool_use" if calls else "end_turn", answer.input_json, None

    def _with_thought(self, judged: Judged, answer: Answer) -> list[Json]:
        blocks = answer.blocks()
        if any(b["type"] in THINKING_TYPES for b in blocks) or not self._thinks(judged, answer):
            return blocks
        request = judged.request
        thought = (
            answer.thinking
            if isinstance(answer.thinking, str)
            else f"Considering: {request.last_user_text[:60]}"
        )
        settings = request.body.get("thinking")
        hidden = isinstance(settings, dict) and settings.get("display") == "omitted"
        return [thinking("" if hidden else thought), *blocks]

    def _thinks(self, judged: Judged, answer: Answer) -> bool:
        if answer.thinking is not None:
            return answer.thinking is not False
        settings = judged.request.body.get("thinking")
        between = isinstance(settings, dict) and settings.get("type") == "between_tools"
        if between and self.settings.thinking == "auto":
            return bool(judged.request.tool_results)
        return self._may_think(judged.request.body, judged.facts)

    def _bill(self, judged: Judged) -> CacheUse:
        body, bound, facts = judged.request.body, judged.bound, judged.facts
        if not bound.digests:
            return CacheUse(fresh=judged.input_tokens)
        return self.cache.use(
            facts.id, body, bound.units, bound.digests, judged.tokens, facts.min_cacheable
        )


def betas_of(headers: Mapping[str, str]) -> set[str]:
    """The beta names of a request."""
    return {b.strip() for b in headers.get("anthropic-beta", "").split(",") if b.strip()}


def _needs_digests(body: Json, units: list[Unit], may_think: bool) -> bool:
    """Hashing a long request costs; a plain one has no use for it."""
    if may_think or "compaction" in body or isinstance(body.get("cache_control"), dict):
        return True
    return any(unit.mark() is not None for unit in units)


def _check_window(judged: Judged) -> None:
    facts, got = judged.facts, judged.input_tokens
    if got > facts.window:
        raise TooLong(400, f"prompt is too long: {got} tokens > {facts.window} maximum")
    wanted = judged.request.body["max_tokens"]
    if facts.overflow == "error" and got + wanted > facts.window:
        raise TooLong(
            400,
            f"input length and `max_tokens` exceed context limit: {got} + {wanted} >"
            f" {facts.window}, decrease input length or `max_tokens` and try again",
        )


def _output_usage(content: list[Json], partial: str | None) -> Json:
    thought = count_blocks(b for b in content if b["type"] in THINKING_TYPES)
    total = count_blocks(content) + (len(partial) // 4 if partial else 0)
    return {
        # The API counts at least one token even for an empty answer.
        "output_tokens": max(1, total),
        "output_tokens_details": {"thinking_tokens": thought},
    }


def _edits(judged: Judged) -> Json:
    if "context_management" not in judged.request.body:
        return {}
    return {"context_management": {"applied_edits": judged.applied_edits}}


def _stop_at(blocks: list[Json], sequences: list[str]) -> tuple[list[Json], str | None]:
    for i, block in enumerate(blocks):
        if block["type"] != "text":
            continue
        hits = [(at, s) for s in sequences if (at := block["text"].find(s)) >= 0]
        if hits:
            at, sequence = min(hits)
            kept = [{**block, "text": block["text"][:at]}] if at else []
            return [*blocks[:i], *kept], sequence
    return blocks, None


def cut_blocks(blocks: list[Json], budget: int) -> tuple[list[Json], str | None]:
    """What fits into `budget` tokens, and the raw input of a tool call that was cut."""
    kept: list[Json] = []
    left = budget
    for block in blocks:
        size = count_blocks([block])
        if size <= left:
            kept.append(block)
            left -= size
            continue
        if left > 0:
            return _cut_one(kept, block, left)
        break
    return kept, None


def _cut_one(kept: list[Json], block: Json, left: int) -> tuple[list[Json], str | None]:
    key = {"text": "text", "thinking": "thinking"}.get(block["type"])
    if key is not None:
        value = block[key]
        chars = left * 4 if value.isascii() else left
        return [*kept, {**block, key: value[:chars]}], None
    if block["type"] == "tool_use":
        return [*kept, {**block, "input": {}}], compact(block["input"])[: max(1, left * 4 - 8)]
    return kept, None
