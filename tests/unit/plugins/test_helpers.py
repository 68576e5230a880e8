"""Owns the tests of small helpers that plugins import from their host."""

import asyncio
import importlib
import json
import sqlite3
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import brought
from plugins import hermes_compat


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_tools_answer_in_json(home: Path) -> None:
    registry = module("tools.registry")
    assert json.loads(registry.tool_error(ValueError("nö"), code=4)) == {"error": "nö", "code": 4}
    assert registry.tool_result({"a": "ü"}) == '{"a": "ü"}'
    assert json.loads(registry.tool_result(ok=True, where=Path("x"))) == {"ok": True, "where": "x"}
    assert registry.tool_result([]) == "[]"


@dataclass
class Part:
    type: str = "text"
    text: str = "of an object"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        (
            [{"type": "text", "text": "a"}, "b", None, {"type": "output_text", "text": "c"}],
            "a\nb\nc",
        ),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "input_audio"}], ""),
        ([{"type": "input_image", "text": "seen?"}], ""),
        ({"content": "inner"}, "inner"),
        ({"type": "thing"}, ""),
        ([Part()], "of an object"),
        (7, "7"),
        ([{"type": None, "text": 5}], ""),
    ],
)
def test_the_text_of_a_content(home: Path, content: object, text: str) -> None:
    assert module("agent.message_content").flatten_message_text(content) == text


def test_fenced_memories_are_taken_out(home: Path) -> None:
    clean = module("agent.memory_manager").sanitize_context
    note = "[System note: The following is recalled memory context, NOT new user input.]\n"
    assert clean(f"a<memory-context>\n{note}secret\n</memory-context>b") == "ab"
    assert clean("<MEMORY-CONTEXT >x</memory-context>y< / memory-context >z") == "yz"
    assert clean("open <memory-context> end") == "open  end"
    assert clean(f"{note}text") == "text"
    assert clean(None) == ""
    assert clean(brought.fenced("notes", "Ada likes tea") + "hello") == "hello"


@given(st.text(alphabet="<>/ab -", max_size=30), st.text(alphabet="<>/ab -", max_size=30))
def test_nothing_of_a_fence_is_left(before: str, inside: str) -> None:
    hermes_compat.install()
    try:
        clean = module("agent.memory_manager").sanitize_context
        left = clean(f"{before}<memory-context>{inside}MEMORY</memory-context>")
        assert "MEMORY" not in left
        assert clean(left) == left
    finally:
        hermes_compat.uninstall()


def test_a_long_text_of_openings_takes_no_time(home: Path) -> None:
    text = "<memory-context>" * 20_000 + "<" * 20_000 + "[System note: " * 20_000
    assert "memory-context" not in module("agent.memory_manager").sanitize_context(text)


def test_what_a_person_said_is_what_stands_there(home: Path) -> None:
    extract = module("agent.skill_commands").extract_user_instruction_from_skill_message
    assert extract("hello") == "hello"
    assert extract(["parts"]) is None


def test_json_is_written_whole_or_not_at_all(home: Path) -> None:
    write, file = module("utils").atomic_json_write, home / "deep" / "x.json"
    write(file, {"ü": 1})
    assert file.read_text() == '{\n  "ü": 1\n}'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    write(str(file), [2], indent=None, sort_keys=True)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("[2]", 0o640)
    with pytest.raises(TypeError):
        write(file, object())
    link = home / "link.json"
    link.symlink_to(file)
    write(link, {}, mode=0o644)
    assert link.is_symlink()
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("{}", 0o644)
    assert [f.name for f in file.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("said", "on"), [("1", True), (" TRUE ", True), ("on", True), ("0", False), ("no", False)]
)
def test_variables_that_mean_yes(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: str, on: bool
) -> None:
    monkeypatch.setenv("SOME_SWITCH", said)
    utils = module("utils")
    assert utils.env_var_enabled("SOME_SWITCH") is on
    assert utils.env_var_enabled("NO_SUCH_SWITCH", "yes") is True
    assert utils.env_var_enabled("NO_SUCH_SWITCH") is False


def test_files_with_secrets_and_those_of_the_gateway_are_not_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ours = home.parent
    refuse = module("agent.file_safety").raise_if_read_blocked
    link = tmp_path / "innocent.txt"
    link.symlink_to(ours / "state.db")
    for path in (
        *(ours / "state.db", ours / "config.yaml", home / "honcho.json", ours, link),
        *("~/.ssh/id_ed25519", "~/.aws/credentials", "~/project/.env", "~/.env.local", "~/.envrc"),
        *("/proc/self/environ", tmp_path / "x" / ".." / ".netrc", "~nobody-is-called-so/x", "a\0b"),
    ):
        with pytest.raises(ValueError, match=r"not read|not be read"):
            refuse(path)
    for path in (
        *(ours / "workspace" / "x.txt", ours / "attachments" / "ab" / "x", tmp_path / "notes.md"),
        *("~/project/.env.example", "~/environment.txt"),
    ):
        refuse(path)


def test_a_database_gets_a_write_ahead_log(home: Path) -> None:
    apply = module("hermes_state").apply_wal_with_fallback
    with sqlite3.connect(home / "memory.db") as database:
        assert apply(database, db_label="memory") == "wal"
        assert apply(database) == "wal"
    database.close()
    database = sqlite3.connect(":memory:")
    assert apply(database) == "memory"  # there is no file to write ahead of
    database.close()


def test_a_locked_database_is_no_file_system_without_shared_memory(home: Path) -> None:
    held = sqlite3.connect(home / "memory.db", isolation_level=None)
    held.execute("CREATE TABLE t (x)")
    held.execute("BEGIN EXCLUSIVE")
    other = sqlite3.connect(home / "memory.db", timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        module("hermes_state").apply_wal_with_fallback(other)
    other.close()
    held.close()


def test_a_slot_is_filled_once(home: Path) -> None:
    utils = module("plugins.plugin_utils")
    slot: Any = utils.SingletonSlot[str]()
    made: list[str] = []
    begin = threading.Barrier(8)

    def make() -> str:
        made.append("made")
        return "value"

    def ask() -> None:
        begin.wait()
        assert slot.get(make) == "value"

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["made"]
    assert (slot.peek(), slot.reset(), slot.peek()) == ("value", None, None)
    assert slot.get(lambda: None) is None
    assert slot.get(make) is None  # None is a value as well


def test_what_fails_to_be_made_is_tried_again(home: Path) -> None:
    answers: list[Any] = [ValueError("not yet"), 5, 6]

    def make() -> int:
        answer = answers.pop(0)
        if isinstance(answer, ValueError):
            raise answer
        return int(answer)

    get = module("plugins.plugin_utils").lazy_singleton(make)
    with pytest.raises(ValueError, match="not yet"):
        get()
    assert (get(), get()) == (5, 5)
    get.reset()
    assert get() == 6


async def test_a_coroutine_goes_to_the_loop_of_another_thread(home: Path) -> None:
    schedule = module("agent.async_utils").safe_schedule_threadsafe

    async def answer() -> int:
        return 7

    loop = asyncio.get_running_loop()
    future = await asyncio.to_thread(lambda: schedule(answer(), loop))
    assert await asyncio.wrap_future(future) == 7
    closed = asyncio.new_event_loop()
    closed.close()
    assert schedule(answer(), closed) is None  # and no warning: it was closed
    assert schedule(answer(), None) is None
