"""The strict server's rules on the API's own context management, judged by the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tests.fakes.anthropic_server import AnthropicServer, Fault
from tests.fakes.anthropic_server.faults import COMPACTION_ERRORS

MODEL = "claude-sonnet-5-5"
BETA = "compact-2026-09-04"
EDITS = "context-management-2025-06-27"
TALK = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
LOOK = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(summary_tokens=60) as server:
        yield server


@pytest.fixture
async def client(server: AnthropicServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        api_key=server.api_key, base_url=server.base_url, max_retries=0
    ) as client:
        yield client


async def ask(client: anthropic.AsyncAnthropic, messages: list[Any], **fields: Any) -> Any:
    betas = fields.pop("betas", [BETA])
    fields = {"model": MODEL, "max_tokens": 500, **fields}
    return await client.beta.messages.create(messages=messages, betas=betas, **fields)


async def block_of(client: anthropic.AsyncAnthropic, messages: list[Any]) -> dict[str, Any]:
    answer = await ask(client, messages, compaction={"type": "summarize"})
    assert answer.stop_reason == "compaction"
    block: dict[str, Any] = answer.content[0].to_dict()
    return block


async def test_each_error_has_the_class_that_the_sdk_has_for_it(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    for code, status in COMPACTION_ERRORS.items():
        server.script_summary(Fault(code))
        with pytest.raises(anthropic.APIStatusError) as caught:
            await ask(client, TALK, compaction={"type": "summarize"})
        assert (caught.value.status_code, caught.value.error_code) == (status, code)
        words = "".join(part.title() for part in code.split("_"))
        if code != "compaction_something_new":
            assert type(caught.value).__name__ == f"{words}Error"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"content": "other words"}, "compaction_content_mismatch"),
        ({"signature": "AAAA"}, "compaction_signature_invalid"),
        ({"tool_changes": None}, "compaction_tool_changes_mismatch"),
    ],
)
async def test_a_changed_block_is_refused(
    client: anthropic.AsyncAnthropic, change: dict[str, Any], code: str
) -> None:
    block = await block_of(client, TALK)
    say = {"role": "user", "content": "next"}
    await ask(client, [{"role": "assistant", "content": [block]}, say])
    with pytest.raises(anthropic.BadRequestError) as caught:
        await ask(client, [{"role": "assistant", "content": [{**block, **change}]}, say])
    assert caught.value.error_code == code


async def test_where_a_block_may_stand(client: anthropic.AsyncAnthropic) -> None:
    block = await block_of(client, TALK)
    packed = {"role": "assistant", "content": [block]}
    say = {"role": "user", "content": "next"}
    with pytest.raises(anthropic.BadRequestError) as caught:
        await ask(client, [say, packed, say])
    assert caught.value.error_code == "compaction_block_misplaced"
    with pytest.raises(anthropic.BadRequestError, match="Input tag 'compaction'"):
        await ask(client, [packed, say], betas=[])
    with pytest.raises(anthropic.BadRequestError, match="Input tag 'compaction'"):
        await ask(client, [packed, say], model="claude-haiku-4-5")
    await ask(
        client, [{"role": "assistant", "content": [block, {"type": "text", "text": "and"}]}, say]
    )


@pytest.mark.parametrize(
    ("messages", "fields", "expected"),
    [
        (
            [TALK[0], {"role": "assistant", "content": [CALL]}],
            {"tools": [LOOK]},
            "compaction_incomplete_turn",
        ),
        (TALK, {"stop_sequences": ["x"]}, "cannot be combined"),
        (TALK, {"tools": [LOOK], "tool_choice": {"type": "any"}}, "cannot be combined"),
        (TALK, {"context_management": {"edits": []}, "betas": [BETA, EDITS]}, None),
        (TALK, {"model": "claude-haiku-4-5"}, "not supported"),
        (TALK, {"betas": []}, "Extra inputs"),
    ],
)
async def test_what_a_compaction_takes(
    client: anthropic.AsyncAnthropic,
    messages: list[Any],
    fields: dict[str, Any],
    expected: str | None,
) -> None:
    if expected is None:
        fields["context_management"] = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    with pytest.raises(anthropic.BadRequestError) as caught:
        await ask(client, messages, compaction={"type": "summarize"}, **fields)
    text = f"{caught.value.error_code} {caught.value}"
    assert (expected or "cannot be combined") in text


async def test_edits_clear_old_results_and_say_so(client: anthropic.AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "look"}]
    for n in range(6):
        call = {**CALL, "id": f"toolu_{n}"}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "x" * 4000}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    edit: dict[str, Any] = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 2000},
        "keep": {"type": "tool_uses", "value": 2},
        "clear_at_least": {"type": "input_tokens", "value": 1000},
    }
    fields: dict[str, Any] = {"tools": [LOOK], "betas": [EDITS]}
    whole = await ask(client, messages, **fields)
    cleared = await ask(client, messages, context_management={"edits": [edit]}, **fields)
    applied = cleared.context_management.applied_edits[0]
    assert applied.cleared_tool_uses == 4
    assert whole.usage.input_tokens - cleared.usage.input_tokens == applied.cleared_input_tokens
    spared = {**edit, "exclude_tools": ["look"]}
    kept = await ask(client, messages, context_management={"edits": [spared]}, **fields)
    assert kept.context_management.applied_edits == []
    late = [{"type": "clear_thinking_20251015"}]
    with pytest.raises(anthropic.BadRequestError, match="requires thinking"):
        await ask(client, messages, context_management={"edits": late}, **fields)
    thinks = {**fields, "thinking": {"type": "adaptive"}}
    with pytest.raises(anthropic.BadRequestError, match="must come first"):
        await ask(client, messages, context_management={"edits": [edit, *late]}, **thinks)
