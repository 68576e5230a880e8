"""The example as it is loaded: found by its name, registered whole, as short as is promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.plugins.discovery import in_folders
from gateway.plugins.importing import BUNDLED
from gateway.plugins.loading import PluginLoader
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames
from tests.fakes.clock import FakeClock
from tests.fakes.plugins import clean_modules


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    with clean_modules():
        yield


async def test_it_is_there_and_nothing_else_is_a_plugin_by_accident() -> None:
    found = {f.key: f for f in in_folders(BUNDLED, Path("/nowhere"), None)}
    assert "example" in found
    assert not {"testing", "hermes_compat"} & {key for key, f in found.items() if not f.error}
    settings = PluginSettings(enabled=("example",))
    record = await PluginLoader(settings, TakenNames(), FakeClock(), {}).load(found["example"])
    assert record.remarks == ()
    assert record.collected is not None
    assert record.collected.gives() == [
        "tool roll_dice",
        "/words",
        "hook post_llm_call",
        "hook pre_llm_call",
    ]
    assert found["example"].folder is not None
    code = (found["example"].folder / "__init__.py").read_text(encoding="utf-8")
    assert code.count("\n") <= 80
