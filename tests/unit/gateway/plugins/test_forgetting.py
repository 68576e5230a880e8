"""How plugins are asked to erase a person, and what is made of what they answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.context_engine import ContextEngine
from agent.errors import EngineError
from agent.forgetting import Answer, ClearedConversation, PluginAnswer
from gateway.plugins.collected import Collected
from gateway.plugins.discovery import in_folders
from gateway.plugins.engines import EngineSource
from gateway.plugins.forgetting import FORGET_SECONDS, PluginForgetting
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.names import BUILT_IN_ENGINE
from gateway.plugins.providers import ProviderSource
from tests.fakes.clock import FakeClock
from tests.fakes.plugins import write_plugin
from tests.fakes.recording_engine import Recording


class Forgetful(Recording):
    """Says what the test wants; older than the keywords that it does not know."""

    says: ClassVar[Any] = True
    asked: ClassVar[list[tuple[str, Sequence[str]]]] = []
    gate: ClassVar[threading.Event] = threading.Event()

    def on_forget_person(self, owner: str, *, session_ids: Sequence[str]) -> bool | None:  # type: ignore[override]
        Forgetful.asked.append((owner, session_ids))
        if isinstance(self.says, BaseException):
            raise self.says
        if self.says == "hangs":
            self.gate.wait(20)
        return self.says  # type: ignore[no-any-return]

    def on_forget_sessions(self, session_ids: Sequence[str]) -> bool | None:  # type: ignore[override]
        return self.on_forget_person("nobody", session_ids=session_ids)

    def shutdown(self) -> None:
        raise RuntimeError("it was never begun")


OLD = [ClearedConversation("a", ("s1", "s2")), ClearedConversation("b", ("s3",))]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Forgetful.says, Forgetful.gate = True, threading.Event()
    Forgetful.asked.clear()


def plugins(
    tmp_path: Path, engine: ContextEngine, clock: FakeClock | None = None, **more: Any
) -> PluginForgetting:
    write_plugin(tmp_path, "some")
    (found,) = in_folders(None, tmp_path)
    collected = Collected(engine=engine, engine_name="recording")
    record = PluginRecord(found, PluginState.LOADED, collected=collected)
    manager, clock = PluginManager([record]), clock or FakeClock()
    engines = EngineSource("recording", manager, clock)
    return PluginForgetting(engines, ProviderSource(None, manager, clock), "/home/hermes", **more)


async def ask(forgetting: PluginForgetting) -> list[PluginAnswer]:
    return await forgetting.forget(
        "telegram:7", keys=["key"], conversations=["conv"], sessions=["s1"]
    )


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        (True, Answer.ERASED),
        (None, Answer.KEEPS),
        (False, Answer.FAILED),
        ("yes", Answer.FAILED),
        (OSError("disk full"), Answer.FAILED),
        (SystemExit(1), Answer.FAILED),
        (EngineError("by itself"), Answer.FAILED),
    ],
)
async def test_what_it_says_is_what_people_hear(tmp_path: Path, says: Any, answer: Answer) -> None:
    Forgetful.says = says
    forgetting = plugins(tmp_path, Forgetful())
    assert forgetting.can() == ["recording"]
    assert await ask(forgetting) == [PluginAnswer("recording", answer)]
    assert Forgetful.asked == [("telegram:7", ["s1"])]
    assert await forgetting.forget_sessions(OLD) == [PluginAnswer("recording", answer)]
    assert Forgetful.asked[1:] == [("nobody", ["s1", "s2", "s3"])]


async def test_one_without_the_method_is_named_and_no_instance_made(tmp_path: Path) -> None:
    class Alone(Recording):
        def __deepcopy__(self, memo: dict[int, Any]) -> Recording:
            raise AssertionError("nobody needs one")

    forgetting = plugins(tmp_path, Alone())
    assert forgetting.can() == []
    assert await ask(forgetting) == [PluginAnswer("recording", Answer.KEEPS)]
    assert await forgetting.forget_sessions(OLD) == [PluginAnswer("recording", Answer.KEEPS)]


async def test_one_that_hangs_is_waited_for_so_long(tmp_path: Path) -> None:
    Forgetful.says = "hangs"
    clock = FakeClock()
    forgetting = plugins(tmp_path, Forgetful(), clock)

    class Impatient(FakeClock):
        async def sleep(self, seconds: float) -> None:
            assert seconds == FORGET_SECONDS

    clock.sleep = Impatient().sleep  # type: ignore[method-assign]
    assert await ask(forgetting) == [PluginAnswer("recording", Answer.FAILED)]
    Forgetful.gate.set()


async def test_what_is_at_work_there_ends_first(tmp_path: Path) -> None:
    order: list[Any] = []

    async def put_aside(conversations: Sequence[str], keys: Sequence[str]) -> None:
        order.append((conversations, keys, list(Forgetful.asked)))

    forgetting = plugins(tmp_path, Forgetful(), put_aside=put_aside)
    await ask(forgetting)
    assert order == [(["conv"], ["key"], [])]
    assert len(Forgetful.asked) == 1
    order.clear()
    Forgetful.asked.clear()
    await forgetting.forget_sessions(OLD)
    assert order == [(["a", "b"], (), [])]


async def test_one_that_is_configured_and_not_there_today_is_asked_about_old_ones_again() -> None:
    """It did not load tonight: what it keeps of them was struck out, and stayed for ever."""
    manager, clock = PluginManager([]), FakeClock()
    forgetting = PluginForgetting(
        EngineSource("recording", manager, clock), ProviderSource("mine", manager, clock), "/home"
    )
    assert await ask(forgetting) == []
    assert await forgetting.forget_sessions(OLD) == [
        PluginAnswer("recording", Answer.FAILED),
        PluginAnswer("mine", Answer.FAILED),
    ]


async def test_where_none_is_configured_nobody_is_asked() -> None:
    manager, clock = PluginManager([]), FakeClock()
    forgetting = PluginForgetting(
        EngineSource(BUILT_IN_ENGINE, manager, clock), ProviderSource(None, manager, clock), "/home"
    )
    assert await forgetting.forget_sessions(OLD) == []
