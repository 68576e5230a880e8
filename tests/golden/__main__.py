"""Owns the making of a golden database: one that has lived, by the schema of today."""

from __future__ import annotations

import asyncio
import gzip
import sys
import tempfile
from pathlib import Path

from agent.exchange.jsonl import write_lines
from agent.mail import Button, OutboxDraft
from agent.messages import Draft, Keep
from storage.sqlite import open_store
from tests.contract.jobs_suite import asked, firing
from tests.contract.jobs_suite import draft as job_draft
from tests.contract.store_suite import (
    CHAT,
    KEY,
    OWNER,
    begin,
    calling,
    inbound,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
    thinking,
)
from tests.fakes.clock import FakeClock, SequentialIds

FOLDER = Path(__file__).parent


async def _lived(path: Path) -> str:
    """Tools and thinking, a split, a rewrite, an undo, a fork, mail; gives back the export."""
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    try:
        loaded = await talk(
            store,
            thinking("hm"),
            calling("a"),
            result("a"),
            said("fine"),
            text="灯台 lighthouse 👩‍👩‍👧",
        )
        summary = Draft({"role": "user", "content": "[summary]"}, kind="summary")
        kept = [Keep(row.id) for row in loaded.rows[-1:]]
        split = await store.split(split_of(loaded, summary, *kept))
        await talk(store, said("second answer"), text="second question")
        loaded = await store.load(split.tip.id)
        await store.rewrite(rewrite_of(loaded, *(Keep(row.id) for row in loaded.rows)))
        await talk(store, said("to be forgotten"), text="take this back")
        await store.undo(loaded.session.conversation_id, 1)
        fork = await store.branch(split.tip.id, KEY, OWNER)
        await store.accept(inbound(1))
        await store.move_chat(CHAT.platform, CHAT.bot_id, "-7", "-1007")
        await store.owe(OutboxDraft(CHAT, "May I?", buttons=(Button("Yes", "/approve 1"),)))
        await store.quarantine(CHAT.platform, CHAT.bot_id, "77", "{}", "unreadable")
        await store.remember_note(OWNER, OWNER, "likes tea")
        await store.remember_note(OWNER, OWNER, "has a dog")
        await store.forget_note(OWNER, 2)
        sent = await store.add_job(job_draft("drink"))
        await store.fire_job(sent.id, firing())
        _, summed_up = await asked(store)
        await store.finish_turn(summed_up, summed_up.session_id, "done", final=said("all is well"))
        cut_off = await begin(store, "cut off by a crash")
        await store.note_preview(cut_off, CHAT, "55")
        portables = [await store.portable(split.tip.id), await store.portable(fork.id)]
        return "".join(write_lines(portables))
    finally:
        await store.close()


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        export = asyncio.run(_lived(path))
        packed = gzip.compress(path.read_bytes(), mtime=0)
    (FOLDER / f"{name}.db.gz").write_bytes(packed)
    (FOLDER / f"{name}.jsonl").write_text(export, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1])
