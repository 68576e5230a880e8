"""The model's window: who is believed, what is remembered, and that a file can not break it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.windows import WindowBook
from tests.fakes.scripted_model import ScriptedModel

MODEL = "claude-sonnet-5-5"


class Told(ScriptedModel):
    """A model whose provider names a window."""

    def __init__(self, tokens: int | None) -> None:
        super().__init__([])
        self.tokens = tokens
        self.asked = 0

    async def window_tokens(self) -> int | None:
        self.asked += 1
        return self.tokens


def book(folder: Path, configured: int | None = None) -> WindowBook:
    return WindowBook(MODEL, None, configured, folder / "windows.json")


async def test_what_the_provider_said_holds_at_the_next_start(tmp_path: Path) -> None:
    first = book(tmp_path)
    assert first.window.source == "table"
    changed: list[int] = []
    await first.ask(Told(400_000), lambda: changed.append(1))
    assert (first.window.tokens, first.window.source, changed) == (400_000, "provider", [1])
    await first.ask(Told(400_000), lambda: changed.append(2))
    assert changed == [1]
    assert book(tmp_path).window.tokens == 400_000


async def test_a_provider_that_does_not_know_changes_nothing(tmp_path: Path) -> None:
    before = book(tmp_path).window
    kept = book(tmp_path)
    await kept.ask(Told(None), lambda: pytest.fail("nothing changed"))
    assert kept.window == before


async def test_the_configuration_decides_and_nobody_is_asked(tmp_path: Path) -> None:
    decided = book(tmp_path, 8000)
    model = Told(400_000)
    await decided.ask(model, lambda: pytest.fail("decided already"))
    assert (decided.window.tokens, model.asked) == (8000, 0)


def test_a_limit_from_an_error_only_lowers_and_is_remembered(tmp_path: Path) -> None:
    learning = book(tmp_path)
    learning.lower(10_000_000)
    assert learning.window.source == "table"
    learning.lower(120_000)
    assert learning.window.tokens == 120_000
    learning.lower(150_000)
    assert learning.window.tokens == 120_000
    assert book(tmp_path).window.tokens == 120_000


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{", b'{"a": "x"}', b'{"a": true}'])
def test_a_broken_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "windows.json").write_bytes(content)
    known = book(tmp_path)
    assert known.window.source == "table"
    known.lower(120_000)
    assert book(tmp_path).window.tokens == 120_000


def test_other_models_keep_what_is_known_of_them(tmp_path: Path) -> None:
    book(tmp_path).lower(120_000)
    WindowBook("other", "http://localhost", None, tmp_path / "windows.json").lower(50_000)
    assert book(tmp_path).window.tokens == 120_000
