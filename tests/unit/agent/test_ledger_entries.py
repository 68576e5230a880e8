"""Every answer is entered in the ledger once, whatever becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.auxiliary_client import LoopSideModel, call_llm, charged_to, install
from agent.errors import ModelOverloaded, ModelTimeout, SessionEnded, StoreUnavailable
from agent.ledger import LedgerLine, LedgerScope, RequestEntry
from agent.llm.background import in_daemon_thread
from agent.llm.retry import RetryingModel
from agent.loop import LoopSettings
from agent.ports import ModelResponse, Usage
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.scripted_model import ScriptedModel, answer, call
from tests.unit.agent.test_loop import Rig

TOOK = Usage(10, 5, model="m-1")


@pytest.fixture
def rig(clock: FakeClock, ids: SequentialIds) -> Rig:
    return Rig(clock, ids)


async def entered(rig: Rig) -> list[tuple[str, str, int]]:
    lines = await rig.store.ledger_lines(LedgerScope())
    assert all(line.owner == "test:1" for line in lines)
    return [(line.purpose, line.model, line.requests) for line in lines]


async def test_kept_answers_are_entered_with_their_messages(rig: Rig) -> None:
    model = ScriptedModel(answer("", call("echo"), usage=TOOK), answer("done", usage=TOOK))
    await rig.finish(await rig.run(model))
    assert await entered(rig) == [("turn", "m-1", 2)]


@pytest.mark.parametrize(
    "thrown_away",
    [
        answer("", stop="end_turn", usage=TOOK),
        answer("half", call("echo"), stop="max_tokens", usage=TOOK),
        answer("full", stop="model_context_window_exceeded", usage=TOOK),
    ],
    ids=["empty", "cut call", "window full"],
)
async def test_answers_that_are_asked_for_again_were_paid_for(
    rig: Rig, thrown_away: ModelResponse
) -> None:
    await rig.finish(await rig.run(ScriptedModel(thrown_away, answer("done", usage=TOOK))))
    assert await entered(rig) == [("turn", "m-1", 2)]


async def test_an_answer_that_the_host_replaces_was_paid_for(rig: Rig) -> None:
    result = await rig.run(ScriptedModel(answer("no", stop="refusal", usage=TOOK)))
    assert result.usage is None
    await rig.finish(result)
    assert await entered(rig) == [("turn", "m-1", 1)]


async def test_the_last_word_is_entered_once(rig: Rig) -> None:
    rig.settings = LoopSettings(max_iterations=1, max_tokens=1000)
    model = ScriptedModel(answer("", call("echo"), usage=TOOK), answer("", usage=TOOK))
    await rig.finish(await rig.run(model))
    assert await entered(rig) == [("turn", "m-1", 2)]


async def test_a_turn_that_fails_has_cost_what_it_was_answered(rig: Rig) -> None:
    model = ScriptedModel(answer("", stop="end_turn", usage=TOOK), ModelOverloaded("x"))
    with pytest.raises(ModelOverloaded):
        await rig.run(model)
    assert await entered(rig) == [("turn", "m-1", 1)]


async def test_an_answer_that_lost_its_place_was_paid_for(rig: Rig) -> None:
    ticket = await rig.begin()

    async def elsewhere() -> None:
        await rig.store.start_conversation("k", "test:1", (await tip()).prefix)

    async def tip() -> Any:
        return await rig.store.session(ticket.session_id)

    class Moving(ScriptedModel):
        async def respond(self, request: Any, *, on_text: Any = None) -> ModelResponse:
            response = await super().respond(request, on_text=on_text)
            await elsewhere()
            return response

    with pytest.raises(SessionEnded):
        await rig.run(Moving(answer("", call("echo"), usage=TOOK)))
    assert await entered(rig) == [("turn", "m-1", 1)]


async def test_a_stop_between_answer_and_message_enters_it(rig: Rig) -> None:
    reached = asyncio.Event()

    async def slow(loaded: Any, usage: Usage, *, notify: object = None) -> Any:
        reached.set()
        await asyncio.sleep(3600)

    rig.compactor.note_usage = slow  # type: ignore[method-assign]
    turn = asyncio.ensure_future(rig.run(ScriptedModel(answer("done", usage=TOOK))))
    await reached.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert await entered(rig) == [("turn", "m-1", 1)]


async def test_a_ledger_that_fails_costs_no_answer(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(entry: RequestEntry) -> None:
        raise StoreUnavailable("disk full")

    rig.store.enter_request = broken  # type: ignore[method-assign]
    model = ScriptedModel(answer("", stop="end_turn", usage=TOOK), answer("done", usage=TOOK))
    result = await rig.run(model)
    assert result.text == "done"
    assert "missing in the ledger" in caplog.text


async def test_what_is_kept_for_an_hour_is_known(rig: Rig) -> None:
    rig.settings = LoopSettings(max_tokens=1000, cache_ttl="1h")
    usage = Usage(10, 5, cache_write_tokens=900, model="m-1")
    await rig.finish(await rig.run(ScriptedModel(answer("done", usage=usage))))
    (line,) = await rig.store.ledger_lines(LedgerScope())
    assert (line.cache_write_tokens, line.cache_write_1h_tokens) == (900, 900)


# --- side calls ---------------------------------------------------------------------------------


class Desk:
    """A side model on a conversation's account."""

    def __init__(self, store: MemoryStore, model: Any) -> None:
        self.store = store
        loop = asyncio.get_running_loop()
        self.side = LoopSideModel(model, loop, ledger=store).on_account("c_1", "summary")

    async def ask(self, timeout_seconds: float = 10.0) -> ModelResponse:
        return await in_daemon_thread(
            lambda: self.side.complete(
                system="s", prompt="p", max_tokens=9, timeout_seconds=timeout_seconds
            ),
            "test-side",
        )

    async def lines(self) -> list[LedgerLine]:
        return list(await self.store.ledger_lines(LedgerScope()))


