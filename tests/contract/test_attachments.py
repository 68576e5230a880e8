"""Owns the run of the files' contract over the folder and over its twin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.attachments import Attachments
from agent.llm.background import in_daemon_thread
from storage.attachments import FolderAttachments
from storage.memory_attachments import MemoryAttachments
from storage.sqlite import open_store
from tests.contract.attachment_suite import AttachmentContract
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants


class TestFolderAttachments(AttachmentContract):
    @pytest.fixture
    async def files(
        self, tmp_path: Path, clock: FakeClock, ids: SequentialIds
    ) -> AsyncIterator[Attachments]:
        store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
        yield FolderAttachments(tmp_path / "files", store, clock, in_daemon_thread)
        await store.close()
        check_invariants(tmp_path / "state.db")


class TestMemoryAttachments(AttachmentContract):
    @pytest.fixture
    def files(self, clock: FakeClock) -> Attachments:
        return MemoryAttachments(clock)
