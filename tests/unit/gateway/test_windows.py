"""The model's window: who is believed, what is remembered, and that a file can not break it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from agent.model_metadata import WindowSource
from gateway.monitoring.self_report import WINDOW_SOURCES
from gateway.windows.book import LEARNED_DAYS, WindowBook, remembered_image_tokens
from tests.fakes.clock import FakeClock
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


def book(folder: Path, configured: int | None = None, clock: FakeClock | None = None) -> WindowBook:
    return WindowBook(MODEL, None, configured, folder / "windows.json", clock=clock)


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


async def test_a_learned_limit_outlives_what_the_provider_says_at_the_next_start(
    tmp_path: Path,
) -> None:
    """The endpoint for models tells the model's window, not what this account may send."""
    book(tmp_path).lower(200_000)
    again = book(tmp_path)
    await again.ask(Told(1_000_000), lambda: pytest.fail("nothing changed"))
    assert (again.window.tokens, again.window.source) == (200_000, "error")
    await again.ask(Told(100_000), lambda: None)
    assert (again.window.tokens, again.window.source) == (100_000, "provider")


async def test_a_learned_limit_is_tried_again_after_a_week(
    tmp_path: Path, clock: FakeClock
) -> None:
    book(tmp_path, clock=clock).lower(200_000)
    await clock.advance(LEARNED_DAYS * 86_400 - 60)
    assert book(tmp_path, clock=clock).window.tokens == 200_000
    await clock.advance(120)
    assert book(tmp_path, clock=clock).window.tokens == 1_000_000


async def test_a_clock_set_back_does_not_keep_a_limit_for_ever(
    tmp_path: Path, clock: FakeClock
) -> None:
    book(tmp_path, clock=clock).lower(200_000)
    earlier = FakeClock(clock.now() - 400 * 86_400)
    assert book(tmp_path, clock=earlier).window.tokens == 1_000_000


def test_a_configured_window_is_lowered_for_this_run_only(tmp_path: Path) -> None:
    run = book(tmp_path, 500_000)
    run.lower(200_000)
    assert run.window.tokens == 200_000
    assert book(tmp_path, 500_000).window.tokens == 500_000


def test_what_pictures_cost_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "image_tokens.json"
    learning = remembered_image_tokens(file)
    assert learning.of(MODEL) == 1500
    for figure in (300, 320, 310):
        learning.learn(MODEL, figure)
    again = remembered_image_tokens(file)
    assert again.of(MODEL) in (300, 310)
    assert again.of("other") == 1500


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"a": 3, "b": ["x", true, 1e9, 9], "c": []}']
)
def test_a_broken_file_of_picture_prices_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "image_tokens.json"
    file.write_bytes(content)
    learning = remembered_image_tokens(file)
    assert [learning.of(model) for model in "abc"] == [1500] * 3
    learning.learn("a", 400)
    assert remembered_image_tokens(file).of("a") == 400


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


def test_every_way_to_know_a_window_has_its_words() -> None:
    assert set(WINDOW_SOURCES) == {*get_args(WindowSource), "built-in"}
