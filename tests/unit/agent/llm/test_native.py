"""What is asked of the provider's own context management, and what each refusal means."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import (
    BlockUnsendable,
    CompactionRefused,
    ModelBadRequest,
    ModelNotFound,
    ModelOverloaded,
)
from agent.llm.failures import Refusal, classify
from agent.llm.native import (
    COMPACTION_BETA,
    EDITS_BETA,
    LOST_BLOCK,
    NO_SUMMARY,
    NOT_KNOWN,
    NativeControls,
    betas_of,
    cleared_tokens,
    the_block,
)
from agent.llm.native_edits import edits_for
from agent.llm.thinking import BINDING_BETA
from agent.messages import Message
from agent.model_metadata import TriggerRules, triggers_for
from agent.native_block import compaction_message, maker_of

URL = "http://user:secret@host:8080/v1"
BLOCK: dict[str, Any] = {"type": "compaction", "content": "what was said", "signature": "s"}
OPAQUE: dict[str, Any] = {"type": "compaction", "content": None, "encrypted_content": "x"}


def controls() -> NativeControls:
    return NativeControls("m", URL)


def packed(block: dict[str, Any] = BLOCK, maker: str = "m@host:8080") -> Message:
    return compaction_message(block, "text", maker)


def body(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    content = [*blocks, {"type": "text", "text": "x"}]
    return {"messages": [{"role": "assistant", "content": content}], **fields}


def test_a_maker_is_a_model_at_an_endpoint() -> None:
    assert maker_of("m", URL) == "m@host:8080"
    assert maker_of("m", None) == "m@api.anthropic.com"


def test_a_block_goes_to_its_maker_only() -> None:
    native = controls()
    assert native.reader([packed()]) == "m@host:8080"
    assert native.reader([packed(maker="other@host:8080")]) == ""
    assert native.reader([{"role": "user", "content": "hi"}]) == ""
    assert native.reader([]) == ""
    with pytest.raises(BlockUnsendable):
        native.reader([packed(OPAQUE, "other@host:8080")])


@pytest.mark.parametrize("code", sorted(LOST_BLOCK))
def test_a_refused_block_is_lost_and_no_other(code: str) -> None:
    native = controls()
    assert native.refused(CompactionRefused("no", code=code), body(BLOCK))
    assert native.reader([packed()]) == ""
    assert native.reader([packed({**BLOCK, "signature": "t"})]) == "m@host:8080"
    assert native.missing == ()
    # What was refused without any block in it is somebody else's matter.
    assert not native.refused(CompactionRefused("no", code=code), body())


@pytest.mark.parametrize(
    "text",
    ["compaction: Extra inputs", "Unexpected value `compact-2026-09-04` for anthropic-beta"],
)
def test_an_endpoint_without_blocks_gets_none(text: str) -> None:
    native = controls()
    assert native.refused(ModelBadRequest(text), body(BLOCK))
    assert native.reader([packed()]) == ""
    assert native.missing == ("compaction",)
    with pytest.raises(CompactionRefused) as caught:
        native.require_compaction()
    assert caught.value.code == NOT_KNOWN
    # One that was on its way meanwhile may be sent again as well.
    assert native.refused(ModelBadRequest(text), body(BLOCK))


def test_an_ordinary_refusal_is_not_taken_for_one() -> None:
    native = controls()
    edits: dict[str, Any] = {"edits": []}
    assert not native.refused(ModelBadRequest("messages: too many"), body(BLOCK))
    assert not native.refused(
        ModelBadRequest("max_tokens: too large"), body(context_management=edits)
    )
    assert native.refused(
        ModelBadRequest("context_management: Extra inputs"), body(context_management=edits)
    )
    assert native.missing == ("context edits",)


def test_what_a_refused_compaction_means() -> None:
    native = controls()
    plain = ModelBadRequest("something else")
    assert native.not_compacted(plain, body()) is plain
    assert not native.missing
    lost = CompactionRefused("no", code="compaction_content_mismatch")
    assert native.not_compacted(lost, body(BLOCK)) is lost
    assert native.reader([packed()]) == ""
    found = native.not_compacted(ModelNotFound("404"), body())
    assert isinstance(found, CompactionRefused)
    assert found.code == NOT_KNOWN
    assert native.missing == ("compaction",)


def test_the_errors_of_the_provider_s_compaction() -> None:
    passing = classify(Refusal(529, "overloaded_error", "busy", "compaction_unavailable"))
    assert isinstance(passing, ModelOverloaded)
    bare = classify(Refusal(400, "invalid_request_error", "compaction_unavailable"))
    assert isinstance(bare, ModelOverloaded)
    for refusal in (
        Refusal(400, "invalid_request_error", "no", "compaction_something_new"),
        Refusal(400, "invalid_request_error", "compaction_something_new: no"),
    ):
        error = classify(refusal)
        assert isinstance(error, CompactionRefused)
        assert error.code == "compaction_something_new"
    told = classify(Refusal(400, "invalid_request_error", "your compaction_block is odd"))
    assert type(told) is ModelBadRequest


def test_betas_are_named_in_one_order() -> None:
    assert betas_of(body()) == []
    binding = {"type": "adaptive", "block_binding": {}}
    whole = body(BLOCK, context_management={}, thinking=binding)
    assert betas_of(whole) == [COMPACTION_BETA, EDITS_BETA, BINDING_BETA]


class Answered:
    """A block as the SDK has it."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self._fields


@pytest.mark.parametrize(
    ("blocks", "stop", "code"),
    [
        ([], "end_turn", NOT_KNOWN),
        ([Answered(type="text", text="hi")], "end_turn", NOT_KNOWN),
        ([Answered(type="text", text="hi")], "max_tokens", NO_SUMMARY),
        ([], "refusal", NO_SUMMARY),
        ([Answered(type="compaction", content=None)], "compaction", NO_SUMMARY),
        ([Answered(type="compaction", content="  ")], "compaction", NO_SUMMARY),
        ([Answered(**BLOCK), Answered(**BLOCK)], "compaction", NO_SUMMARY),
        ([Answered(**BLOCK), Answered(type="text", text="hi")], "compaction", NO_SUMMARY),
    ],
)
def test_an_answer_that_is_no_block(blocks: list[Answered], stop: str, code: str) -> None:
    with pytest.raises(CompactionRefused) as caught:
        the_block(blocks, stop)
    assert caught.value.code == code


def test_the_one_block() -> None:
    assert the_block([Answered(**BLOCK)], "compaction") == BLOCK
    assert the_block([Answered(**OPAQUE)], "compaction") == OPAQUE


@pytest.mark.parametrize(
    "odd", [None, {}, {"applied_edits": None}, {"applied_edits": "x"}, {"applied_edits": [1, {}]}]
)
def test_edits_that_make_no_sense_cleared_nothing(odd: Any) -> None:
    assert cleared_tokens(odd) == 0
    applied = [{"type": "a", "cleared_input_tokens": 5}, {"cleared_input_tokens": -3}]
    assert cleared_tokens({"applied_edits": applied}) == 5


def test_edits_come_before_compression_and_are_worth_the_cache() -> None:
    for window in (1, 1000, 8000, 200_000, 1_000_000):
        triggers = triggers_for(window, TriggerRules(), max_tokens=8192)
        edits = edits_for(triggers, 4000)
        assert 0 < edits.clear_at_least_tokens <= edits.trigger_tokens
        assert edits.trigger_tokens <= triggers.effective_tokens
        assert 3 <= edits.keep_tool_uses <= 10
        assert "recall" in edits.exclude_tools
