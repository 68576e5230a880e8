"""Owns a home where one person's words stand everywhere, and the search for them in its bytes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.brought import fenced, onto
from agent.clock import RandomIds, SystemClock
from agent.jobs.nouns import Action, JobDraft, JobPlace, Schedule
from agent.llm.background import in_daemon_thread
from agent.mail import Address, OutboxDraft, PartDraft
from agent.messages import Draft, Keep
from agent.ports import Usage
from agent.prepared import Prepared
from agent.sessions import CompressionState, SplitRequest, TurnOpening
from agent.store_ports import Store
from agent.tools.paths import folder_name
from gateway.config.environment import Home
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import KEY, OWNER, PREFIX, inbound
from tests.fakes.lossless import ScriptedAsk, call, lossless, talk

WORD = "quokkaphone"
"""Begins everything that this person has ever said, so that it is found in any form of it."""
OTHER = "telegram:333"
OTHERS_CHAT = '["telegram","7","333",null,"333"]'
GROUP = '["telegram","7","-9",null,null]'
DIRECT = Address("telegram", "7", "111")
IN_GROUP = Address("telegram", "7", "-9")


def secret(where: str) -> str:
    """What is planted there."""
    return f"{WORD}{where}"


async def opened(home: Path) -> SqlStore:
    """The store of the home."""
    return await open_store(home / "state.db", clock=SystemClock(), ids=RandomIds())


def files_of(home: Path, store: SqlStore) -> FolderAttachments:
    """The files of the home."""
    return FolderAttachments(home / "attachments", store, SystemClock(), in_daemon_thread)


async def plant(home: Path, store: SqlStore) -> None:
    """A person who has used everything, and another one who talks in the same group."""
    await _direct(store)
    await _group(store)
    await _waiting(store)
    files = files_of(home, store)
    for owner in (OWNER, OTHER):
        await files.keep(b"both", owner=owner, file_name=_name(owner, "both"), media_type="x/y")
    await files.keep(
        secret("bytes").encode(), owner=OWNER, file_name=secret("name.txt"), media_type="text/plain"
    )
    await files.keep(b"lions", owner=OTHER, file_name="lions.txt", media_type="text/plain")
    workspace = home / "workspace" / folder_name(OWNER)
    workspace.mkdir(parents=True)
    (workspace / secret("file")).write_text(secret("workspace"))
    (workspace.parent / folder_name(OTHER)).mkdir()
    (workspace.parent / folder_name(OTHER) / "lion").write_text("roar")


def _name(owner: str, what: str) -> str:
    return secret(what) if owner == OWNER else what


async def _direct(store: Store) -> None:
    payload = {"chat_kind": "direct", "sender_name": secret("sender"), "quoted_text": secret("q")}
    receipt = await store.accept(inbound(1, text=secret("inbox"), payload=payload))
    said = Draft({"role": "user", "content": secret("said")}, wire_content=secret("wire"))
    opening = TurnOpening(KEY, OWNER, (receipt.inbox_id,), said, PREFIX)
    ticket = await store.begin_turn(opening)
    await store.note_preview(ticket, DIRECT, "55")
    thinking = {"type": "thinking", "thinking": secret("thinking"), "signature": "sig"}
    call = {"name": "clock", "arguments": f'{{"x":"{secret("argument")}"}}'}
    await store.append(
        ticket,
        ticket.session_id,
        (
            Draft(
                {
                    "role": "assistant",
                    "content": secret("answer"),
                    "tool_calls": [{"id": "c1", "type": "function", "function": call}],
                    "anthropic_content_blocks": [
                        thinking,
                        {"type": "tool_use", "id": "c1", "name": "clock", "input": {"x": WORD}},
                    ],
                }
            ),
            Draft({"role": "tool", "content": secret("result"), "tool_call_id": "c1", "name": "n"}),
        ),
        anchor_usage=Usage(100, 10, model="m"),
    )
    final = Draft({"role": "assistant", "content": secret("final")})
    owed = OutboxDraft(DIRECT, secret("outbox"))
    (item,) = await store.finish_turn(
        ticket, ticket.session_id, "done", final=final, outbox=(owed,)
    )
    await store.plan_parts(item.id, [PartDraft({"text": secret("part")})])
    loaded = await store.load(ticket.session_id)
    summary = Draft({"role": "user", "content": secret("summary")}, kind="summary")
    result = await store.split(
        SplitRequest(
            loaded.session.conversation_id,
            loaded.session.id,
            loaded.session.revision,
            loaded.last_row_id,
            (summary, Keep(loaded.rows[-1].id)),
            CompressionState(count=1),
            manifest={"identifiers": [secret("manifest")]},
        )
    )
    loaded = await store.load(result.tip.id)
    await store.save_prepared(
        Prepared(
            session_id=loaded.session.id,
            revision=loaded.session.revision,
            covered_row_id=loaded.last_row_id,
            entries=(Draft({"role": "user", "content": secret("prepared")}, kind="summary"),),
            tokens=1,
            manifest={"p": secret("prepared manifest")},
        )
    )
    await store.set_title(loaded.session.conversation_id, secret("title"))


async def _group(store: Store) -> None:
    await _group_turn(store, OTHER, "lion", "roar", 10)
    await _group_turn(store, OWNER, secret("group"), secret("group answer"), 11)
    await _group_turn(store, OTHER, "lion again", "roar again", 12)
    found = await store.conversation_for_key(GROUP)
    assert found is not None
    loaded = await store.load(found.tip_session_id)
    summary = Draft({"role": "user", "content": secret("group summary")}, kind="summary")
    await store.split(
        SplitRequest(
            found.id, loaded.session.id, loaded.session.revision, loaded.last_row_id,
            (summary, *(Keep(row.id) for row in loaded.rows[-2:])), CompressionState(count=1),
            manifest={"identifiers": [secret("group manifest")]},
        )
    )  # fmt: skip


async def _group_turn(store: Store, owner: str, text: str, answer: str, n: int) -> None:
    at = Address("telegram", "7", "-9", None, str(n))
    record = inbound(
        n, address=at, session_key=GROUP, owner=owner, text=text, payload={"shared": True}
    )
    receipt = await store.accept(record)
    # What is remembered in the group rides in everybody's messages.
    said = onto(
        Draft({"role": "user", "content": text}), fenced("notes of this chat", secret("brought"))
    )
    ticket = await store.begin_turn(TurnOpening(GROUP, owner, (receipt.inbox_id,), said, PREFIX))
    blocks = [
        {"type": "thinking", "thinking": answer, "signature": "s"},
        {"type": "text", "text": answer},
    ]
    final = Draft({"role": "assistant", "content": answer, "anthropic_content_blocks": blocks})
    (item,) = await store.finish_turn(
        ticket, ticket.session_id, "done", final=final, outbox=(OutboxDraft(at, answer),)
    )
    (part,) = await store.plan_parts(item.id, [PartDraft({"text": answer})])
    await store.mark_part(part.id, "sent", platform_message_id=str(100 + n))


async def _waiting(store: Store) -> None:
    await store.accept(inbound(20, text=secret("waiting"), payload={"chat_kind": "direct"}))
    await store.quarantine("telegram", "7", "9", f'{{"id":222,"t":"{secret("raw")}"}}', "no JSON")
    await store.remember_note(OWNER, OWNER, secret("note"))
    await store.remember_note(GROUP, OWNER, secret("group note"))
    await store.remember_note(GROUP, OTHER, "lions")
    for text, place in ((secret("job"), OWNER), ("lion's job", OTHER)):
        await store.add_job(
            JobDraft(
                place=JobPlace(GROUP, place, IN_GROUP, {"name": text}),
                name=text,
                schedule=Schedule("every", "7200", "UTC"),
                action=Action("text", text),
                origin="person",
                next_run_at=4e9,
                anchor_at=1.0,
            )
        )
    await store.owe(OutboxDraft(IN_GROUP, secret("job")))


async def plant_vault(home: Path, store: Store) -> None:
    """The same, with the context engine `lossless` on: both places, and a chat of the other's."""
    for key, engine_of in ((KEY, _told), (GROUP, _told), (OTHERS_CHAT, talk)):
        found = await store.conversation_for_key(key)
        sessions = await store.lineage(found.tip_session_id) if found is not None else []
        summary = secret("vault summary") if found is not None else "lions, in short"
        engine = lossless(home / "hermes", ScriptedAsk(summary))
        messages = engine_of(20)
        for session_id in [session.id for session in sessions] or ["others"]:
            engine.on_session_start(session_id, conversation_id=key)
        messages = engine.compress(messages)
        assert len(messages) < 40
        engine.on_turn_complete(messages)
        engine.shutdown()


