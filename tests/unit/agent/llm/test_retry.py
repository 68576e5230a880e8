"""The retry policy: what is asked again, when, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
)
from agent.llm.retry import RetryingModel, RetryPolicy
from agent.llm.standing import ModelTrouble, Standing
from agent.messages import text_of
from agent.ports import ModelRequest, ModelResponse
from tests.fakes.clock import FakeClock
from tests.fakes.scripted_model import Item, ScriptedModel

ASKED = ModelRequest(system="", messages=[{"role": "user", "content": "?"}], max_tokens=10)


def chain(clock: FakeClock, *scripts: Sequence[Item], **policy: Any) -> RetryingModel:
    models = [ScriptedModel(*items, name=f"model{n}") for n, items in enumerate(scripts)]
    return RetryingModel(models, clock=clock, random=lambda: 0.5, policy=RetryPolicy(**policy))


async def ask(
    model: RetryingModel, clock: FakeClock, request: ModelRequest = ASKED
) -> tuple[ModelResponse | ModelError, list[str]]:
    shown: list[str] = []
    task = asyncio.ensure_future(model.respond(request, on_text=shown.append))
    while not task.done():
        for _ in range(10):
            await asyncio.sleep(0)
        if clock.next_wake_seconds is not None and not task.done():
            await clock.advance(clock.next_wake_seconds)
    error = task.exception()
    assert error is None or isinstance(error, ModelError), error
    return (task.result() if error is None else error), shown


@pytest.mark.parametrize(
    "error",
    [
        ModelUnavailable("x"),
        ModelRateLimited("x"),
        ModelOverloaded("x"),
        ModelTimeout("x"),
        ModelConnectionError("x"),
    ],
)
async def test_what_may_heal_is_asked_again(clock: FakeClock, error: ModelError) -> None:
    answer, _ = await ask(chain(clock, [error, error, "ok"]), clock)
    assert isinstance(answer, ModelResponse)


@pytest.mark.parametrize(
    "error", [ModelBadRequest("x"), ContextOverflow("x"), ModelQuotaError("x"), ModelAuthError("x")]
)
async def test_what_may_not_is_raised_at_once(clock: FakeClock, error: ModelError) -> None:
    assert (await ask(chain(clock, [error], ["other"]), clock))[0] is error


async def test_attempts_are_limited_and_waits_grow(clock: FakeClock) -> None:
    started = clock.monotonic()
    model = chain(clock, [ModelOverloaded("x")] * 4, attempts_per_model=4)
    assert isinstance((await ask(model, clock))[0], ModelOverloaded)
    assert clock.monotonic() - started == pytest.approx(1 + 2 + 4)


async def test_the_provider_is_given_the_time_it_asks_for(clock: FakeClock) -> None:
    started = clock.monotonic()
    model = chain(clock, [ModelRateLimited("x", retry_after_seconds=30), "ok"])
    assert isinstance((await ask(model, clock))[0], ModelResponse)
    assert 30 <= clock.monotonic() - started < 32


async def test_a_longer_wait_than_anybody_has_is_not_waited(clock: FakeClock) -> None:
    started = clock.monotonic()
    model = chain(clock, [ModelRateLimited("x", retry_after_seconds=4000)], ["second"])
    answer, _ = await ask(model, clock)
    assert isinstance(answer, ModelResponse)
    assert answer.model == "scripted"
    assert clock.monotonic() == started


async def test_the_deadline_counts_over_everything(clock: FakeClock) -> None:
    started = clock.monotonic()
    script: list[Item] = [ModelRateLimited("x", retry_after_seconds=100) for _ in range(9)]
    model = chain(clock, script, attempts_per_model=9, deadline_seconds=250)
    assert isinstance((await ask(model, clock))[0], ModelRateLimited)
    assert clock.monotonic() - started <= 250


async def test_the_next_model_is_asked_when_one_is_gone_or_gives_up(clock: FakeClock) -> None:
    for script in ([ModelNotFound("x")], [ModelOverloaded("x")] * 2):
        model = chain(clock, script, ["second"], attempts_per_model=2)
        answer, _ = await ask(model, clock)
        assert isinstance(answer, ModelResponse)
        assert text_of(answer.message["content"]) == "second"


async def test_the_last_error_is_what_is_raised(clock: FakeClock) -> None:
    model = chain(clock, [ModelNotFound("first")], [ModelNotFound("second")])
    error, _ = await ask(model, clock)
    assert str(error) == "second"


async def test_a_fallback_with_too_small_a_window_does_not_shorten_the_conversation(
    clock: FakeClock,
) -> None:
    """Else its limit would be learned for the model that was meant, and a summary made for it."""
    busy, full = (
        ModelOverloaded("x", retry_after_seconds=4000),
        ContextOverflow("x", limit_tokens=8),
    )
    assert (await ask(chain(clock, [busy], [full]), clock))[0] is busy
    answer, _ = await ask(chain(clock, [busy], [full], ["third"]), clock)
    assert isinstance(answer, ModelResponse)


async def test_a_model_that_was_named_has_no_fallback(clock: FakeClock) -> None:
    model = chain(clock, [ModelNotFound("x")], ["second"])
    request = ModelRequest(system="", messages=ASKED.messages, max_tokens=10, model="named")
    assert isinstance((await ask(model, clock, request))[0], ModelNotFound)


async def test_text_of_a_broken_attempt_is_taken_back(clock: FakeClock) -> None:
    class Breaking(ScriptedModel):
        async def respond(self, request: ModelRequest, *, on_text: Any = None) -> ModelResponse:
            if len(self.script) > 1:
                self.script.popleft()
                on_text("half of")
                raise ModelConnectionError("cut")
            return await super().respond(request, on_text=on_text)

    model = RetryingModel([Breaking("x", "x", "whole")], clock=clock, random=lambda: 0.5)
    _, shown = await ask(model, clock)
    assert shown == ["half of", "", "half of", "", "whole "]


async def test_a_refused_key_is_tried_once_in_each_pause(clock: FakeClock) -> None:
    scripted = ScriptedModel(ModelAuthError("no"), ModelAuthError("still no"), "at last", "again")
    model = RetryingModel(
        [scripted], clock=clock, random=lambda: 0.5, policy=RetryPolicy(auth_pause_seconds=60)
    )
    for _ in range(5):
        assert isinstance((await ask(model, clock))[0], ModelAuthError)
    assert len(scripted.requests) == 1
    assert await model.count_tokens(ASKED) is None
    assert await model.window_tokens() is None
    await clock.advance(61)
    errors = await asyncio.gather(*(model.respond(ASKED) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(e, ModelAuthError) for e in errors)
    assert len(scripted.requests) == 2
    await clock.advance(61)
    assert isinstance((await ask(model, clock))[0], ModelResponse)
    assert isinstance((await ask(model, clock))[0], ModelResponse)


async def test_another_trouble_after_a_refused_key_is_not_about_the_key(clock: FakeClock) -> None:
    """The one attempt after the pause is refused for its content: the key is not blamed again."""
    scripted = ScriptedModel(ModelAuthError("no"), ModelBadRequest("what?"), "fine")
    model = RetryingModel([scripted], clock=clock, random=lambda: 0.5)
    assert isinstance((await ask(model, clock))[0], ModelAuthError)
    await clock.advance(61)
    assert isinstance((await ask(model, clock))[0], ModelBadRequest)
    assert isinstance((await ask(model, clock))[0], ModelResponse)


async def test_a_side_task_that_is_refused_does_not_silence_the_chat(clock: FakeClock) -> None:
    """The key may be good for the chat's model, and not for the one that summarises."""
    scripted = ScriptedModel(
        ModelAuthError("not this one"), "chat", "chat", "side", ModelAuthError("no"), "side"
    )
    model = RetryingModel([scripted], clock=clock, random=lambda: 0.5)
    named = replace(ASKED, side_task=True, model="small")
    side = replace(ASKED, side_task=True)
    assert isinstance((await ask(model, clock, named))[0], ModelAuthError)
    assert isinstance((await ask(model, clock))[0], ModelResponse)
    assert isinstance((await ask(model, clock, named))[0], ModelAuthError)
    assert isinstance((await ask(model, clock))[0], ModelResponse)
    assert len(scripted.requests) == 3, "the refused one waits for its pause"
    assert isinstance((await ask(model, clock, side))[0], ModelResponse), "another model: plan B"
    assert isinstance((await ask(model, clock))[0], ModelAuthError)
    for refused in (side, named):
        assert isinstance((await ask(model, clock, refused))[0], ModelAuthError)
    assert len(scripted.requests) == 5, "what the chat is refused, side tasks do not try"
    await clock.advance(61)
    assert isinstance((await ask(model, clock, side))[0], ModelResponse), "one for all"


