"""Owns the run of the store's contract over both of its implementations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.store_ports import Store
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.contract.forgetting_suite import ForgettingContract, RetentionContract
from tests.contract.inbox_suite import InboxContract, SeveralRowsContract
from tests.contract.jobs_suite import JobsContract
from tests.contract.last_said_suite import LastSaidContract
from tests.contract.ledger_suite import LedgerContract
from tests.contract.lineage_suite import LineageContract
from tests.contract.moving_suite import MovingContract
from tests.contract.notes_suite import NotesContract
from tests.contract.pairing_suite import PairingContract
from tests.contract.prepared_suite import PreparedContract
from tests.contract.preview_suite import PreviewContract
from tests.contract.remembered_suite import RememberedContract
from tests.contract.restart_suite import RestartContract
from tests.contract.results_suite import ResultsContract
from tests.contract.steering_suite import SteeringContract
from tests.contract.store_suite import StoreSuite
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants


class StoreContract(
    StoreSuite,
    LineageContract,
    LedgerContract,
    PreparedContract,
    PairingContract,
    RestartContract,
    ResultsContract,
    InboxContract,
    SeveralRowsContract,
    SteeringContract,
    MovingContract,
    PreviewContract,
    RememberedContract,
    NotesContract,
    ForgettingContract,
    RetentionContract,
    JobsContract,
    LastSaidContract,
):
    """All of it."""


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(
        self, tmp_path: Path, clock: FakeClock, ids: SequentialIds
    ) -> AsyncIterator[Store]:
        store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
        yield store
        await store.close()
        check_invariants(tmp_path / "state.db")


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, clock: FakeClock, ids: SequentialIds) -> Store:
        return MemoryStore(clock, ids)
