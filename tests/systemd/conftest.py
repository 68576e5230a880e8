"""Fixtures: the machine, and posthouse installed on it, as good as new for each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.systemd.machine import Machine, Refused
from tests.systemd.service import Service, open_service


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Up for all tests of the session."""
    made = Machine(tmp_path_factory.mktemp("machine"))
    try:
        try:
            made.boot()
        except Refused as exc:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no systemd to test under: {exc}")
        yield made
    finally:
        made.power_off()


@pytest.fixture
async def service(machine: Machine) -> AsyncIterator[Service]:
    """Nothing is installed yet; the servers are up. Behind it no secret is in the journal."""
    async with open_service(machine) as made:
        yield made