def _told(turns: int) -> list[dict[str, object]]:
    messages = talk(turns)
    for message in messages:
        message["content"] = f"{secret('vault')} {message['content']}"
    return messages


def vault_of_others(home: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the other person finds of their own chat in the vault."""
    engine = lossless(home / "hermes")
    engine.on_session_start("others", conversation_id=OTHERS_CHAT)
    found = call(engine, "lossless_search", query="question 3")
    described = call(engine, "lossless_describe")
    assert "question 3" in str(found)
    assert described["originals_kept"] == 40
    engine.shutdown()
    return found, described


def traces(home: Path) -> list[str]:
    """Where in the home anything of this person still stands, in names and in bytes."""
    found = []
    for path in sorted(home.rglob("*")):
        if WORD in path.name:
            found.append(f"{path} (its name)")
        if path.is_file() and WORD.encode() in path.read_bytes().lower():
            found.append(str(path))
    return found


def of_others(home: Path) -> dict[str, object]:
    """All that is not this person's: it has to be the same before and after."""
    with closing(sqlite3.connect(home / "state.db")) as db:
        rows = {
            name: db.execute(sql, (OTHER,)).fetchall()
            for name, sql in {
                "notes": "SELECT * FROM notes WHERE owner = ?",
                "jobs": "SELECT * FROM jobs WHERE owner = ?",
                "files": "SELECT * FROM attachments WHERE owner = ?",
                "inbox": "SELECT * FROM inbox WHERE owner = ?",
                "turns": "SELECT * FROM turns WHERE owner = ?",
                "answers": "SELECT o.* FROM outbox o JOIN turns t ON t.id = o.turn_id"
                " WHERE t.owner = ?",
                "said": "SELECT m.id, m.seq, m.content, m.raw_blocks FROM messages m JOIN turns t"
                " ON t.session_id = m.session_id AND m.id IN (t.user_row_id, t.user_row_id + 1)"
                " WHERE t.owner = ?",
            }.items()
        }
    bytes_of = {p.name: p.read_bytes() for p in (home / "attachments").iterdir()}
    lion = home / "workspace" / folder_name(OTHER) / "lion"
    kept = {name: data for name, data in bytes_of.items() if WORD.encode() not in data}
    return {**rows, "bytes": kept, "workspace": lion.read_text()}


def home_of(path: Path) -> Home:
    """As the wiring takes it."""
    return Home(path, "a test")
