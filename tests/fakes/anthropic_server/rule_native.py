"""Owns the rules on the API's own context management: compaction requests, blocks, edits."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.models import ModelFacts
from tests.fakes.anthropic_server.units import Json, blocks_of

COMPACTION_BETA = "compact-2026-09-04"
THRESHOLD_BETA = "compact-2026-01-12"
EDITS_BETA = "context-management-2025-06-27"
BLOCK_FIELDS = frozenset(
    {"type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"}
)
EDIT_FIELDS = {
    "clear_tool_uses_20250919": frozenset(
        {"type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"}
    ),
    "clear_thinking_20251015": frozenset({"type", "keep"}),
    "compact_20260112": frozenset({"type", "trigger", "instructions", "pause_after_compaction"}),
}
# Parameters that shape a reply; a compaction has none.
REPLY_ONLY = ("context_management", "stop_sequences")


def coded(code: str, message: str) -> ApiError:
    """A 400 that names its cause."""
    return ApiError(400, message, rule="compaction", code=code)


def check_native(body: Json, facts: ModelFacts, betas: Collection[str]) -> None:
    """Everything that can be said without knowing which blocks were issued."""
    _check_blocks(body, facts, betas)
    if "compaction" in body:
        _check_request(body, facts)
    if "context_management" in body:
        _check_edits(body)


def compaction_blocks(body: Json) -> Iterator[tuple[int, int, str, Json]]:
    """(message index, block index, role, block) of every compaction block."""
    for i, message in enumerate(body["messages"]):
        for j, block in enumerate(blocks_of(message.get("content"))):
            if block.get("type") == "compaction":
                yield i, j, str(message.get("role")), block


def _check_blocks(body: Json, facts: ModelFacts, betas: Collection[str]) -> None:
    found = list(compaction_blocks(body))
    if not found:
        return
    i, j, _, _ = found[0]
    path = f"messages.{i}.content.{j}"
    if not facts.compacts or not {COMPACTION_BETA, THRESHOLD_BETA} & set(betas):
        raise broken(
            "shape",
            f"{path}: Input tag 'compaction' found using 'type' does not match any of the"
            " expected tags",
        )
    for i, j, role, block in found:
        path = f"messages.{i}.content.{j}.compaction"
        for key in block:
            if key not in BLOCK_FIELDS:
                raise broken("30", f"{path}.{key}: Extra inputs are not permitted")
        if block.get("content") == "":
            raise broken("shape", f"{path}.content: String should have at least 1 character")
        if role == "system" or (i, j) != (0, 0):
            raise coded(
                "compaction_block_misplaced",
                f"{path}: a compaction block must be the first block of the conversation",
            )
    if len([b for *_, b in found if b.get("content") or b.get("encrypted_content")]) > 1:
        raise coded("compaction_block_ambiguous", "messages: more than one compaction block")


def _check_request(body: Json, facts: ModelFacts) -> None:
    settings = body["compaction"]
    if not isinstance(settings, dict) or settings.get("type") != "summarize":
        raise broken("shape", "compaction.type: Input should be 'summarize'")
    for key in settings:
        if key not in ("type", "instructions"):
            raise broken("30", f"compaction.{key}: Extra inputs are not permitted")
    if not facts.compacts:
        raise broken("compaction", f"compaction: not supported on {facts.id}")
    for key in REPLY_ONLY:
        if body.get(key):
            raise broken("compaction", f"compaction: cannot be combined with {key}")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        raise broken("compaction", "compaction: cannot be combined with a forced tool_choice")
    output = body.get("output_config")
    if isinstance(output, dict) and output.get("format"):
        raise broken("compaction", "compaction: cannot be combined with output_config.format")
    last = body["messages"][-1]
    calls = [b for b in blocks_of(last.get("content")) if b.get("type") == "tool_use"]
    if last.get("role") == "assistant" and calls:
        raise coded(
            "compaction_incomplete_turn", "messages: the last assistant turn is not finished"
        )
    said = (
        block
        for message in body["messages"]
        if message.get("role") in ("user", "assistant")
        for block in blocks_of(message.get("content"))
        if block.get("type") != "compaction"
    )
    if next(said, None) is None:
        raise coded("compaction_nothing_to_summarize", "messages: nothing to summarize")


def _check_edits(body: Json) -> None:
    settings = body["context_management"]
    edits = settings.get("edits") if isinstance(settings, dict) else None
    if not isinstance(edits, list):
        raise broken("shape", "context_management.edits: Input should be a valid list")
    for n, edit in enumerate(edits):
        path = f"context_management.edits.{n}"
        kind = edit.get("type") if isinstance(edit, dict) else None
        if kind not in EDIT_FIELDS:
            raise broken("shape", f"{path}.type: unknown edit {kind!r}")
        for key in edit:
            if key not in EDIT_FIELDS[kind]:
                raise broken("30", f"{path}.{key}: Extra inputs are not permitted")
        for key in ("trigger", "keep", "clear_at_least"):
            _check_amount(f"{path}.{key}", edit.get(key))
        if kind == "clear_thinking_20251015":
            _check_thinking_edit(body, path, n)


def _check_thinking_edit(body: Json, path: str, place: int) -> None:
    if place:
        raise broken("edits", f"{path}: clear_thinking_20251015 must come first in edits")
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") in (None, "disabled"):
        raise broken(
            "edits", f"{path}: clear_thinking_20251015 requires thinking to be enabled or adaptive"
        )


def _check_amount(path: str, amount: object) -> None:
    if amount is None or amount == "all":
        return
    value = amount.get("value") if isinstance(amount, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise broken("shape", f"{path}.value: Input should be a valid integer")
