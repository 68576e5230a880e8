"""`posthouse simulate`: traces from files and from the store, own settings, pictures, mistakes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agent.clock import RandomIds
from agent.simulation.settings import Choice
from agent.simulation.trace import read_trace
from gateway.cli.main import main
from gateway.cli.simulate import SIMULATED, choice_of
from gateway.config.models import Config
from gateway.config.shape import all_paths
from storage.sqlite import open_store
from tests.contract.lineage_suite import compress
from tests.contract.store_suite import calling, result, said, talk
from tests.fakes.clock import FakeClock

SMALL = [
    '{"posthouse_trace": 1, "model": "claude-sonnet-5-5", "window_tokens": 20000, "events": 240}',
    *['[30, "user", 120]', '[4, "text", 380]'] * 120,
]
SECRET = "the treasure lies under the old oak"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a trace, in an empty home."""
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    path = tmp_path / "small.jsonl"
    path.write_text("\n".join(SMALL), "utf-8")
    return path


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["simulate", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_table_for_people(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(trace)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("240 events (120 of people) over")
    assert lines[2].split()[:3] == ["SETTING", "STARTS", "AT"]
    assert lines[3].startswith("defaults")
    assert lines[4].startswith("reference")
    assert lines[-1].startswith("prices of ")
    assert printed.err == ""


def test_figures_for_scripts(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, str(trace))
    assert (found["model"], found["window_tokens"], found["events"]) == (
        "claude-sonnet-5-5",
        20_000,
        240,
    )
    names = [setting["setting"] for setting in found["settings"]]
    assert names[:2] == ["defaults", "reference"]
    assert len(set(names)) == len(names) >= 8
    assert all(setting["usd"] > 0 for setting in found["settings"])


def test_the_defaults_of_the_replay_are_the_configurations() -> None:
    assert choice_of(Config()) == Choice()
    assert set(SIMULATED) <= set(all_paths(Config))


def test_own_keys_make_one_more_row(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "compression.threshold=0.3", "--set", "compression.background = false"]
    own = as_json(capsys, str(trace), *sets)["settings"][2]
    assert own["setting"] == "own"
    assert own["threshold_tokens"] == 6000
    assert own["compressions_prepared"] == 0
    assert own["compressions_waited"] > 0


def test_a_configuration_makes_one_more_row(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("compression: {threshold: 0.25}\n")
    arguments = ["--config", str(config), "--set", "model.cache_ttl=1h"]
    found = as_json(capsys, str(trace), *arguments)["settings"]
    assert [row["setting"] for row in found[2:4]] == ["config", "own"]
    assert [row["threshold_tokens"] for row in found[2:4]] == [5000, 5000]
    assert [row["cache_ttl"] for row in found[2:4]] == ["5m", "1h"]


def test_another_model_has_another_window_and_price(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = as_json(capsys, str(trace))
    found = as_json(capsys, str(trace), "--model", "claude-haiku-4-5")
    assert found["window_tokens"] == 200_000
    assert found["settings"][0]["usd"] < same["settings"][0]["usd"]
    assert as_json(capsys, str(trace), "--window", "50000")["window_tokens"] == 50_000


def test_of_an_unknown_model_only_tokens_are_told(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capsys, str(trace), "--model", "somebody-else-1")
    assert {row["usd"] for row in found["settings"]} == {None}
    assert found["settings"][0]["tokens"]["input"] > 0
    assert main(["simulate", str(trace), "--model", "somebody\x1b[31m-else"]) == 0
    printed = capsys.readouterr().out
    assert "so there are only tokens" in printed
    assert "\x1b" not in printed


def test_a_picture(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "p.svg"
    assert main(["simulate", str(trace), "--plot", str(picture)]) == 0
    assert ElementTree.fromstring(picture.read_text("utf-8")).tag.endswith("svg")
    assert main(["simulate", str(trace), "--plot", str(tmp_path / "no" / "p.svg")]) == 1
    assert "can not be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said_so"),
    [
        ([], "a trace is needed"),
        (["daily", "--from", "x"], "either a trace, or --from"),
        (["daily", "--output", "x"], "--output goes with --from"),
        (["daily", "--window", "1"], "--window wants"),
        (["nowhere.jsonl"], "can not be read"),
        (["nowhere\x1b[31m\0.jsonl"], "can not be read"),
        (["."], "it is no file"),
        (["daily", "--set", "threshold"], "--set wants KEY=VALUE"),
        (["daily", "--set", "=3"], "--set wants KEY=VALUE"),
        (["daily", "--set", "compression.in_place=true"], "is nothing that a replay can show"),
        (["daily", "--set", "compression.threshold=7"], "less than or equal to 1"),
        (["daily", "--set", "compression.threshold=[}"], "is no value"),
        (["daily", "--set", "compression.background=maybe"], "compression.background"),
        (["--from", "x"], "nothing is stored yet"),
    ],
)
def test_mistakes_are_named_and_exit_with_1(
    arguments: list[str], said_so: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said_so in printed.err
    assert "\x1b" not in printed.err


@pytest.mark.parametrize(
    ("content", "said_so"),
    [
        (b"", "small.jsonl:1: the file is empty"),
        (SMALL[0].encode(), "small.jsonl:1: the file ends after 0 of 240 events"),
        (b"\n".join(line.encode() for line in SMALL[:-3]), "ends after 237 of 240"),
        ("\n".join(SMALL).encode()[:-4], "small.jsonl:241: no JSON"),
        ("\n".join(SMALL).replace("[30", "[-30", 1).encode(), "small.jsonl:2: the gap is negative"),
        (SMALL[0].encode() + b"\n\n\xff\n", "small.jsonl:3: is not UTF-8 text"),
        (b"\x00" * 5000, "small.jsonl:1: longer than 4096 characters"),
        (b"%PDF-1.7\n", "small.jsonl:1: no JSON"),
        (b'{"id": "s1", "messages": []}\n', "small.jsonl:1: no trace"),
    ],
)
def test_what_is_no_trace_is_refused_by_its_line(
    content: bytes, said_so: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_bytes(content)
    assert main(["simulate", str(trace)]) == 1
    assert said_so in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = trace.with_name("pipe")
    os.mkfifo(pipe)
    assert main(["simulate", str(pipe)]) == 1
    assert "it is no file" in capsys.readouterr().err


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session of a stored conversation, compressed once."""
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))

    async def create() -> str:
        clock = FakeClock()
        store = await open_store(tmp_path / "state.db", clock=clock, ids=RandomIds())
        for _ in range(8):
            turn = [calling("c1"), result("c1", SECRET * 40), said(f"{SECRET}, I said")]
            loaded = await talk(store, *turn, text=f"where? {SECRET}")
            await clock.advance(700)
        loaded = await compress(store, loaded, keep=2)
        await store.close()
        return loaded.session.id

    return asyncio.run(create())


def test_a_stored_conversation_becomes_a_trace_without_a_word(
    stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--from", stored[:6]]) == 0
    printed = capsys.readouterr().out
    found = read_trace(printed.split("\n"), "t")
    assert len(found.events) == 32
    assert [event.kind for event in found.events[:4]] == ["user", "call", "result", "text"]
    assert found.events[4].gap_seconds == 700
    assert found.model == "claude-test"
    for word in (SECRET, "treasure", "oak", stored, "telegram", "clock"):
        assert word not in printed
    file = tmp_path / "mine.jsonl"
    assert main(["simulate", "--from", stored, "--output", str(file)]) == 0
    assert file.read_text("utf-8") == printed
    assert main(["simulate", str(file)]) == 0


def test_an_id_of_nobody(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--from", "nobody"]) == 1
    assert "there is no session 'nobody'" in capsys.readouterr().err
