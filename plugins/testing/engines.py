"""Owns what is promised of every context engine: `EngineSuite`, for authors' tests to inherit."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from agent.auxiliary_client import install
from agent.context_engine import ContextEngine
from agent.ports import ModelResponse
from plugins.testing import conversations
from plugins.testing.recorder import registered, taken_by

WINDOW = 8_000
SECONDS = 30.0


class SummaryModel:
    """Stands in for the side model: a short summary of whatever it is asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.down = False

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        """As `agent.ports.SideModel`."""
        self.prompts.append(prompt)
        if self.down:
            raise ConnectionError("the side model can not be reached")
        text = "## Summary\nThey talked about harbours, ledgers and what to decide."
        return ModelResponse({"role": "assistant", "content": text}, "end_turn", None, "stand-in")


class EngineSuite:
    """Give `register` or override `make`; run by pytest."""

    register: ClassVar[Any]
    """Wrapped in ``staticmethod``."""
    settings: ClassVar[Any] = {}
    shortens: ClassVar[bool] = True
    """Does it make `conversations.long` shorter than its window by itself?"""

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hermes_home = tmp_path / "hermes"
        self.hermes_home.mkdir()
        monkeypatch.setenv("HERMES_HOME", str(self.hermes_home))

    @pytest.fixture(autouse=True)
    def model(self) -> Iterator[SummaryModel]:
        """What `call_llm` reaches."""
        stand_in = SummaryModel()
        install(stand_in)
        yield stand_in
        install(None)

    def make(self) -> Any:
        """An engine as it comes out of `register`."""
        engine = registered(type(self).register, self.settings).engine
        assert engine is not None, "register(ctx) registered no context engine"
        return engine

    def begun(self, session_id: str = "session-1") -> Any:
        """An engine in its conversation, as the host begins it."""
        engine = self.make()
        _call(engine.update_model, model="a-model", context_length=WINDOW, provider="anthropic")
        _call(
            engine.on_session_start,
            session_id,
            hermes_home="",
            platform="telegram",
            model="a-model",
            context_length=WINDOW,
            conversation_id="key-1",
        )
        return engine

    def compressed(self, engine: Any, messages: list[dict[str, Any]], **more: Any) -> Any:
        """One compression, with those keywords that the engine takes, on another thread."""
        tokens = conversations.rough_tokens(messages)
        return _elsewhere(
            lambda: _call(engine.compress, messages, current_tokens=tokens, force=True, **more)
        )

    # --- what it is -----------------------------------------------------------------------------

    def test_it_is_an_engine_with_a_name_that_can_be_chosen(self) -> None:
        engine = self.make()
        assert isinstance(engine, ContextEngine)
        assert re.fullmatch(r"[a-z0-9_-]{1,64}", engine.name)
        assert engine.name != "compressor", "that is the built-in one"

    def test_every_conversation_can_have_its_own(self) -> None:
        engine = self.make()
        own = _own(engine, self.make)
        assert isinstance(own, ContextEngine)
        assert own is not engine
        own.context_length, engine.context_length = 1, 2
        assert (own.context_length, engine.context_length) == (1, 2)

    def test_it_says_how_it_is(self) -> None:
        status = self.begun().get_status()
        assert json.loads(json.dumps(status)) == status

    # --- when -----------------------------------------------------------------------------------

    def test_it_decides_by_numbers_and_without(self) -> None:
        engine = self.begun()
        for tokens in (None, 0, 1, WINDOW * 10):
            assert isinstance(engine.should_compress(tokens), bool)
        assert engine.should_compress(0) is False

    def test_it_takes_the_usage_of_any_answer(self) -> None:
        engine = self.begun()
        engine.update_from_response({})
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        engine.update_from_response(usage)
        engine.update_from_response({**usage, "cache_read_tokens": 90, "reasoning_tokens": 3})

    # --- what comes of it -----------------------------------------------------------------------

    def test_a_short_list_stays_as_it_is(self) -> None:
        messages = conversations.short()
        assert _plain(self.compressed(self.begun(), copy.deepcopy(messages))) == messages

    def test_a_long_list_gets_shorter_and_stays_a_conversation(self) -> None:
        messages = conversations.long()
        given = self.compressed(self.begun(), copy.deepcopy(messages))
        assert isinstance(given, list)
        assert all(isinstance(m, dict) and m.get("role") for m in given)
        assert conversations.orphans(given) == []
        assert given[-1]["content"] == messages[-1]["content"], "the question has to stay"
        if self.shortens:
            before, after = map(conversations.rough_tokens, (messages, given))
            assert after < before

    def test_it_goes_on_with_what_it_gave(self) -> None:
        engine = self.begun()
        given = self.compressed(engine, conversations.long())
        _call(
            engine.on_session_start,
            "session-2",
            boundary_reason="compression",
            old_session_id="session-1",
            platform="telegram",
            conversation_id="key-1",
        )
        more = [*given, {"role": "assistant", "content": "This."}, *conversations.long(20)[1:]]
        again = self.compressed(engine, copy.deepcopy(more))
        assert again[-1]["content"] == more[-1]["content"]
        assert conversations.orphans(again) == []

    def test_without_its_model_it_raises_or_leaves_a_conversation(
        self, model: SummaryModel
    ) -> None:
        """Never a list with a hole in it that says nothing."""
        model.down = True
        engine, messages = self.begun(), conversations.long()
        try:
            given = self.compressed(engine, copy.deepcopy(messages))
        except Exception:  # noqa: BLE001  (any: the host shows the reason and goes on as before)
            return
        assert given[-1]["content"] == messages[-1]["content"]

    # --- its tools ------------------------------------------------------------------------------

    def test_its_tools_are_described(self) -> None:
        names = []
        for schema in self.begun().get_tool_schemas():
            bare = schema.get("function", schema)
            names.append(bare["name"])
            json.dumps(bare)
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", bare["name"])
        assert len(set(names)) == len(names)

    def test_a_call_of_an_unknown_tool_is_an_answer(self) -> None:
        given = _call(self.begun().handle_tool_call, "no_such_tool", {}, messages=[])
        assert "error" in json.loads(given)

    # --- the end --------------------------------------------------------------------------------

    def test_it_says_whether_it_can_forget_a_person(self) -> None:
        """On an instance that is in no conversation, and once more, as after a crash."""
        engine = _own(self.make(), self.make)
        offered = {
            "conversation_ids": ["nobody's"],
            "session_ids": ["session-0"],
            "hermes_home": str(self.hermes_home),
        }
        for _ in range(2):
            said = _elsewhere(lambda: _call(engine.on_forget_person, "telegram:7", **offered))
            assert said in (True, False, None)

    def test_it_says_whether_it_can_forget_old_conversations(self) -> None:
        """As above; what is asked may be nothing that it knows."""
        engine = _own(self.make(), self.make)
        home = str(self.hermes_home)
        for _ in range(2):
            said = _elsewhere(
                lambda: _call(engine.on_forget_sessions, ["session-0"], hermes_home=home)
            )
            assert said in (True, False, None)

    def test_a_conversation_ends_and_another_begins(self) -> None:
        engine = self.begun()
        engine.on_session_end("session-1", conversations.short())
        engine.on_session_reset()
        assert engine.compression_count == 0
        _call(engine.on_session_start, "session-2", old_session_id="session-1", platform="telegram")


def _call(method: Callable[..., Any], *arguments: Any, **offered: Any) -> Any:
    return method(*arguments, **taken_by(method, offered))


def _elsewhere(call: Callable[[], Any]) -> Any:
    """On a thread of its own, as the host does; one that hangs fails the test."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append((True, call()))
        except BaseException as exc:  # noqa: BLE001  (raised again by the test's own thread)
            box.append((False, exc))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert box, f"it has not come back for {SECONDS:g} s"
    fine, given = box[0]
    if not fine:
        raise given
    return given


def _own(engine: Any, make: Callable[[], Any]) -> Any:
    """As the host gets one for each conversation."""
    clone = getattr(engine, "clone_for_agent", None)
    if callable(clone):
        return clone()
    try:
        return copy.deepcopy(engine)
    except Exception:  # noqa: BLE001  (whatever a copy fails by)
        return make()


def _plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in m.items() if not k.startswith("_")} for m in messages]
