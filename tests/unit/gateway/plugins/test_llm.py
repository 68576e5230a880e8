"""`ctx.llm`: a plugin's own question goes to the configured side model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agent.auxiliary_client import LoopSideModel, TaskSettings, install
from agent.errors import ModelError
from agent.llm.background import in_daemon_thread
from gateway.plugins.llm import PluginLlm
from tests.fakes.scripted_model import ScriptedModel


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    install(None)
    yield
    install(None)


@pytest.mark.parametrize("asked", ["hi", [{"role": "user", "content": "hi"}]])
async def test_it_asks_and_waits(asked: Any) -> None:
    model = ScriptedModel("said", "said again", "and again")
    install(
        LoopSideModel(model, asyncio.get_running_loop()),
        tasks={"my-plug": TaskSettings("of the task")},
    )
    plain, own = PluginLlm("my-plug", None), PluginLlm("my-plug", "of the entry")
    texts = [
        await in_daemon_thread(call, "test")
        for call in (
            lambda: plain.complete(asked, temperature=0.1).text,
            lambda: own.complete(asked, max_tokens=5).text,
            lambda: own.complete(asked, model="of the call").text,
        )
    ]
    assert texts == ["said", "said again", "and again"]
    assert [r.model for r in model.requests] == ["of the task", "of the entry", "of the call"]
    assert model.requests[0].messages[0]["content"] == "hi"


def test_without_a_model_it_says_so() -> None:
    with pytest.raises(ModelError):
        PluginLlm("x", None).complete("hi")
