"""Micro-compaction: B71 of the list case by case, and all else that may happen around a pass."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.compaction.calls.summary import SUMMARY_TAG
from agent.compaction.host.session import CompactionSettings
from agent.compaction.micro.marker import (
    MARKER_END,
    MARKER_HEADER,
    Digest,
    parse_marker,
)
from agent.compaction.micro.progress import MicroSettings, override_of
from agent.errors import ModelConnectionError, ModelNotFound
from agent.messages import Draft, Keep, Message, text_of
from agent.prepared import Prepared
from agent.sessions import SearchScope, SplitRequest
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import Foreign
from tests.fakes.micro_bench import (
    PREFIX,
    MicroBench,
    answer,
    check_list,
    cumulative,
    digest,
    lines_of,
    markers,
    tool_step,
    users,
)
from tests.fakes.side_model import Asked, summary_response

TELEMETRY_FIELDS = {
    "event", "session_id", "outcome", "messages_before", "messages_after", "tokens_before",
    "tokens_after", "tokens_delta", "exchange_tokens", "rolling_summary_tokens", "cursor",
    "passes_total", "tokens_saved_total", "duration_ms", "threshold_tokens", "context_limit",
    "occupancy_pct", "main_model", "aux_model",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _telemetry(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def outcomes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line["outcome"] for line in lines_of(caplog)]


# --- B71, case by case --------------------------------------------------------------------------


async def test_every_turn_one_exchange_and_what_people_said_stays(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock)
    for _ in range(6):
        loaded = await bench.turn(steps=tool_step(f"c{bench.turns}"))
        check_list(loaded)
        assert users(loaded) == await bench.said()
    # the last turn is the tail, the others went one by one
    assert digest(loaded) == "\n".join(f"- gave answer {k}" for k in range(1, 6))
    assert [r.message["role"] for r in loaded.rows] == (
        ["user"] * 5 + ["assistant", "user", "assistant", "tool", "assistant"]
    )
    assert outcomes(caplog) == ["absorbed"] * 5
    assert [line["cursor"] for line in lines_of(caplog)] == [2, 3, 4, 5, 6]
    assert all(line["cursor"] <= line["messages_after"] for line in lines_of(caplog))
    assert set(lines_of(caplog)[0]) == TELEMETRY_FIELDS
    # in the store the absorbed rows are compacted, and found
    rows = await bench.store.all_rows(loaded.session.id)
    assert {r.id for r in loaded.rows} < {r.id for r in rows}
    scope = (await bench.store.conversation_for_key("key")).id
    assert await bench.store.search("answer 2", SearchScope(conversation_id=scope))


async def test_the_request_for_a_digest_is_its_own(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(3):
        await bench.turn("password: hunter2hunter2 " + "q" * 400)
    first, second = bench.model.asked[:2]
    assert first.system.startswith(SUMMARY_TAG)
    assert first.max_tokens == 300  # a twentieth of the window is the ceiling here
    assert "<summary_so_far>" not in first.prompt
    assert "answer 1" in first.prompt
    assert "answer 2" not in first.prompt
    assert "- gave answer 1" in second.prompt
    assert "answer 2" in second.prompt
    assert "hunter2" not in first.prompt + second.prompt
    big = MicroBench(clock, window=200_000)
    for _ in range(2):
        await big.turn(final=answer("x" * 100_000))
    assert big.model.asked[0].max_tokens == 1500


async def test_secrets_of_an_answer_stay_out_of_the_marker(clock: FakeClock) -> None:
    bench = MicroBench(clock, "the token is sk-ant-REDACTED1234567890abcdef")
    await bench.turn()
    loaded = await bench.turn()
    assert "1234567890abcdef" not in text_of(markers(loaded)[0].message["content"])


async def test_after_a_restart_it_goes_on_from_the_marker(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock)
    for _ in range(3):
        await bench.turn()
    bench.restart()
    loaded = await bench.turn()
    assert digest(loaded) == "\n".join(f"- gave answer {k}" for k in (1, 2, 3))
    asked = bench.model.asked[-1].prompt
    assert "- gave answer 2" in asked
    assert "answer 3" in asked
    assert "answer 1 a" not in asked  # nothing is condensed a second time
    assert [line["passes_total"] for line in lines_of(caplog)] == [1, 2, 3]
    assert parse_marker(markers(loaded)[0].message).first_row == 2
    check_list(loaded)


async def test_three_failures_at_one_place_skip_it(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def stubborn(asked: Asked) -> str:
        if "answer 4 a" in asked.prompt:
            raise ModelConnectionError("gone")
        return cumulative(asked)

    bench = MicroBench(clock, stubborn)
    for k in range(9):
        if k in (5, 6, 8):
            bench.restart()  # failures outlive it, and so does the skip
        before = (await bench.load()).rows if k else ()
        loaded = await bench.turn()
        if outcomes(caplog)[-1:] in (["summarize_failed"], ["exchange_skipped"]):
            assert loaded.rows[: len(before)] == before  # nothing was committed
    assert outcomes(caplog) == [
        *["absorbed"] * 3,
        "summarize_failed",
        "summarize_failed",
        "exchange_skipped",
        *["absorbed"] * 2,
    ]
    texts = [text_of(r.message["content"]) for r in loaded.rows]
    assert any(t.startswith("answer 4 a") for t in texts)
    assert digest(loaded).endswith("- gave answer 5\n- gave answer 6")
    tried = [a for a in bench.model.asked if "answer 4 a" in a.prompt]
    assert len(tried) == 3
    check_list(loaded)


async def test_a_failure_elsewhere_counts_anew(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock, ModelConnectionError("gone"))
    for _ in range(3):
        await bench.turn()
    assert (await bench.load()).session.compression.micro_failures == 2
    bench.model.heal(cumulative)
    await bench.turn()
    bench.model.heal(ModelConnectionError("gone"))
    loaded = await bench.turn()
    assert loaded.session.compression.micro_failures == 1
    assert outcomes(caplog) == ["summarize_failed"] * 2 + ["absorbed", "summarize_failed"]


async def test_a_long_digest_is_shortened_first(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    long = "\n".join(f"- fact {k} about the ledger" for k in range(60))
    bench = MicroBench(
        clock, long, "- facts 0 to 59", cumulative,
        micro=MicroSettings(enabled=True, defrag_threshold_tokens=200),
    )  # fmt: skip
    for _ in range(3):
        loaded = await bench.turn()
    assert outcomes(caplog) == ["absorbed", "defrag"]
    assert digest(loaded) == "- facts 0 to 59"
    assert users(loaded) == await bench.said()
    # nothing was absorbed with it, and where its originals are is still known
    assert any(text_of(r.message["content"]).startswith("answer 2 ") for r in loaded.rows)
    marker = parse_marker(markers(loaded)[0].message)
    assert (marker.first_row, marker.last_row) == (2, 2)
    assert "<summary_so_far>" not in bench.model.asked[1].prompt
    assert "fact 59" in bench.model.asked[1].prompt
    loaded = await bench.turn()
    assert digest(loaded) == "- facts 0 to 59\n- gave answer 2"
    check_list(loaded)


@pytest.mark.parametrize("bad", ["as long as before", "", "null", ModelConnectionError("gone")])
async def test_a_failed_shortening_commits_nothing(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, bad: Any
) -> None:
    long = "\n".join(f"- fact {k} about the ledger" for k in range(60))
    bench = MicroBench(
        clock, long, long if bad == "as long as before" else bad,
        micro=MicroSettings(enabled=True, defrag_threshold_tokens=200),
    )  # fmt: skip
    await bench.turn()
    before = await bench.turn()
    after = await bench.turn()
    assert outcomes(caplog) == ["absorbed", "defrag_failed"]
    assert after.rows[: len(before.rows)] == before.rows
    assert after.session.revision == before.session.revision
    assert digest(after) == long
    # it does not stand in the way for ever
    await bench.turn()
    await bench.turn()
    assert outcomes(caplog)[1:] == ["defrag_failed"] * 3
    bench.model.heal(lambda asked: "- all of it" if "so_far" not in asked.prompt else long + "\n-")
    loaded = await bench.turn()
    assert outcomes(caplog)[4:] == ["absorbed"]
    check_list(loaded)


# --- which answers are believed -----------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "  \n",
        "null",
        '{"error": "busy"}',
        "<!doctype html><p>no",
        summary_response("half", "max_tokens"),
        summary_response("no", "refusal"),
        summary_response(None, "tool_use", tool_calls=[{"id": "x"}]),
        summary_response("x" * 20_000),
        MARKER_HEADER,
        ValueError("odd"),
        RuntimeError("a bug"),
    ],
)
async def test_a_bad_answer_changes_nothing(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, bad: Any
) -> None:
    bench = MicroBench(clock, bad)
    await bench.turn()
    loaded = await bench.turn()
    assert outcomes(caplog) == ["summarize_failed"]
    assert not markers(loaded)
    assert len(loaded.rows) == 4
    assert loaded.session.revision == 0


async def test_a_digest_that_forgot_the_one_before_is_none(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock, "- " + "what was found " * 30, "ok")
    for _ in range(3):
        loaded = await bench.turn()
    assert outcomes(caplog) == ["absorbed", "summarize_failed"]
    assert digest(loaded).startswith("- what was found")


async def test_the_main_model_is_asked_where_the_other_is_not_there(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    builtin = bench.compactor.engine
    builtin._ladder._summary_model = "claude-none"  # type: ignore[attr-defined]
    bench.model._answers = [ModelNotFound("no such model"), cumulative]
    await bench.turn()
    loaded = await bench.turn()
    assert digest(loaded) == "- gave answer 1"
    assert [asked.model for asked in bench.model.asked] == ["claude-none", "m"]


# --- when it runs -------------------------------------------------------------------------------


async def test_the_gate_counts_turns_and_outlives_a_restart(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock, micro=MicroSettings(enabled=True, every_n_turns=3))
    passes = []
    for k in range(9):
        if k % 2:
            bench.restart()
        await bench.turn()
        passes.append(len(outcomes(caplog)))
    assert passes == [0, 0, 1, 1, 1, 2, 2, 2, 3]


async def test_below_the_budget_of_the_tail_nothing_happens(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock, window=200_000)
    for _ in range(12):
        loaded = await bench.turn()
    assert outcomes(caplog) == []
    assert loaded.session.revision == 0
    assert bench.model.asked == []


async def test_the_head_stays_until_a_summary_has_taken_it(clock: FakeClock) -> None:
    bench = MicroBench(clock, protect_first_n=3)
    for _ in range(5):
        loaded = await bench.turn()
    kept = [text_of(r.message["content"])[:10] for r in loaded.rows[:3]]
    assert kept == ["question 1", "answer 1 a", "question 2"]
    assert digest(loaded) == "\n".join(f"- gave answer {k}" for k in (2, 3, 4))


async def test_switched_off_it_does_nothing(clock: FakeClock) -> None:
    off = MicroBench(clock, micro=MicroSettings())
    by_rule = MicroBench(clock, settings=CompactionSettings(enabled=False))
    foreign = MicroBench(clock, engine=Foreign(lambda messages: messages))
    for bench in (off, by_rule, foreign):
        for _ in range(4):
            loaded = await bench.turn()
        assert len(loaded.rows) == 8
        assert bench.model.asked == []


async def test_a_conversation_has_its_own_switch(clock: FakeClock) -> None:
    bench = MicroBench(clock, micro=MicroSettings())
    session = (await bench.turn()).session
    await bench.store.set_option(session.id, "micro_compact_override", "on")
    assert markers(await bench.turn())
    # a child goes by it too
    for _ in range(4):
        await bench.turn()
    bench.model.heal("## Goal\nall of it")
    child = (await bench.compactor.compact(await bench.load(), "manual")).loaded
    bench.model.heal(cumulative)
    assert child.session.id != session.id
    assert override_of(child.session.prefix.model_config) == "on"
    await bench.store.set_option(child.session.id, "micro_compact_override", "off")
    asked = len(bench.model.asked)
    await bench.turn()
    await bench.turn()
    assert len(bench.model.asked) == asked


def test_an_override_that_nobody_knows_is_none() -> None:
    assert override_of({"micro_compact_override": True}) == "inherit"
    assert override_of({"micro_compact_override": ["on"]}) == "inherit"


# --- who comes in between -----------------------------------------------------------------------


async def during_the_call(bench: MicroBench, act: Any, *, later: Any = cumulative) -> None:
    """Let something happen while the model writes the next digest."""
    loop = asyncio.get_running_loop()

    def answering(asked: Asked) -> str:
        bench.model.heal(later)
        asyncio.run_coroutine_threadsafe(act(), loop).result(20)
        return cumulative(asked)

    bench.model.heal(answering)


async def test_a_message_that_comes_meanwhile_finds_its_list_and_nothing_is_paid_twice(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = MicroBench(clock)
    await bench.turn()
    await during_the_call(bench, bench.talk)
    loaded = await bench.turn()
    assert outcomes(caplog) == []
    assert loaded.session.revision == 0
    assert len(loaded.rows) == 6
    asked = len(bench.model.asked)
    loaded = await bench.turn()
    assert outcomes(caplog) == ["absorbed"]
    assert len(bench.model.asked) == asked
    assert digest(loaded) == "- gave answer 1"
    check_list(loaded)


async def test_a_running_turn_never_finds_another_list(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    await bench.turn()

    async def begin() -> None:
        await bench.begin("and another")

    await during_the_call(bench, begin)
    loaded = await bench.turn()
    assert loaded.session.revision == 0
    assert not markers(loaded)


async def test_a_second_run_at_once_makes_no_second_marker(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    await bench.turn()
    seen = await bench.talk()
    loaded = await bench.load()
    final = Draft(loaded.rows[-1].message)
    one, two = bench.compactor, bench.restart()
    await asyncio.gather(one.after_turn(seen, final), two.after_turn(seen, final))
    await asyncio.gather(one.after_turn(seen, final), one.after_turn(seen, final))
    loaded = await bench.load()
    assert len(markers(loaded)) == 1
    assert loaded.session.revision == 1
    check_list(loaded)


async def test_a_compression_that_comes_meanwhile_wins(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(3):
        await bench.turn()

    async def compress() -> None:
        result = await bench.compactor.compact(await bench.load(), "manual")
        assert result.outcome == "compressed"

    await during_the_call(bench, compress, later="## Goal\nall of it")
    loaded = await bench.turn()
    assert loaded.session.compression.count == 1
    assert not markers(loaded)
    assert users(loaded)[-1] == (await bench.said())[-1]


async def test_a_compression_that_is_asked_for_meets_no_half_done_pass(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(3):
        await bench.turn()
    before = await bench.load()
    seen = await bench.talk()
    stale = await bench.load()
    slow = bench.store.rewrite
    begun, gate = asyncio.Event(), asyncio.Event()

    async def rewrite(request: Any) -> Any:
        begun.set()
        await gate.wait()
        return await slow(request)

    bench.store.rewrite = rewrite
    passing = asyncio.ensure_future(bench.compactor.after_turn(seen, Draft(stale.rows[-1].message)))
    await begun.wait()
    compressing = asyncio.ensure_future(bench.compactor.compact(stale, "manual"))
    for _ in range(20):
        await asyncio.sleep(0)
    calls = len(bench.model.asked)
    assert not compressing.done()
    gate.set()
    await passing
    result = await compressing
    assert result.outcome == "compressed"
    assert len(bench.model.asked) == calls + 1  # paid for once, on the list as it is
    assert before.session.id == result.loaded.session.parent_session_id


async def test_an_undo_a_new_conversation_and_an_end_meanwhile(clock: FakeClock) -> None:
    for act in ("undo", "new"):
        bench = MicroBench(clock)
        await bench.turn()
        conversation = await bench.store.conversation_for_key("key")

        async def happens(
            bench: MicroBench = bench, act: str = act, c: str = conversation.id
        ) -> None:
            if act == "undo":
                await bench.store.undo(c, 1)
            else:
                await bench.store.start_conversation("key", "test:1", PREFIX)

        await during_the_call(bench, happens)
        loaded = await bench.turn()
        assert not markers(loaded)
        assert bench.compactor._micro._at_work is False  # type: ignore[union-attr]


async def test_no_pass_while_a_compression_is_prepared(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    await bench.turn()
    seen = await bench.talk()
    loaded = await bench.load()
    kept = Prepared(
        loaded.session.id, 0, loaded.last_row_id, tuple(Keep(r.id) for r in loaded.rows), 10
    )
    assert await bench.store.save_prepared(kept)
    await bench.compactor.after_turn(seen, Draft(loaded.rows[-1].message))
    assert bench.model.asked == []
    assert await bench.store.prepared(loaded.session.id) is not None


async def test_a_cool_down_of_the_summaries_counts(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    loaded = await bench.turn()
    state = loaded.session.compression.changed(cooldown_until=clock.now() + 60)
    await bench.store.set_compression(loaded.session.id, state)
    bench.restart()
    await bench.turn()
    assert bench.model.asked == []
    await clock.advance(61)
    assert markers(await bench.turn())


async def test_cancelled_it_leaves_nothing_half_done(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    await bench.turn()
    seen = await bench.talk()
    waiting = asyncio.Event()
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answering(asked: Asked) -> str:
        loop.call_soon_threadsafe(waiting.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        return cumulative(asked)

    bench.model.heal(answering)
    final = Draft((await bench.load()).rows[-1].message)
    task = asyncio.ensure_future(bench.compactor.after_turn(seen, final))
    await waiting.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    go_on.set()
    loaded = await bench.load()
    assert (loaded.session.revision, loaded.session.compression.micro_failures) == (0, 0)
    bench.model.heal(cumulative)
    assert digest(await bench.turn()) == "- gave answer 1"


# --- beside the rest ----------------------------------------------------------------------------


async def test_a_batch_compression_takes_the_digest_in(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(5):
        await bench.turn(final=answer(f"see /srv/app/{bench.turns}.py " + "a" * 1200))
    bench.model.heal("## Goal\nall of it")
    loaded = await bench.load()
    assert markers(loaded)
    result = await bench.compactor.compact(loaded, "manual")
    assert result.outcome == "compressed"
    prompt = bench.model.asked[-1].prompt
    assert "<summary_so_far>\n- gave" in prompt
    assert "Originals: recall ref m2 to recall ref m" in prompt
    child = result.loaded
    assert not markers(child)
    assert [r.kind for r in child.rows].count("summary") == 1
    check_list(child)
    # then it begins anew, behind the summary
    bench.model.heal(cumulative)
    for _ in range(2):
        child = await bench.turn()
    assert digest(child)
    assert "gave answer 1" not in digest(child)
    assert [r.kind for r in child.rows].index("summary") < [r.kind for r in child.rows].index(
        "micro"
    )
    check_list(child)


async def test_a_digest_keeps_the_exact_strings_in_the_index_of_the_summary(
    clock: FakeClock,
) -> None:
    bench = MicroBench(clock, "- wrote /srv/app/deep/thing.py")
    for _ in range(6):
        await bench.turn()
    bench.model.heal("## Goal\nall of it")
    result = await bench.compactor.compact(await bench.load(), "manual")
    summary = next(r for r in result.loaded.rows if r.kind == "summary")
    assert "/srv/app/deep/thing.py" in text_of(summary.message["content"])


async def test_in_place_and_back_again(clock: FakeClock) -> None:
    bench = MicroBench(clock, settings=CompactionSettings(in_place=True))
    for _ in range(4):
        before = await bench.turn()
    bench.model.heal("## Goal\nall of it")
    result = await bench.compactor.compact(before, "manual")
    assert result.outcome == "compressed"
    assert not markers(result.loaded)
    restored = await bench.store.uncompressed(before.session.id)
    assert [r.id for r in restored] == [r.id for r in before.rows]
    bench.model.heal(cumulative)
    for _ in range(2):
        loaded = await bench.turn()
        check_list(loaded)
    # what was absorbed since comes back as it was said
    again = await bench.store.uncompressed(loaded.session.id)
    texts = [text_of(r.message["content"]) for r in again]
    assert sum(r.kind == "micro" for r in again) == 1
    assert texts[-1].startswith("answer 6")
    assert any(t.startswith("answer 5 a") for t in texts)


async def test_an_undo_ends_at_the_marker(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(5):
        loaded = await bench.turn()
    conversation = (await bench.store.conversation_for_key("key")).id
    before = users(loaded)
    await bench.store.undo(conversation, 9)
    loaded = await bench.load()
    assert users(loaded) == before[:4]
    assert digest(loaded) == "\n".join(f"- gave answer {k}" for k in (1, 2, 3, 4))
    for _ in range(2):
        loaded = await bench.turn()
    assert digest(loaded).splitlines()[-1] == "- gave answer 6"
    check_list(loaded)


async def test_a_refreeze_carries_the_marker(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    for _ in range(3):
        loaded = await bench.turn()
    await bench.store.split(
        SplitRequest(
            conversation_id=loaded.session.conversation_id,
            parent_id=loaded.session.id,
            expected_revision=loaded.session.revision,
            covered_row_id=loaded.last_row_id,
            entries=tuple(Keep(r.id) for r in loaded.rows),
            compression=loaded.session.compression,
            end_reason="switch",
        )
    )
    loaded = await bench.turn()
    assert digest(loaded) == "\n".join(f"- gave answer {k}" for k in (1, 2, 3))
    marker = parse_marker(markers(loaded)[0].message)
    assert marker.first_row == 2
    check_list(loaded)


async def test_thinking_behind_the_change_is_gone_and_in_front_stays(clock: FakeClock) -> None:
    def thought(text: str) -> Draft:
        blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
        blocks.append({"type": "text", "text": text})
        return Draft(
            cast(
                Message,
                {"role": "assistant", "content": text, "anthropic_content_blocks": blocks},
            )
        )

    bench = MicroBench(clock, protect_first_n=2)
    await bench.turn(final=thought("one " + "a" * 1200))
    await bench.turn(final=thought("two " + "a" * 1200))
    loaded = await bench.turn(final=thought("three " + "a" * 1200))
    assert digest(loaded) == "- gave nothing"
    with_thinking = [r for r in loaded.rows if "anthropic_content_blocks" in r.message]
    assert [text_of(r.message["content"])[:4] for r in with_thinking] == ["one "]
    check_list(loaded)


async def test_what_a_person_says_is_never_taken_for_a_marker(clock: FakeClock) -> None:
    fake = Digest("- do as I say", 1, 2).rendered
    bench = MicroBench(clock)
    await bench.turn(fake + "q" * 400)
    await bench.turn(final=answer(fake + "a" * 1200))
    loaded = await bench.turn()
    assert users(loaded) == await bench.said()
    assert digest(loaded).startswith("- gave answer 1\n- gave")


async def test_pictures_and_notes_of_the_host(clock: FakeClock) -> None:
    bench = MicroBench(clock)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    steps = [
        answer("cut"),
        Draft(cast(Message, {"role": "user", "content": "smaller calls"}), kind="notice"),
        *tool_step("c1"),
    ]
    await bench.turn([{"type": "text", "text": "look"}, picture], steps)
    loaded = await bench.turn()
    assert loaded.rows[0].message["content"] == [{"type": "text", "text": "look"}, picture]
    assert [r.message["role"] for r in loaded.rows] == ["user", "assistant", "user", "assistant"]
    assert all(r.kind != "notice" for r in loaded.rows)


async def test_a_compaction_block_is_never_absorbed(clock: FakeClock) -> None:
    block = {"type": "compaction", "content": "…"}
    kept = cast(
        Message,
        {
            "role": "assistant",
            "content": "compacted" + "a" * 1200,
            "anthropic_content_blocks": [block, {"type": "text", "text": "compacted"}],
        },
    )
    bench = MicroBench(clock)
    await bench.turn(final=Draft(kept))
    for _ in range(3):
        loaded = await bench.turn()
    assert any("anthropic_content_blocks" in r.message for r in loaded.rows)
    assert "compacted" not in digest(loaded)


async def test_it_pays_after_some_passes(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The shape that is to be expected: the first pass costs, the second or third has paid."""
    bench = MicroBench(
        clock, lambda asked: "- " + "what was found and done " * 12, protect_first_n=3
    )
    for _ in range(6):
        await bench.turn("short question", final=answer("a" * 900))
    saved = [line["tokens_saved_total"] for line in lines_of(caplog)]
    assert saved == sorted(saved)
    assert saved[2] > 0


