"""A database of every schema version opens for ever: its conversations, mail and cut-off turn."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from agent.exchange.jsonl import read_lines, write_lines
from agent.sessions import SearchScope
from agent.store_ports import Store
from storage.migrate import shipped
from storage.sqlite import open_store
from tests import golden
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

FOLDER = Path(golden.__file__).parent
NAMES = [migration.name.removesuffix(".sql") for migration in shipped()]


@pytest.mark.parametrize("name", NAMES)
async def test_a_database_of_every_version_opens(name: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.db.gz").read_bytes()))
    export = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    held = read_lines(io.StringIO(export, newline="\n"))

    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    try:
        tips = [portable.sessions[-1].id for portable in held]
        assert "".join(write_lines([await store.portable(tip) for tip in tips])) == export
        assert await store.search("lighthouse", SearchScope())
        assert await store.search("灯", SearchScope())
        assert await store.search("take this back", SearchScope()) == []
        assert len(await store.recover_turns()) == 1
        assert len(await store.open_inbox()) == 1
        if name >= "0004":
            await _jobs_go_on(store)
    finally:
        await store.close()
    check_invariants(path)


async def _jobs_go_on(store: Store) -> None:
    sent, asked = await store.jobs_of("person")
    assert (sent.job.action.kind, asked.job.action.kind) == ("text", "prompt")
    assert sent.job.next_run_at == asked.job.next_run_at == await store.next_job_at()
    assert (sent.last and sent.last.state, asked.last and asked.last.state) == ("done", "claimed")
    assert [run.state for run in await store.settle_runs()] == ["done"]
