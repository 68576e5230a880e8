"""`posthouse sessions show`: the head, the bar, the JSON, ids that are cut short."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.messages import Draft, Keep
from agent.ports import Usage
from agent.sessions import CompressionState, SessionPrefix, SplitRequest, TurnOpening
from gateway.cli.main import main
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds

KEY = '["console","0","0",null,"1"]'
MANIFEST = {
    "mode": "summary",
    "covered": {"messages": 2, "user_messages": 1},
    "user_messages": {"quoted": [1], "listed": []},
    "identifiers": {"kept": 3, "complete": True},
    "pruned": 0,
    "tokens_before": 9_000,
    "tokens_after": 2_000,
    "rows_before": 5,
    "rows_after": 4,
    "cost": {
        "models": ["claude-haiku-5-5\x1b[2J"],
        "calls": 1,
        "input_tokens": 9_000,
        "output_tokens": 500,
        "seconds": 3.21,
    },
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conversation of two sessions, the second measured, and a second conversation."""
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    asyncio.run(_fill(tmp_path / "state.db"))
    return tmp_path


async def _fill(database: Path) -> None:
    store = await open_store(database, clock=FakeClock(), ids=SequentialIds())
    prefix = SessionPrefix("console", "claude-sonnet-5-5", "be kind \x1b[2J")
    for number, text in enumerate(("hello", "please look 你好"), 1):
        opening = TurnOpening(KEY, "console:1", (), _said("user", text), prefix)
        ticket = await store.begin_turn(opening)
        await store.finish_turn(
            ticket,
            ticket.session_id,
            "done",
            final=_said("assistant", f"answer {number} \x1b[31m" + "long " * 400),
            anchor_usage=Usage(4_000, 500, 3_000, 1_000, cache_miss="expired"),
        )
        if number == 1:
            loaded = await store.load(ticket.session_id)
            request = SplitRequest(
                loaded.session.conversation_id,
                loaded.session.id,
                loaded.session.revision,
                loaded.last_row_id,
                (Draft(_said("user", "a summary").message, kind="summary"), Keep(2)),
                CompressionState(count=1),
                manifest=MANIFEST,
            )
            assert (await store.split(request)).applied
    await store.start_conversation("other", "console:2", prefix)
    await store.close()


def _said(role: Any, text: str) -> Draft:
    return Draft({"role": role, "content": text})


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["sessions", "show", *arguments]) == 0
    return capsys.readouterr().out


