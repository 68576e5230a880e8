"""The lossless engine forgets a person: whole conversations, to the last byte, over any crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.context_engine.lossless import forgetting
from plugins.context_engine.lossless.database import FILE_NAME, Database
from plugins.context_engine.lossless.forgetting import _take_out
from plugins.context_engine.lossless.schema import LosslessError
from tests.fakes.lossless import Message, ScriptedAsk, call, inside, lossless, talk

WORD = b"quokkaphone"


def theirs(turns: int = 20) -> list[Message]:
    return [{**m, "content": f"quokkaphone {m['content']}"} for m in talk(turns)]


def told(home: Path, session_id: str, key: str, messages: list[Message], **how: Any) -> Any:
    """An engine that has kept and compressed this; the list that came of it."""
    engine = lossless(home, ScriptedAsk("A summary with quokkaphone in it."))
    engine.on_session_start(session_id, conversation_id=key, **how)
    messages = engine.compress(messages)
    engine.on_turn_complete(messages)
    return engine, messages


def traces(home: Path) -> list[str]:
    return [f.name for f in sorted(home.glob(f"{FILE_NAME}*")) if WORD in f.read_bytes().lower()]


def forget(home: Path, *keys: str, sessions: tuple[str, ...] = ()) -> bool | None:
    """As the host asks: an instance that is in no conversation."""
    engine = lossless(home)
    return engine.on_forget_person("telegram:7", conversation_ids=keys, session_ids=sessions)


@pytest.mark.parametrize("by", ["session", "key"])
def test_no_byte_is_left_and_the_others_find_all_of_theirs(tmp_path: Path, by: str) -> None:
    engine, _ = told(tmp_path, "s1", "mine", theirs())
    other = lossless(tmp_path, ScriptedAsk("lions"))
    other.on_session_start("o1", conversation_id="other")
    other.on_turn_complete(other.compress(talk(20)))
    before = call(other, "lossless_search", query="question 3"), call(other, "lossless_describe")
    assert "question 3" in str(before)
    engine.shutdown()
    assert traces(tmp_path)
    assert forget(tmp_path, "mine") if by == "key" else forget(tmp_path, sessions=("s1",))
    assert traces(tmp_path) == []  # while another instance has the file open
    after = call(other, "lossless_search", query="question 3"), call(other, "lossless_describe")
    assert after == before
    again = lossless(tmp_path)
    again.on_session_start("s1", conversation_id="mine")
    assert call(again, "lossless_describe")["originals_kept"] == 0
    again.on_turn_complete(talk(2))
    assert call(again, "lossless_describe")["originals_kept"] == 4


def test_an_instance_that_comes_back_late_brings_nothing_back(tmp_path: Path) -> None:
    late, messages = told(tmp_path, "s1", "mine", theirs())
    _, number = inside(late)
    assert forget(tmp_path, sessions=("s1",))
    with pytest.raises(LosslessError, match="was forgotten"):
        late.on_turn_complete([*messages, {"role": "user", "content": "quokkaphone"}])
    with pytest.raises(LosslessError, match="was forgotten"):
        late.compress(theirs(30))
    assert traces(tmp_path) == []
    # Nor does it get at whoever comes next: a number is given once.
    new = lossless(tmp_path)
    new.on_session_start("s2", conversation_id="mine")
    assert inside(new)[1] != number


def test_cut_off_behind_the_rows_the_next_call_does_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    other = lossless(tmp_path)
    other.on_session_start("o1", conversation_id="other")
    other.on_turn_complete(talk(20))
    found = call(other, "lossless_search", query="question 3")
    assert "question 3" in str(found)
    database = Database(tmp_path / FILE_NAME)
    with database.reading() as connection:
        connection.execute("PRAGMA secure_delete = OFF")
    with database.writing() as connection:
        _take_out(connection, [1])
    database.close()
    assert traces(tmp_path)  # in pages that are free
    assert call(other, "lossless_search", query="question 3") != found
    monkeypatch.setattr(forgetting, "AT_ONCE", 7)
    assert forget(tmp_path, sessions=("s1",))
    assert traces(tmp_path) == []
    assert call(other, "lossless_search", query="question 3") == found


def test_a_branch_of_what_is_forgotten_goes_on(tmp_path: Path) -> None:
    engine, messages = told(tmp_path, "s1", "group", theirs())
    engine.shutdown()
    assert forget(tmp_path, sessions=("s1",))
    branch = lossless(tmp_path)
    branch.on_session_start(
        "b1", conversation_id="group", old_session_id="s1", boundary_reason="branch"
    )
    cleaned = [{**m, "content": "[erased]"} for m in messages]
    branch.on_turn_complete(cleaned)
    assert branch.compress([*cleaned, *talk(30)])
    assert traces(tmp_path) == []


def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path) -> None:
    assert forget(tmp_path, "mine") is True
    assert list(tmp_path.iterdir()) == []
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    assert forget(tmp_path, "", sessions=("nobody's",)) is True
    assert traces(tmp_path)


def test_a_file_that_can_not_be_used_is_no_yes(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 4096)
    with pytest.raises(LosslessError):
        forget(tmp_path, "mine")
