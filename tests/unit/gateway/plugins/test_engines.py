"""Where a conversation's own engine comes from, and which tools it brings."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agent.context_engine import ContextEngine
from gateway.plugins.collected import Collected
from gateway.plugins.discovery import in_folders
from gateway.plugins.engines import EngineSource, schemas_of
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.session_db import SessionDb
from tests.fakes.clock import FakeClock
from tests.fakes.plugins import write_plugin
from tests.fakes.recording_engine import LOOK_UP, Recording, Uncopyable


class Cloning(Recording):
    """Both ways work; its own comes first."""

    cloned = 0

    def clone_for_agent(self) -> Recording:
        Cloning.cloned += 1
        return Cloning()

    def __deepcopy__(self, memo: dict[int, Any]) -> Recording:
        raise AssertionError("its own way comes first")


class BadClone(Recording):
    def clone_for_agent(self) -> Recording:
        return self


def source(
    tmp_path: Path, engine: ContextEngine | None, *, again: Any = None, **collected: Any
) -> EngineSource:
    write_plugin(tmp_path, "some")
    (found,) = in_folders(None, tmp_path)
    given = Collected(engine=engine, engine_name="recording", **collected)
    record = PluginRecord(found, PluginState.LOADED, collected=given, register_again=again)
    return EngineSource("recording", PluginManager([record]), FakeClock())


@pytest.mark.parametrize("kind", [Recording, Cloning, BadClone])
async def test_each_gets_its_own_and_nobody_the_plugins(tmp_path: Path, kind: Any) -> None:
    given = kind()
    engines = source(tmp_path, given)
    await engines.prepare()
    made = [await engines.make(name) for name in "abc"]
    assert len({id(engine) for engine in [*made, given]}) == 4
    assert all(isinstance(engine, Recording) for engine in made)
    assert engines.troubles() == []
    assert engines.summary() == "recording (plugin some, 1 tools)"


async def test_what_register_gave_anew_is_for_its_conversation_only(tmp_path: Path) -> None:
    def again() -> Collected:
        return Collected(engine=Uncopyable(), hooks=[("pre_llm_call", print)])

    engines = source(tmp_path, Uncopyable(), again=again)
    await engines.prepare()
    await engines.make("a")
    assert engines.hooks_of("a", "pre_llm_call") == [print]
    assert not engines.hooks_of("a", "other")
    assert not engines.hooks_of("b", "pre_llm_call")
    engines.moved("a", "b")
    assert engines.hooks_of("b", "pre_llm_call") == [print]
    engines.let_go("b")
    assert not engines.hooks_of("b", "pre_llm_call")
    assert not engines.commands_of("b")


async def test_the_one_that_no_conversation_took_is_ended(tmp_path: Path) -> None:
    engines = source(tmp_path, Recording())
    await engines.prepare()
    Recording.begin()
    await engines.close()
    assert [heard.method for heard in Recording.heard] == ["shutdown"]
    assert Recording.heard[0].thread.startswith("foreign engine")
    await engines.close()
    assert len(Recording.heard) == 1


async def test_from_where_on_it_compresses_is_known_before_a_conversation_has_one(
    tmp_path: Path,
) -> None:
    class Late(Recording):
        threshold_percent = 0.8

    engines = source(tmp_path, Late())
    assert engines.trigger.tokens(8000) is None, "nobody has looked yet"
    await engines.prepare()
    assert engines.trigger.tokens(8000) == 6400
    engines.trigger.told(8000, 5000)
    assert engines.trigger.tokens(8000) == 5000, "what an instance said itself counts"
    assert engines.trigger.tokens(9000) == 7200
    assert EngineSource("gone", PluginManager(), FakeClock()).trigger.tokens(8000) is None


@pytest.mark.parametrize("share", [None, "a lot", 0, -1, float("nan"), 75, True])
async def test_a_share_that_is_none_is_not_believed(tmp_path: Path, share: Any) -> None:
    odd = type("Odd", (Recording,), {"threshold_percent": share})
    engines = source(tmp_path, odd())
    await engines.prepare()
    assert engines.trigger.tokens(8000) is None
    assert engines.works


async def test_one_that_is_missing_says_why(tmp_path: Path) -> None:
    engines = EngineSource("nothing", PluginManager(), FakeClock())
    await engines.prepare()
    assert not engines.works
    assert await engines.make("a") is None
    (line,) = engines.troubles()
    assert "context.engine nothing is not used: no enabled plugin offers 'nothing'" in line
    assert engines.summary() == "built-in, in place of nothing"
    builtin = EngineSource("compressor", PluginManager(), FakeClock())
    assert (builtin.troubles(), builtin.summary(), builtin.works) == ([], "", False)


def test_tools_in_any_form() -> None:
    wrapped = {"type": "function", "function": LOOK_UP}
    odd = {"name": "odd", "parameters": [1]}
    given = [wrapped, LOOK_UP, odd, {"name": ""}, {"name": "a b"}, {}, 7, None, {"function": 3}]
    found = schemas_of(given)
    assert [tool.name for tool in found] == ["look_up", "odd"]
    assert all(tool.parameters["type"] == "object" for tool in found)
    assert schemas_of(None) == schemas_of({"name": "x"}) == ()


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"a": True}},
        {"properties": ["a"]},
        {"properties": {"a": {"enum": {1, 2}}}},
        {"properties": {"a": {"default": float("nan")}}},
        {"properties": {}, "required": "a"},
        {"properties": {"a": {"description": "x" * 40_000}}},
    ],
)
def test_parameters_that_no_model_takes_fail_no_request(parameters: dict[str, Any]) -> None:
    (tool,) = schemas_of([{"name": "odd", "parameters": parameters}])
    assert tool.parameters == {"type": "object", "properties": {}}


def test_half_a_letter_fails_no_request() -> None:
    half = {"a": {"type": "string", "description": "\ud800"}}
    (tool,) = schemas_of(
        [{"name": "x", "description": "\ud800", "parameters": {"properties": half}}]
    )
    assert json.dumps([tool.description, tool.parameters], ensure_ascii=False).encode()


def test_the_list_of_sessions_can_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    missing = SessionDb(path)
    assert missing.get_session("s_1") is None
    assert missing.list_sessions() == []
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE sessions (id, started_at)")
        database.execute("INSERT INTO sessions VALUES ('s_1', 1.0), ('s_2', 2.0)")
    database.close()
    assert missing.get_session("s_1") == {"id": "s_1", "started_at": 1.0}
    assert [row["id"] for row in missing.list_sessions(1)] == ["s_2"]
    assert missing.get_session("'; DROP TABLE sessions; --") is None