async def test_a_person_who_asks_anew_does_not_wait_for_the_pause(clock: FakeClock) -> None:
    """“/retry asks it again” is true at once; one attempt in five seconds, however many ask."""
    scripted = ScriptedModel(ModelAuthError("no"), ModelAuthError("still no"), "mended", "fine")
    model = RetryingModel([scripted], clock=clock, random=lambda: 0.5)
    assert isinstance((await ask(model, clock))[0], ModelAuthError)
    await clock.advance(6)
    model.ask_anew()
    assert isinstance((await ask(model, clock))[0], ModelAuthError)
    assert len(scripted.requests) == 2, "it was asked, and refused anew"
    began = clock.monotonic()
    model.ask_anew()
    assert isinstance((await ask(model, clock))[0], ModelResponse)
    assert clock.monotonic() - began == 5, "so long after the last attempt"
    model.ask_anew()
    assert isinstance((await ask(model, clock))[0], ModelResponse)


async def test_what_only_an_admin_can_mend_is_known_until_an_answer_comes(clock: FakeClock) -> None:
    scripted = ScriptedModel(
        ModelAuthError("no"), ModelConnectionError("cut"), ModelQuotaError("pay"), "at last"
    )
    model = RetryingModel(
        [scripted], clock=clock, random=lambda: 0.5, policy=RetryPolicy(attempts_per_model=1)
    )
    assert model.standing == Standing()
    refused_at = clock.now()
    await ask(model, clock)
    await clock.advance(2)
    await ask(model, clock)
    refused = ModelTrouble("scripted", "key", since=refused_at, last_at=refused_at)
    assert model.standing == Standing(troubles=(refused,)), "nobody was asked in the pause"
    await clock.advance(60)
    await ask(model, clock)
    assert model.standing.troubles == (refused,), "a broken connection says nothing of the key"
    await ask(model, clock)
    assert [(t.kind, t.since) for t in model.standing.troubles] == [("credit", clock.now())]
    await ask(model, clock)
    assert model.standing == Standing(answered_at=clock.now())


async def test_a_model_of_a_side_task_that_is_refused_is_named(clock: FakeClock) -> None:
    scripted = ScriptedModel(ModelAuthError("not this one"), "chat")
    model = RetryingModel([scripted], clock=clock, random=lambda: 0.5)
    await ask(model, clock, replace(ASKED, side_task=True, model="small"))
    await ask(model, clock)
    assert [trouble.model for trouble in model.standing.troubles] == ["small"]


async def test_a_stop_during_the_wait_passes(clock: FakeClock) -> None:
    model = chain(clock, [ModelOverloaded("x")])
    task = asyncio.ensure_future(model.respond(ASKED))
    while clock.next_wake_seconds is None:  # noqa: ASYNC110 - the fake clock has no event for it
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_all_models_are_closed(clock: FakeClock) -> None:
    models = [ScriptedModel(), ScriptedModel()]
    await RetryingModel(models, clock=clock, random=lambda: 0.5).aclose()
    assert [m.closed for m in models] == [1, 1]


def test_an_empty_chain_is_refused(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="at least one"):
        RetryingModel([], clock=clock, random=lambda: 0.5)
