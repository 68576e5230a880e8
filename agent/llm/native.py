"""Owns what a request asks of the provider's own context management, and what was refused of it.

What a refusal means, and what follows:

- ``compaction_unavailable``: a passing failure. The retry policy, then our own summary.
- ``compaction_incomplete_turn``: not at this place. An earlier cut, once, then our own summary.
- ``compaction_nothing_to_summarize``, ``compaction_too_many_tool_references``, and those that
  nobody knows yet: our own summary.
- ``compaction_signature_invalid``, ``compaction_content_mismatch``,
  ``compaction_tool_changes_mismatch``, and by a mistake of ours ``compaction_block_ambiguous`` and
  ``compaction_block_misplaced``: the block that was sent back is not taken. It is lost: its text is
  sent in its place, and the next summary is made from the originals.
- A 400 that names field, block or beta, a 404, or an ordinary answer to a compaction: the endpoint
  has no such thing. Remembered for this process; our own summary from then on.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import BlockUnsendable, CompactionRefused, ModelBadRequest, ModelNotFound
from agent.llm.thinking import BINDING_BETA
from agent.messages import Message
from agent.native_block import (
    compaction_block,
    is_failed,
    leading_block,
    maker_of,
    readable_text,
    sendable_block,
)
from agent.ports import ContextEdits

Body = dict[str, Any]

EDITS_BETA = "context-management-2025-06-27"
COMPACTION_BETA = "compact-2026-09-04"

NOT_KNOWN = "not_known"
"""The endpoint does not compact; said once, then no longer asked."""
NO_SUMMARY = "no_summary"
"""It does, and nothing came of it this time."""
INCOMPLETE_TURN = "compaction_incomplete_turn"
LOST_BLOCK = frozenset(
    {
        "compaction_signature_invalid",
        "compaction_content_mismatch",
        "compaction_tool_changes_mismatch",
        "compaction_block_ambiguous",
        "compaction_block_misplaced",
    }
)
"""The block that we sent back is not taken."""
MAX_LOST = 256
NO_ROOM_STOPS = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})

log = logging.getLogger(__name__)

_NAMES_EDITS = re.compile(
    r"context[_-]management|clear_(tool_uses|thinking)_\d+|\bedits\b", re.IGNORECASE
)
_NAMES_COMPACTION = re.compile(r"\bcompact(ion)?\b|compact-\d{4}", re.IGNORECASE)
_NAMES_BETA = re.compile(
    r"anthropic-beta|\bbeta\b.{0,20}\b(header|flag|feature)", re.IGNORECASE | re.DOTALL
)


class NativeControls:
    """What one model's requests may use; remembers for this process what its endpoint refused."""

    def __init__(self, model: str, base_url: str | None) -> None:
        self.maker = maker_of(model, base_url)
        self._edits = True
        self._compacts = True
        self._takes_blocks = True
        self._lost: OrderedDict[str, None] = OrderedDict()

    @property
    def missing(self) -> tuple[str, ...]:
        """What the endpoint has been found not to have, in words."""
        found = {
            "context edits": self._edits,
            "compaction": self._compacts and self._takes_blocks,
        }
        return tuple(name for name, there in found.items() if not there)

    def reader(self, messages: Sequence[Message]) -> str:
        """Who is named as the reader of the block that a list begins with; "": it is not sent.

        Raises:
            BlockUnsendable: nothing of it could be sent in its place either.
        """
        block = compaction_block(messages[0]) if messages else None
        if block is None:
            return ""
        lost = not self._takes_blocks or _key(block) in self._lost
        if not lost and sendable_block(messages[0], self.maker) is not None:
            return self.maker
        if not readable_text(block):
            raise BlockUnsendable("the summary at the beginning can only be read by its maker")
        return ""

    def add_edits(self, body: Body, edits: ContextEdits | None) -> None:
        """What the provider may clear, in place, behind all else; where the endpoint knows that."""
        if edits is not None and self._edits:
            thinks = (body.get("thinking") or {}).get("type") not in (None, "disabled")
            body["context_management"] = {"edits": edit_list(edits, thinking=thinks)}

    def require_compaction(self) -> None:
        """Raise `CompactionRefused` where it is known that there is none."""
        if not self._compacts or not self._takes_blocks:
            raise CompactionRefused("the endpoint does not compact", code=NOT_KNOWN)

    def refused(self, error: ModelBadRequest, body: Mapping[str, Any]) -> bool:
        """Was an ordinary request refused for any of this? Then it may be sent again, without."""
        block = leading_block(body["messages"])
        if block is not None and isinstance(error, CompactionRefused):
            self._lose(block, error.code)
            return True
        if type(error) is not ModelBadRequest:
            return False
        text = str(error)
        if "context_management" in body and (
            _NAMES_EDITS.search(text) or EDITS_BETA in text or _unknown_beta(text, body)
        ):
            self._forgo("context edits")
            self._edits = False
            return True
        if block is not None and (_NAMES_COMPACTION.search(text) or _unknown_beta(text, body)):
            self._forgo("compaction blocks")
            self._takes_blocks = False
            return True
        return False

    def not_compacted(self, error: ModelBadRequest | ModelNotFound, body: Body) -> Exception:
        """What the refusal of a compaction means: the error to raise, and what to remember."""
        if isinstance(error, CompactionRefused):
            block = leading_block(body["messages"])
            if block is not None and error.code in LOST_BLOCK:
                self._lose(block, error.code)
            return error
        text = str(error)
        unknown = isinstance(error, ModelNotFound) or (
            type(error) is ModelBadRequest
            and (_NAMES_COMPACTION.search(text) or _unknown_beta(text, body))
        )
        return self.no_compaction(text) if unknown else error

    def no_compaction(self, why: str) -> CompactionRefused:
        """There is no such thing here: remembered, said once."""
        if self._compacts:
            self._forgo("compaction")
        self._compacts = False
        return CompactionRefused(f"the endpoint does not compact: {why}", code=NOT_KNOWN)

    def _lose(self, block: Mapping[str, Any], code: str) -> None:
        log.warning("The provider does not take its own summary back", extra={"code": code})
        self._lost[_key(block)] = None
        while len(self._lost) > MAX_LOST:
            self._lost.popitem(last=False)

    def _forgo(self, what: str) -> None:
        log.warning(
            "The endpoint lacks native context management; going on without", extra={"lacks": what}
        )


