"""Fixtures of the acceptance tests: a world with its servers, and no process left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.harness import World, open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Three servers and an empty home; every daemon that was started in it ends with the test."""
    async with open_world(tmp_path) as made:
        yield made
