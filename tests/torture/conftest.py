"""The world of the torture: that of the acceptance tests, with a window that holds pictures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.harness import World, open_world
from tests.torture.killing import WINDOW_TOKENS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three servers and an empty home; every daemon that was started in it ends with the test."""
    async with open_world(tmp_path, window=WINDOW_TOKENS) as made:
        yield made
