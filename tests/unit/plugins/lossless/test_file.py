"""The lossless engine's file: whose it is, what is refused in which words; its settings."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.context_engine import ContextEngine
from plugins.context_engine.lossless import register
from plugins.context_engine.lossless.engine import LosslessEngine
from plugins.context_engine.lossless.options import Options, options_from, sizes_for
from plugins.context_engine.lossless.schema import LosslessError, connect
from tests.fakes.lossless import call, lossless, originals, talk


def newer(file: Path) -> None:
    connect(file).close()
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()


def somebody_elses(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def torn(file: Path) -> None:
    connect(file).close()
    data = bytearray(file.read_bytes())
    data[:100] = b"x" * 100
    file.write_bytes(data)


def a_folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (newer, "is of version 2, and this engine knows 1"),
        (somebody_elses, "belongs to something else"),
        (torn, "it is broken: move it away"),
        (a_folder, "can not be"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(
    tmp_path: Path, spoil: Callable[[Path], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lossless.db"
    spoil(file)
    engine = lossless(tmp_path)
    with pytest.raises(LosslessError, match=says) as caught:
        engine.on_session_start("s1", conversation_id="key")
    assert str(file) in str(caught.value)
    with pytest.raises(LosslessError, match=says):
        engine.compress(talk(30))
    assert says in call(engine, "lossless_search", query="x")["error"]
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    with pytest.raises(LosslessError, match=says):
        register(Context())
    # What was told in the meantime counts as soon as the file is good again.
    file.rename(tmp_path / "aside")
    assert originals(engine, engine.compress(talk(30))) == talk(30)
    engine.shutdown()
    again = lossless(tmp_path)
    again.on_session_start("s1", conversation_id="key")
    assert call(again, "lossless_describe")["originals_kept"] == 60


class Context:
    """What a plugin registers with."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.engine: ContextEngine | None = None

    def get_config(self, key: str, default: Any = None) -> Any:
        return self.settings.get(key, default)

    def register_context_engine(self, engine: ContextEngine) -> None:
        self.engine = engine


def test_it_registers_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    ctx = Context(threshold=0.5, fanout=3)
    register(ctx)
    assert isinstance(ctx.engine, LosslessEngine)
    assert ctx.engine.name == "lossless"
    own = ctx.engine.clone_for_agent()
    own.update_model("m", 10_000)
    assert (own.threshold_tokens, ctx.engine.threshold_tokens) == (5000, 0)
    assert own.should_compress(5000)
    assert not own.should_compress(4999)
    own.on_session_start("s1", conversation_id="key")
    assert (tmp_path / "lossless.db").stat().st_mode & 0o777 == 0o600
    own.shutdown()


@pytest.mark.parametrize(
    ("name", "value"),
    [("threshold", 3), ("fanout", 1), ("leaf_tokens", "many"), ("tail_share", True)],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"lossless\.{name} is .*it has to be a number from"):
        options_from(lambda key, usual: value if key == name else usual)


def test_a_file_that_many_make_at_once_is_made_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    begin = threading.Barrier(8)

    def make(file: Path) -> None:
        begin.wait()
        try:
            connect(file).close()
        except BaseException as exc:
            failures.append(exc)

    for number in range(15):
        file = tmp_path / str(number) / "lossless.db"
        threads = [threading.Thread(target=make, args=(file,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_without_any_home_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    register(Context())
    engine = LosslessEngine()
    with pytest.raises(LosslessError, match="did not say where"):
        engine.compress(talk(30))


def test_the_host_says_where_the_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "other"))
    engine = LosslessEngine()
    engine.on_session_start("s1", conversation_id="key", hermes_home=str(tmp_path / "told"))
    assert (tmp_path / "told" / "lossless.db").exists()
    assert not (tmp_path / "other").exists()
    engine.shutdown()


def test_sizes_follow_the_window() -> None:
    small, large = sizes_for(3000, Options()), sizes_for(800_000, Options())
    assert small.leaf_tokens < large.leaf_tokens == 20_000
    assert small.tail_tokens == 750
    assert large.body_tokens == 1500
    assert sizes_for(0, Options()) == sizes_for(96_000, Options())


def test_usage_and_status(tmp_path: Path) -> None:
    engine = lossless(tmp_path)
    assert "originals" not in engine.get_status()
    engine.on_session_start("s1", conversation_id="key")
    engine.update_from_response({})
    assert engine.last_prompt_tokens == 0
    engine.update_from_response({"prompt_tokens": 4000, "completion_tokens": 5})
    assert not engine.should_compress()
    engine.update_from_response({"prompt_tokens": 6000, "completion_tokens": 5})
    assert engine.should_compress()
    engine.compress(talk(30))
    status = engine.get_status()
    assert (status["last_prompt_tokens"], status["originals"]) == (6000, 60)
    assert status["nodes"] > 0
    assert not engine.should_defer_preflight_to_real_usage(9000)
    engine.last_prompt_tokens = -1
    assert engine.should_defer_preflight_to_real_usage(9000)
    assert not engine.should_compress()