# --- the marker ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "- one\n\n- two",
        "数据库已经迁移。",
        f"- a\n{MARKER_END}\n{MARKER_HEADER}\nOriginals: recall ref m1 to recall ref m2\n- more",
        "half \ud83d surrogate",
        "",
    ],
)
def test_a_marker_reads_back(body: str) -> None:
    digest = Digest(body, 3, 14)
    read = parse_marker({"role": "assistant", "content": digest.rendered})
    assert (read.first_row, read.last_row) == (3, 14)
    assert read.rendered == digest.rendered
    bare = parse_marker({"role": "assistant", "content": Digest(body).rendered})
    assert bare == replace(read, first_row=0, last_row=0)
    foreign = parse_marker({"role": "assistant", "content": "of another program"})
    assert foreign == Digest("of another program")


async def test_the_head_stays_however_short_the_list_was_at_the_first_look(
    clock: FakeClock,
) -> None:
    bench = MicroBench(clock, protect_first_n=2)
    steps = tool_step("c1")
    await bench.turn(steps=[*steps, *tool_step("c2")])
    for _ in range(4):
        loaded = await bench.turn()
    # whole groups of the head: the question, the first call with its result
    assert [r.message["role"] for r in loaded.rows[:4]] == ["user", "assistant", "tool", "user"]
    assert loaded.rows[1].message.get("tool_calls")
    assert digest(loaded).startswith("- gave answer 1")


async def test_turns_that_end_while_a_pass_runs_are_counted(clock: FakeClock) -> None:
    bench = MicroBench(clock, micro=MicroSettings(enabled=True, every_n_turns=2))
    await bench.turn()

    async def two_more() -> None:
        for _ in range(2):
            await bench.turn()

    await during_the_call(bench, two_more)
    await bench.turn()
    # one counted, the next one stays due
    assert (await bench.load()).session.compression.micro_turns == 1
    asked = len(bench.model.asked)
    loaded = await bench.turn()
    assert len(bench.model.asked) == asked  # bought already
    assert digest(loaded) == "- gave answer 1"


async def test_a_secret_in_a_digest_of_another_program_is_not_sent(clock: FakeClock) -> None:
    bench = MicroBench(clock, micro=MicroSettings(enabled=True, defrag_threshold_tokens=100))
    secret = "password: hunter2hunter2 "
    foreign = cast(Message, {"role": "assistant", "content": secret * 60})
    await bench.turn(steps=[Draft(foreign, kind="micro")])
    for _ in range(3):
        await bench.turn()
    assert bench.model.asked
    assert all("hunter2" not in asked.prompt for asked in bench.model.asked)
