"""The lossless engine erases conversations that the host has deleted for their age."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.context_engine.lossless import forgetting
from plugins.context_engine.lossless.database import FILE_NAME
from plugins.context_engine.lossless.schema import LosslessError
from tests.fakes.lossless import call, inside, lossless, talk
from tests.unit.plugins.lossless.test_forgetting import WORD, theirs, told, traces


def clear(home: Path, *sessions: str) -> bool | None:
    """As the host asks: an instance that is in no conversation."""
    return lossless(home).on_forget_sessions(list(sessions))


def goes_on(home: Path, session_id: str, key: str, **how: str) -> None:
    """More of a conversation, in another session of the host's."""
    told(home, session_id, key, theirs(25), **how)[0].shutdown()


def test_no_byte_is_left_and_newer_ones_of_the_same_place_find_all_of_theirs(
    tmp_path: Path,
) -> None:
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    goes_on(tmp_path, "s2", "mine", old_session_id="s1", boundary_reason="compression")
    newer = lossless(tmp_path)
    newer.on_session_start("n1", conversation_id="mine")
    newer.on_turn_complete(newer.compress(talk(20)))
    found = call(newer, "lossless_search", query="question 3"), call(newer, "lossless_describe")
    assert "question 3" in str(found)
    assert traces(tmp_path)
    assert clear(tmp_path, "s1", "s2")
    assert traces(tmp_path) == []  # while another instance has the file open
    after = call(newer, "lossless_search", query="question 3"), call(newer, "lossless_describe")
    assert after == found
    assert clear(tmp_path, "s1", "s2"), "once more, as after a crash"


def test_a_branch_goes_with_what_it_was_forked_from(tmp_path: Path) -> None:
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    goes_on(tmp_path, "b1", "mine", old_session_id="s1", boundary_reason="branch")
    assert clear(tmp_path, "b1", "s1")
    assert traces(tmp_path) == []


def test_what_goes_on_under_another_session_stays_until_that_goes_too(tmp_path: Path) -> None:
    """Whatever the host took for two conversations: what is spoken in loses nothing."""
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    goes_on(tmp_path, "s2", "mine", old_session_id="s1", boundary_reason="compression")
    again = lossless(tmp_path)
    again.on_session_start("s2", conversation_id="mine")
    before = call(again, "lossless_describe")
    assert clear(tmp_path, "s1")
    assert call(again, "lossless_describe") == before
    assert clear(tmp_path, "s2")
    assert traces(tmp_path) == []


def test_an_instance_that_comes_back_late_brings_nothing_back(tmp_path: Path) -> None:
    late, messages = told(tmp_path, "s1", "mine", theirs())
    _, number = inside(late)
    assert clear(tmp_path, "s1")
    with pytest.raises(LosslessError, match="was forgotten"):
        late.on_turn_complete([*messages, {"role": "user", "content": WORD.decode()}])
    assert traces(tmp_path) == []
    new = lossless(tmp_path)
    new.on_session_start("s2", conversation_id="mine")
    assert inside(new)[1] != number


def test_cut_off_behind_the_rows_the_next_call_does_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    real = forgetting._index_some

    def dies(*args: object) -> int | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(forgetting, "_index_some", dies)
    with pytest.raises(KeyboardInterrupt):
        clear(tmp_path, "s1")
    monkeypatch.setattr(forgetting, "_index_some", real)
    assert clear(tmp_path, "s1")
    assert traces(tmp_path) == []


def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path) -> None:
    assert clear(tmp_path, "s1") is True
    assert list(tmp_path.iterdir()) == []
    told(tmp_path, "s1", "mine", theirs())[0].shutdown()
    assert clear(tmp_path, "nobody's") is True
    assert clear(tmp_path) is True
    assert traces(tmp_path)


def test_a_file_that_can_not_be_used_is_no_yes(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"x" * 4096)
    with pytest.raises(LosslessError):
        clear(tmp_path, "s1")