def _key(block: Mapping[str, Any]) -> str:
    return str(block.get("signature") or block.get("encrypted_content") or readable_text({**block}))


def _unknown_beta(text: str, body: Mapping[str, Any]) -> bool:
    """Does it refuse a beta without naming which, where the request has no other than ours?"""
    return _NAMES_BETA.search(text) is not None and BINDING_BETA not in betas_of(body)


def edit_list(edits: ContextEdits, *, thinking: bool) -> list[dict[str, Any]]:
    """The edits as the wire has them: thinking first, and only where the request thinks."""
    tools: dict[str, Any] = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": edits.trigger_tokens},
        "keep": {"type": "tool_uses", "value": edits.keep_tool_uses},
        "clear_at_least": {"type": "input_tokens", "value": edits.clear_at_least_tokens},
    }
    if edits.exclude_tools:
        tools["exclude_tools"] = list(edits.exclude_tools)
    if not thinking:
        return [tools]
    turns = {"type": "thinking_turns", "value": edits.keep_thinking_turns}
    return [{"type": "clear_thinking_20251015", "keep": turns}, tools]


def block_left_out(messages: Sequence[Message], body: Mapping[str, Any]) -> bool:
    """Does the text of a summary stand where its block was?"""
    return (
        bool(messages)
        and compaction_block(messages[0]) is not None
        and (leading_block(body["messages"]) is None)
    )


def betas_of(body: Mapping[str, Any]) -> list[str]:
    """The betas that a body needs, in a fixed order."""
    thinking = body.get("thinking") or {}
    needed = {
        COMPACTION_BETA: "compaction" in body or leading_block(body["messages"]) is not None,
        EDITS_BETA: "context_management" in body,
        BINDING_BETA: "block_binding" in thinking,
    }
    return [beta for beta, wanted in needed.items() if wanted]


def is_beta(body: Mapping[str, Any]) -> bool:
    """Is it a request that only the beta of the Messages API takes?"""
    return any(beta != BINDING_BETA for beta in betas_of(body))


def cleared_tokens(context_management: object) -> int:
    """How much the provider says that it left out of the prompt."""
    edits = _attribute(context_management, "applied_edits") or ()
    total = 0
    counts: dict[str, int] = {}
    for edit in edits if isinstance(edits, list) else ():
        tokens = _attribute(edit, "cleared_input_tokens")
        if isinstance(tokens, int) and tokens > 0:
            total += tokens
            kind = str(_attribute(edit, "type") or "unknown")[:40]
            counts[kind] = counts.get(kind, 0) + tokens
    if total:
        log.info("The provider cleared context", extra={"cleared_tokens": counts})
    return total


def the_block(content: Sequence[Any], stop_reason: str) -> dict[str, Any]:
    """The one block of a compaction's answer.

    Raises:
        CompactionRefused: there is none, or it stands for nothing.
    """
    blocks = [block.to_dict() for block in content]
    found = [block for block in blocks if block.get("type") == "compaction"]
    if len(found) == 1 and len(blocks) == 1 and not is_failed(found[0]):
        return dict(found[0])
    if found or stop_reason == "compaction" or stop_reason in NO_ROOM_STOPS:
        raise CompactionRefused("no summary came of it", code=NO_SUMMARY)
    raise CompactionRefused("the endpoint answered instead of compacting", code=NOT_KNOWN)


def _attribute(value: object, name: str) -> Any:
    """From a model of the SDK or from plain JSON: servers send what the SDK does not know."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
