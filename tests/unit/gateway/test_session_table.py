"""How sessions are listed: whole where there is room, and never wider than a usual terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forgetting import TOMBSTONE
from agent.sessions import SessionInfo
from gateway.cli.session_table import as_table, comes_from

ROOT = SessionInfo(
    id="s_0123456789abcdef0123",
    conversation_id="c_1",
    parent_session_id=None,
    link=None,
    source="telegram",
    model="m",
    title="A title that is quite a bit longer than needed",
    started_at=1_800_000_000.0,
    ended_at=None,
    end_reason=None,
    message_count=12,
    tokens=123_456,
)
CLOSED = replace(ROOT, id="s_ffff456789abcdef0123", ended_at=1.0, end_reason="compression")


def test_without_a_terminal_everything_is_whole() -> None:
    head, line, _ = as_table([ROOT, CLOSED]).splitlines()
    assert head.split() == ["ID", "SOURCE", "TITLE", "STARTED", "END", "MESSAGES", "TOKENS"]
    assert ROOT.id in line
    assert "telegram" in line
    assert line.count(":") == 2, "to the second"


@pytest.mark.parametrize("width", [72, 80, 100, 118, 200])
@pytest.mark.parametrize("title", [None, "", "short", "x" * 300, "line\none"])
def test_it_fits_the_terminal(width: int, title: str | None) -> None:
    infos = [replace(ROOT, title=title), replace(CLOSED, title=title)]
    lines = as_table(infos, width=width).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert all(line.startswith(info.id[:12]) for info, line in zip(infos, lines[1:], strict=True))
    if width == 200:
        assert "SOURCE" in lines[0]


@pytest.mark.parametrize("width", [1, 20, 60])
def test_below_what_is_possible_it_is_as_narrow_as_it_can_be(width: int) -> None:
    lines = as_table([ROOT, CLOSED], width=width).splitlines()
    assert max(map(len, lines)) < 72


def test_without_a_title_the_first_words_stand_there() -> None:
    unnamed = replace(ROOT, title=None)
    (_, line) = as_table([unnamed], {"c_1": "how do I tie\na bowline?"}).splitlines()
    assert "how do I tie a bowline?" in line
    (_, line) = as_table([unnamed], {"c_1": TOMBSTONE}).splitlines()
    assert "erased" not in line
    (_, line) = as_table([ROOT], {"c_1": "how do I"}).splitlines()
    assert "A title that is" in line


def test_what_a_branch_comes_from() -> None:
    assert comes_from([]) is None
    assert comes_from([ROOT]) is None
    child = replace(ROOT, parent_session_id="s_b7bf", link="branch")
    assert comes_from([child]) == "branch of s_b7bf (posthouse lineage s_b7bf)"