async def test_a_side_call_is_entered_before_it_is_used(rig: Rig) -> None:
    await rig.begin()
    desk = Desk(rig.store, ScriptedModel(answer("sum", usage=TOOK)))
    await desk.ask()
    assert await desk.lines() == [LedgerLine("test:1", "summary", "m-1", "", 1, 10, 5)]


async def test_a_fallback_is_entered_under_its_own_name(rig: Rig, clock: FakeClock) -> None:
    first = ScriptedModel(*[ModelOverloaded("x", retry_after_seconds=999)], name="first")
    second = ScriptedModel(answer("sum", usage=Usage(3, 4, model="second-20261101")), name="second")
    model = RetryingModel([first, second], clock=clock, random=lambda: 0.5)
    desk = Desk(rig.store, model)
    await desk.ask()
    assert [line.model for line in await desk.lines()] == ["second-20261101"]


async def test_what_never_came_is_not_entered(rig: Rig) -> None:
    desk = Desk(rig.store, ScriptedModel(ModelOverloaded("x")))
    with pytest.raises(ModelOverloaded):
        await desk.ask()
    late = ScriptedModel(answer("late", usage=TOOK))
    late.gate = asyncio.Event()
    desk = Desk(rig.store, late)
    with pytest.raises(ModelTimeout):
        await desk.ask(timeout_seconds=0.05)
    assert await desk.lines() == []


async def test_a_ledger_that_fails_costs_no_summary(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(entry: RequestEntry) -> None:
        raise StoreUnavailable("disk full")

    rig.store.enter_request = broken  # type: ignore[method-assign]
    response = await Desk(rig.store, ScriptedModel(answer("sum", usage=TOOK))).ask()
    assert response.message["content"] == "sum"
    assert "missing in the ledger" in caplog.text


async def test_what_plugins_ask_is_on_the_account_of_the_conversation_they_run_for(
    rig: Rig,
) -> None:
    await rig.begin()
    model = ScriptedModel(*[answer("x", usage=TOOK)] * 3)
    install(LoopSideModel(model, asyncio.get_running_loop(), ledger=rig.store))

    def ask() -> None:
        call_llm("lcm_summary", messages=[{"role": "user", "content": "x"}])

    def run_for_a_conversation() -> None:
        with charged_to("c_1", "summary"):
            ask()
        with charged_to("c_1"):
            ask()
        ask()

    try:
        await in_daemon_thread(run_for_a_conversation, "test-side")
    finally:
        install(None)
    lines = await rig.store.ledger_lines(LedgerScope())
    assert {(line.owner, line.purpose, line.requests) for line in lines} == {
        ("test:1", "summary", 1),
        ("test:1", "other", 1),
        ("", "other", 1),
    }