def test_the_head_says_what_fills_the_window(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = show(capsys, "s_2")
    lines = said.splitlines()
    assert lines[0] == "s_2: live, console, claude-sonnet-5-5"
    assert "continuation of s_1" in lines
    assert "window: 8,500 of 1,000,000 tokens (0.8 %)" in lines
    assert "8,000 read, 500 written; since then 0 messages with about 0" in said
    assert "compression from 200,000 tokens (20 % of the window)" in said
    assert "threshold 200,000, hygiene 850,000" in said
    assert "room: 991,500 tokens, the next answer at most 8,192 of them" in said
    assert "by summary: 5 messages with 9,000 tokens became 4 with 2,000 (messages alone)." in said
    assert "2 messages went into the summary, 1 of them the user's: all quoted" in said
    assert "about $0.0" in said
    assert "2 requests, 16,000 tokens read (38 % from the cache)" in said
    assert "cache misses: 2 expired" in said
    assert "▰" not in said, "no bars without a terminal"
    assert "\x1b" not in said
    assert [line.split("]")[0] for line in lines[-4:]] == ["[3", "[4", "[5", "[6"]


def test_the_parts_in_text_and_json_are_the_same_sum(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = json.loads(show(capsys, "s_2", "--json"))["context"]
    assert sum(context["parts"].values()) == context["estimated_tokens"]
    said = show(capsys, "s_2")
    assert f"estimate of everything: {context['estimated_tokens']:,}" in said
    for tokens in filter(None, context["parts"].values()):
        assert f"{tokens:,}" in said


def test_json_is_the_session_with_its_columns(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = json.loads(show(capsys, "s_2", "--json"))
    assert (shown["id"], shown["parent_session_id"], shown["link"]) == (
        "s_2",
        "s_1",
        "continuation",
    )
    assert (shown["source"], shown["model"], shown["ended_at"]) == (
        "console",
        "claude-sonnet-5-5",
        None,
    )
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant", "user", "assistant"]
    assert [m["kind"] for m in shown["messages"]] == ["summary", None, None, None]
    assert {
        "id",
        "session_id",
        "seq",
        "role",
        "content",
        "tool_calls",
        "origin_id",
        "created_at",
    } <= (shown["messages"][0].keys())
    context = shown["context"]
    assert (context["source"], context["tokens"]) == ("usage", 8_500)
    assert context["window_tokens"] == 1_000_000
    assert context["effective_threshold_tokens"] == 200_000
    assert context["manifest"] == MANIFEST
    assert context["last_compression"]["covered"] == 2
    assert context["last_compression"]["cost"]["output_tokens"] == 500
    assert context["usage"]["misses"] == {"expired": 2}
    assert context["usage"]["hit_share"] == pytest.approx(0.375)


def test_an_ended_session_is_shown_as_it_was(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = show(capsys, "s_1")
    assert said.startswith("s_1: ended by compression, console")
    assert "last compression" not in said, "it came later"
    shown = json.loads(show(capsys, "s_1", "--json"))
    assert shown["context"]["last_compression"] is None
    assert len(shown["messages"]) == 2


@pytest.mark.parametrize("columns", [20, 80, 300])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_in_a_terminal_there_is_a_bar_as_wide_as_fits(
    columns: int,
    encoding: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "gateway.cli.output.shutil.get_terminal_size",
        lambda: os.terminal_size((columns, 24)),
    )
    if encoding == "ascii":
        monkeypatch.setattr("gateway.cli.sessions._shows_blocks", lambda: False)
    said = show(capsys, "s_2")
    full, empty, mark = ("▰", "▱", "│") if encoding == "utf-8" else ("#", ".", "|")
    bars = [line for line in said.splitlines() if line and set(line) <= {full, empty, mark}]
    assert len(bars) == 1
    assert bars[0].count(mark) == 1
    assert 10 < len(bars[0]) <= max(11, columns)


def test_an_empty_session_can_be_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = show(capsys, "s_3")
    assert "never measured" in said
    assert json.loads(show(capsys, "s_3", "--json"))["messages"] == []


def test_a_broken_configuration_does_not_hide_the_store(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("compression: {threshold: 17}\n")
    assert main(["sessions", "show", "s_2"]) == 0
    streams = capsys.readouterr()
    assert "[6] " in streams.out
    assert "config.yaml is broken" in streams.err


def test_the_configuration_decides_the_thresholds(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("model: {context_length: 100000}\n")
    context = json.loads(show(capsys, "s_2", "--json"))["context"]
    assert (context["window_tokens"], context["threshold_tokens"]) == (100_000, 50_000)


@pytest.mark.parametrize("command", [["sessions", "show"], ["lineage"], ["sessions", "export"]])
def test_an_id_may_be_cut_short_if_no_other_begins_so(
    command: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_more(home / "state.db"))
    whole = [*command, "s_1"]  # s_10 begins so as well, but this one is meant
    assert main(whole) == 0
    capsys.readouterr()
    assert main([*command, "s_"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("posthouse: several sessions begin with 's_': s_1, s_10, s_2, ")
    assert said.rstrip().endswith("…; please type more of it")
    assert main([*command, "S_1"]) == 1
    assert "there is no session 'S_1'" in capsys.readouterr().err


async def _more(database: Path) -> None:
    ids = SequentialIds()
    for _ in range(3):
        ids.new("s"), ids.new("c")
    store = await open_store(database, clock=FakeClock(), ids=ids)
    prefix = SessionPrefix("console", "offline", "")
    for n in range(7):
        await store.start_conversation(f"k{n}", "console:1", prefix)
    await store.close()
