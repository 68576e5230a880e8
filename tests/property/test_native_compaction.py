"""Whatever the list: behind the provider's summary it can be sent, and nothing bound has moved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agent.compaction.native.assembling import assemble_native
from agent.compaction.native.cutting import NativePlan, plan_native
from agent.compaction.native.keepsake import HEADER, keepsake, read_keepsake
from agent.compaction.plan.frame import Quote, SummaryText
from agent.history import has_thinking
from agent.llm.validator import ThinkingLedger, validate
from agent.llm.wire import build_body
from agent.messages import (
    Draft,
    Entry,
    Keep,
    Message,
    Row,
    clean_text,
    text_of,
    wire_message,
    without_thinking,
)
from agent.model_metadata import Measurement, TriggerRules, estimate_message_tokens, triggers_for
from agent.native_block import compaction_block, compaction_message, sendable_block
from agent.ports import ModelRequest, NativeSummary
from tests.fakes.message_lists import conversations

MAKER = "m@host"
TRIGGERS = triggers_for(8000, TriggerRules(), max_tokens=1000)
quiet = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def stored(messages: Sequence[Message], thoughts: Sequence[bool], weight: int) -> list[Row]:
    """The list as it would be stored; some answers were thought about, and all weigh something."""
    rows = []
    for n, message in enumerate(messages):
        if message["role"] == "system":
            continue
        stored = cast(Message, {k: v for k, v in message.items() if not k.startswith("_")})
        if message["role"] == "assistant" and thoughts[n % len(thoughts)]:
            thought = {"type": "thinking", "thinking": f"hm {n}", "signature": f"s{n}"}
            blocks: list[dict[str, Any]] = [thought]
            if text_of(message["content"]).strip():
                blocks.append({"type": "text", "text": text_of(message["content"])})
            for call in message.get("tool_calls") or ():
                blocks.append(
                    {
                        "type": "tool_use",
                        "id": call["id"],
                        "name": call["function"]["name"],
                        "input": {},
                    }
                )
            stored["anthropic_content_blocks"] = blocks
        tokens = estimate_message_tokens(stored) + weight
        rows.append(Row(n + 1, "s", n + 1, stored, 0.0, tokens=tokens))
    return rows


def body_of(rows: Sequence[Row]) -> dict[str, Any]:
    return body_of_messages([wire_message(row) for row in rows])


def body_of_messages(messages: Sequence[Message]) -> dict[str, Any]:
    return build_body(ModelRequest("sys", messages, 100), "m", maker=MAKER)


def issued(rows: Sequence[Row]) -> ThinkingLedger:
    """A ledger that has seen every answer as it came."""
    ledger = ThinkingLedger()
    for at, row in enumerate(rows):
        if has_thinking(row):
            whole = body_of(rows[: at + 1])
            answer = next(t for t in reversed(whole["messages"]) if t["role"] == "assistant")
            ledger.record(body_of(rows[:at]), answer["content"])
    return ledger


def messages_of(entries: Sequence[Entry], rows: Sequence[Row]) -> list[Message]:
    by_id = {row.id: row for row in rows}
    out = []
    for entry in entries:
        if isinstance(entry, Draft):
            out.append(entry.message)
        else:
            message = wire_message(by_id[entry.row_id])
            out.append(message if entry.with_thinking else without_thinking(message))
    return out


@quiet
@given(
    conversations(),
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.integers(100, 900),
    st.booleans(),
)
def test_what_stays_can_be_sent_and_its_thinking_is_where_it_was(
    messages: list[Message], thoughts: list[bool], weight: int, readable: bool
) -> None:
    rows = stored(messages, thoughts, weight)
    assume(len(rows) > 3)
    plan = plan_native(
        rows, TRIGGERS, Measurement(0, "estimate"), protect_last_n=4, prefix_tokens=0, now=0.0
    )
    assume(plan is not None)
    assert isinstance(plan, NativePlan)
    for cut in plan.cuts:
        check_cut(plan, cut, readable)


def check_cut(plan: NativePlan, cut: int, readable: bool) -> None:
    rows = plan.rows
    before = body_of(rows[:cut])
    assert rows[cut].message["role"] == "assistant"
    assert before["messages"][-1]["role"] == "user"
    content = "## Goal\nshort" if readable else None
    block = {"type": "compaction", "content": content, "encrypted_content": "x", "signature": "b"}
    summary = NativeSummary(block, content or "", MAKER, None, "m")
    result = assemble_native(plan, cut, summary, {})
    if result.adopted is None:
        assert result.problem == "nothing could be made smaller"
        return
    entries = result.adopted.entries
    kept = [entry.row_id for entry in entries if isinstance(entry, Keep)]
    assert set(kept) >= {row.id for row in rows[cut:]}
    assert len(kept) == len(set(kept))
    # Everything whose thinking stays follows the block at once and in its order.
    bound = list(
        itertools.takewhile(lambda e: isinstance(e, Keep) and e.with_thinking, entries[1:])
    )
    assert [cast(Keep, e).row_id for e in bound] == [r.id for r in rows[cut : cut + len(bound)]]
    assert all(isinstance(e, Draft) or not e.with_thinking for e in entries[1 + len(bound) :])
    asked = [row for row in rows if row.message["role"] == "user"]
    if asked:
        assert asked[-1].id in kept
    covered = [r.id for r in plan.covered(cut) if r.message["role"] == "user"]
    users = result.manifest["user_messages"]
    assert sorted([*users["quoted"], *users["listed"]]) == covered

    ledger = issued(rows)
    ledger.record(before, [block])
    after = messages_of(entries, rows)
    assert compaction_block(after[0]) == block
    over = after[-1]["role"] == "assistant"
    body = body_of_messages([*after, {"role": "user", "content": "next"}] if over else after)
    assert validate(body, ledger=ledger) == []
    assert body["messages"][0]["content"][0] == block
    # To anybody else goes the text, and that can be sent as well.
    other = build_body(
        ModelRequest("sys", [without_thinking(m) for m in after], 100), "m", maker="n"
    )
    assert [str(v) for v in validate(other) if v.rule != "W7"] == []
    assert other["messages"][0]["role"] == "user"


@quiet
@given(
    st.lists(st.text(min_size=1, max_size=60), max_size=6),
    st.lists(st.integers(1, 10**6), unique=True, max_size=50),
    st.booleans(),
)
def test_a_keepsake_reads_back(quotes: list[str], listed: list[int], lifted: bool) -> None:

    said = [clean_text(q).replace("\r", " ").strip("\n") for q in quotes]
    kept = SummaryText(
        "", (), tuple(Quote(q, n + 1) for n, q in enumerate(said) if q.strip()), tuple(listed)
    )
    note = keepsake(kept, lifted=lifted)
    if not kept.quotes and not listed and not lifted:
        assert note is None
        return
    assert note is not None
    assert text_of(note["content"]).startswith(HEADER)
    back = read_keepsake(note)
    assert [q.row_id for q in back.quotes] == [q.row_id for q in kept.quotes]
    assert back.not_quoted == kept.not_quoted[:40]


@given(st.text(max_size=200), st.text(max_size=50))
def test_a_changed_text_is_not_the_block_s_any_more(text: str, change: str) -> None:

    block = {"type": "compaction", "content": "x", "signature": "y"}
    message = compaction_message(block, text, MAKER)
    assert sendable_block(message, MAKER) == block
    assert sendable_block(message, "somebody@else") is None
    assert sendable_block(message, "") is None
    changed = cast(Message, {**message, "content": f"{message['content']}{change}"})
    assert (sendable_block(changed, MAKER) == block) == (not change)
