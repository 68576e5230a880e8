"""Owns the child of the kill tests: dies at a named point of a store method, as told.

``python -m tests.unit.storage.kill_scenarios SCENARIO FOLDER`` runs the scenario once to learn its
points, then once for each of them in a forked child that kills itself there. One database per
point is left behind for the parent to look at. Prints a JSON list of the points.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.brought import fenced, onto
from agent.jobs.nouns import Action, Firing, JobPlace, Misses
from agent.ledger import RequestEntry
from agent.lineages import Answering
from agent.llm.background import in_daemon_thread
from agent.mail import Address, Cursor, OutboxDraft, PartDraft
from agent.messages import Draft, Keep
from agent.ports import Usage
from agent.sessions import TurnOpening, key_in
from agent.store_ports import Store
from storage import faultpoint
from storage.attachments import FolderAttachments
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.forgetting_suite import GROUP, OTHER, in_group
from tests.contract.jobs_suite import DUE, asked, firing
from tests.contract.jobs_suite import draft as job_draft
from tests.contract.lineage_suite import compress, refreeze, uncompress_of
from tests.contract.pairing_suite import request_of
from tests.contract.prepared_suite import prepared_of
from tests.contract.store_suite import (
    CHAT,
    KEY,
    OWNER,
    PREFIX,
    SUMMARY,
    begin,
    calling,
    inbound,
    result,
    rewrite_of,
    said,
    split_of,
    talk,
    thinking,
    user,
)
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.portables import portable_chain

_files_of: list[Path] = []
"""The folders of files beside the databases, the one at work last."""
Act = Callable[[], Awaitable[object]]


async def start_conversation(store: Store) -> Act:
    await talk(store, said("old"))
    return lambda: store.start_conversation(KEY, OWNER, PREFIX)


async def begin_turn(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    ticket = await begin(store, "open call")
    await store.append(ticket, ticket.session_id, (calling("a", "b"),))
    await store.finish_turn(ticket, ticket.session_id, "failed")
    return lambda: begin(store, "hello", (receipt.inbox_id,))


async def begin_first_turn(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    return lambda: begin(store, "hello", (receipt.inbox_id,))


async def append(store: Store) -> Act:
    ticket = await begin(store)
    rows = (calling("a", "b"), result("a"), result("b"))
    return lambda: store.append(ticket, ticket.session_id, rows, anchor_usage=Usage(5, 5))


async def steer(store: Store) -> Act:
    first, *further = [(await store.accept(inbound(n))).inbox_id for n in range(3)]
    ticket = await begin(store, "hello", (first,))
    await store.append(ticket, ticket.session_id, (calling("a"), result("a")))
    return lambda: store.steer(ticket, ticket.session_id, further, user("and this"))


async def finish_steered_turn(store: Store) -> Act:
    await (await steer(store))()
    (cut_off,) = await store.recover_turns()
    await store.resume_turn(cut_off.ticket)
    ticket = cut_off.ticket
    return lambda: store.finish_turn(ticket, ticket.session_id, "done", final=said("bye"))


async def retry_steered_turn(store: Store) -> Act:
    await (await finish_steered_turn(store))()
    opening = TurnOpening(KEY, OWNER, (), said("not used"), PREFIX)
    return lambda: store.retry(opening)


async def revise(store: Store) -> Act:
    await store.accept(inbound(1))
    return lambda: store.revise(inbound(1, text="changed", update_id="2000"))


async def move_chat(store: Store) -> Act:
    rows = [(await store.accept(inbound(n))).inbox_id for n in range(3)]
    await store.set_cursor(Cursor("telegram", "7", "111", "9"))
    await store.move_chat("telegram", "7", "110", "111")
    await begin(store, "new chat", session_key=key_in(KEY, "112"))
    shown = await begin(store, "hello", (rows[0],))
    await store.note_preview(shown, CHAT, "500")
    sent = await store.owe(OutboxDraft(CHAT, "x"))
    part, _ = await store.plan_parts(sent.id, [PartDraft({}), PartDraft({})])
    await store.mark_part(part.id, "sent", platform_message_id="9")
    for place in (KEY, key_in(KEY, "112")):
        await store.remember_note(place, OWNER, "likes tea")
        await store.add_job(job_draft(place=JobPlace(place, OWNER, CHAT)))
    return lambda: store.move_chat("telegram", "7", "111", "112")


async def accept_an_update_given_anew(store: Store) -> Act:
    await store.accept(inbound(1))
    late = inbound(2, update_id="1001", received_at=9e9)
    return lambda: store.accept(late, Cursor("telegram", "7", "111", "1"))


async def quarantine(store: Store) -> Act:
    return lambda: store.quarantine("telegram", "7", "5", "{", "not JSON")


async def keep_file(store: Store) -> Act:
    assert isinstance(store, SqlStore)
    files = FolderAttachments(_files_of[-1], store, FakeClock(), in_daemon_thread)
    await files.keep(b"other", owner=OWNER, file_name="a.png", media_type="image/png")
    return lambda: files.keep(b"one", owner=OWNER, file_name="a.png", media_type="image/png")


async def finish_turn(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    ticket = await begin(store, "hello", (receipt.inbox_id,))
    owed = (OutboxDraft(CHAT, "one"), OutboxDraft(CHAT, "two"))
    return lambda: store.finish_turn(
        ticket, ticket.session_id, "done", final=said("bye"), outbox=owed
    )


async def note_preview(store: Store) -> Act:
    ticket = await begin(store, "hello")
    return lambda: store.note_preview(ticket, CHAT, "500")


async def leave_preview(store: Store) -> Act:
    ticket = await begin(store, "hello")
    await store.note_preview(ticket, CHAT, "500")
    return lambda: store.leave_preview(ticket)


async def finish_turn_with_preview(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    ticket = await begin(store, "hello", (receipt.inbox_id,))
    await store.note_preview(ticket, CHAT, "500")
    owed = (OutboxDraft(CHAT, "one"), OutboxDraft(CHAT, "two"))
    return lambda: store.finish_turn(
        ticket, ticket.session_id, "done", final=said("bye"), outbox=owed
    )


async def split(store: Store) -> Act:
    parent = await talk(store, said("one"), thinking("two"))
    await begin(store, "later")
    await store.acquire_lease(parent.session.conversation_id, "me", 60)
    request = split_of(parent, SUMMARY, Keep(parent.rows[-1].id), lease_holder="me")
    return lambda: store.split(request)


async def swap_prepared(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    assert await store.save_prepared(prepared_of(loaded))
    await begin(store, "later")
    return lambda: store.split(split_of(loaded, SUMMARY, Keep(loaded.rows[-1].id)))


async def save_prepared(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    assert await store.save_prepared(prepared_of(loaded, tokens=1))
    return lambda: store.save_prepared(prepared_of(loaded, tokens=2))


async def discard_prepared(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    assert await store.save_prepared(prepared_of(loaded))
    return lambda: store.discard_prepared(loaded.session.id)


async def ask_pairing(store: Store) -> Act:
    old = request_of(FakeClock(), "OLDERONE", "111", expires_at=1.0)
    assert await store.ask_pairing(old)
    return lambda: store.ask_pairing(request_of(FakeClock(), "ABCDEFGH"))


async def approve_pairing(store: Store) -> Act:
    await store.approve_pairing("WRONGONE")
    await store.ask_pairing(request_of(FakeClock(), "ABCDEFGH"))
    return lambda: store.approve_pairing("ABCDEFGH")


async def approve_wrong_code(store: Store) -> Act:
    await store.approve_pairing("WRONGONE")
    return lambda: store.approve_pairing("WRONGTOO")


async def remember_note(store: Store) -> Act:
    await store.remember_note(OWNER, OWNER, "likes tea")
    return lambda: store.remember_note(OWNER, OWNER, "has a dog")


async def replace_note(store: Store) -> Act:
    await store.remember_note(OWNER, OWNER, "likes tea")
    return lambda: store.remember_note(OWNER, OWNER, "likes coffee", replaces=1)


async def forget_note(store: Store) -> Act:
    await store.remember_note(OWNER, OWNER, "likes tea")
    return lambda: store.forget_note(OWNER, 1)


async def revoke_pairing(store: Store) -> Act:
    await store.ask_pairing(request_of(FakeClock(), "ABCDEFGH"))
    await store.approve_pairing("ABCDEFGH")
    await store.ask_pairing(request_of(FakeClock(), "HGFEDCBA"))
    return lambda: store.revoke_pairing("telegram", "222")


async def rewrite(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"), said("three"))
    keep = [Keep(row.id) for row in loaded.rows]
    request = rewrite_of(
        loaded, keep[0], SUMMARY, *keep[2:], compression=loaded.session.compression, manifest={}
    )
    return lambda: store.rewrite(request)


async def micro_compact(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    later = await talk(store, thinking("four"), text="three")
    first, *rest = (Keep(row.id) for row in later.rows)
    marker = Draft({"role": "assistant", "content": "in short"}, kind="micro")
    state = loaded.session.compression.changed(micro_passes=1, micro_saved_tokens=9)
    request = rewrite_of(later, first, marker, *rest[2:], compression=state, at_rest=True)
    return lambda: store.rewrite(request)


async def set_option(store: Store) -> Act:
    loaded = await talk(store, said("one"))
    return lambda: store.set_option(loaded.session.id, "micro_compact_override", "on")


async def compress_in_place(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    state = loaded.session.compression.changed(count=1)
    request = rewrite_of(loaded, SUMMARY, Keep(loaded.rows[-1].id), compression=state)
    return lambda: store.rewrite(request)


async def uncompress(store: Store) -> Act:
    await compress(store, await talk(store, said("one"), thinking("two")))
    tip = await talk(store, said("three"), text="later")
    return lambda: store.uncompress(uncompress_of(tip))


async def refreeze_session(store: Store) -> Act:
    loaded = await talk(store, said("one"), thinking("two"))
    return lambda: refreeze(store, loaded)


async def branch(store: Store) -> Act:
    loaded = await talk(store, said("one"), calling("a"))
    return lambda: store.branch(loaded.session.id, KEY, OWNER)


async def undo(store: Store) -> Act:
    parent = await talk(store, said("swordfish"), text="which fish?")
    tip = await compress(store, parent, keep=2)
    command = (await store.accept(inbound(9, kind="command"))).inbox_id
    answering = Answering(command, lambda _: OutboxDraft(CHAT, "taken back", "command"))
    return lambda: store.undo(tip.session.conversation_id, answering=answering)


async def retry(store: Store) -> Act:
    await talk(store, calling("a"), result("a"), said("swordfish"))
    command = (await store.accept(inbound(9, kind="command"))).inbox_id
    opening = TurnOpening(KEY, OWNER, (command,), said("not used"), PREFIX)
    return lambda: store.retry(opening)


async def resume(store: Store) -> Act:
    old = await talk(store, said("one"))
    await store.start_conversation(KEY, OWNER, PREFIX)
    await store.resume("another key", old.session.conversation_id)
    return lambda: store.resume(KEY, old.session.conversation_id)


async def load(store: Store) -> Act:
    ticket = await begin(store)
    await store.append(
        ticket, ticket.session_id, (calling("a"), said("x"), result("a"), thinking("y"))
    )
    await store.finish_turn(ticket, ticket.session_id, "failed")
    return lambda: store.load(ticket.session_id)


async def load_open_end(store: Store) -> Act:
    ticket = await begin(store)
    await store.append(ticket, ticket.session_id, (calling("a", "b"),))
    await store.finish_turn(ticket, ticket.session_id, "failed")
    return lambda: store.load(ticket.session_id)


async def recover_turns(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    await begin(store, "boom", (receipt.inbox_id,))
    await begin(store, "other", session_key=json.dumps(["console", "1", "c", None, None]))
    return lambda: store.recover_turns(crash_limit=1)


async def resume_turn(store: Store) -> Act:
    ticket = await begin(store)
    await store.append(ticket, ticket.session_id, (calling("a"),))
    await store.recover_turns()
    return lambda: store.resume_turn(ticket)


async def accept(store: Store) -> Act:
    return lambda: store.accept(inbound(1), Cursor("telegram", "7", "111", "1"))


async def answer_inbox(store: Store) -> Act:
    receipt = await store.accept(inbound(1))
    return lambda: store.answer_inbox((receipt.inbox_id,), (OutboxDraft(CHAT, "ok", "command"),))


async def await_restart(store: Store) -> Act:
    receipt = await store.accept(inbound(1, kind="command"))
    return lambda: store.await_restart(receipt.inbox_id, (OutboxDraft(CHAT, "ok", "command"),))


async def say_restarted(store: Store) -> Act:
    receipt = await store.accept(inbound(1, kind="command"))
    await store.await_restart(receipt.inbox_id)
    return lambda: store.say_restarted("back")


async def plan_parts(store: Store) -> Act:
    item = await store.owe(OutboxDraft(CHAT, "long"))
    return lambda: store.plan_parts(item.id, [PartDraft({"n": n}) for n in range(3)])


async def mark_part(store: Store) -> Act:
    item = await store.owe(OutboxDraft(CHAT, "x"))
    (part,) = await store.plan_parts(item.id, [PartDraft({})])
    return lambda: store.mark_part(part.id, "sent", platform_message_id="9")


async def fail_outbox(store: Store) -> Act:
    item = await store.owe(OutboxDraft(CHAT, "x"))
    await store.plan_parts(item.id, [PartDraft({}), PartDraft({})])
    return lambda: store.fail_outbox(item.id, "gone")


async def enter_request(store: Store) -> Act:
    ticket = await begin(store)
    return lambda: store.enter_request(RequestEntry("summary", "m", ticket.conversation_id))


async def first_time(store: Store) -> Act:
    await store.first_time("telegram:222", "monday")
    return lambda: store.first_time("telegram:222", "tuesday")


async def rebuild_search_index(store: Store) -> Act:
    assert isinstance(store, SqlStore)
    await talk(store, said("one"), said("two"))
    return store.rebuild_search_index


async def take_in(store: Store) -> Act:
    assert isinstance(store, SqlStore)
    await talk(store, said("other"))
    return lambda: store.take_in([portable_chain()])


async def add_job(store: Store) -> Act:
    await store.add_job(job_draft())
    return lambda: store.add_job(job_draft("sum up", kind="prompt"))


async def set_job(store: Store) -> Act:
    job = await store.add_job(job_draft())
    return lambda: store.set_job(job.id, "paused", next_run_at=job.next_run_at)


async def change_job(store: Store) -> Act:
    job = await store.add_job(job_draft())
    return lambda: store.change_job(
        job.id,
        place=job.place,
        schedule=job.schedule,
        action=Action("text", "another"),
        next_run_at=job.next_run_at,
        anchor_at=job.anchor_at,
    )


async def send_a_job(store: Store) -> Act:
    job = await store.add_job(job_draft())
    gone = Misses(DUE, DUE, 1, "not running")
    return lambda: store.fire_job(job.id, Firing(DUE, DUE + 3600, gone, DUE + 7200))


async def ask_a_job(store: Store) -> Act:
    """Its run before is over, but nobody has entered that yet."""
    job, ticket = await asked(store)
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("ok"))
    return lambda: store.fire_job(job.id, firing(DUE + 3600))


async def a_job_overlaps(store: Store) -> Act:
    job, _ = await asked(store)
    await store.fire_job(job.id, firing(DUE + 3600))
    return lambda: store.fire_job(job.id, firing(DUE + 7200))


async def settle_runs(store: Store) -> Act:
    for _ in range(2):
        _, ticket = await asked(store)
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("ok"))
    return store.settle_runs


async def void_runs(store: Store) -> Act:
    place = JobPlace("", "house", Address("house", "", ""))
    for name in ("a", "b"):
        job = await store.add_job(job_draft(name, place=place, origin="house"))
        await store.fire_job(job.id, firing())
    return store.void_runs


async def _in_use(store: Store) -> None:
    """One's own conversation, a turn cut off, a group, a conversation of it put aside, a note."""
    await talk(store, calling("a"), result("a"), thinking("own"))
    await in_group(store, OWNER, "zebra", said("stripes"))
    await in_group(store, OTHER, "lion", thinking("roar"), n=1)
    await store.start_conversation(GROUP, OTHER, PREFIX)
    await in_group(store, OWNER, "zebra", calling("b"), result("b"), n=2)
    await in_group(store, OTHER, "lion", thinking("roar"), n=3)
    await store.remember_note(OWNER, OWNER, "likes tea")
    riding = onto(user("lion"), fenced("notes of this chat", "zebra"))
    shown = await begin(store, session_key=GROUP, owner=OTHER, message=riding)
    await store.finish_turn(shown, shown.session_id, "done", final=said("roar"))
    receipt = await store.accept(inbound(4))
    await begin(store, "cut off", (receipt.inbox_id,))


async def begin_forgetting(store: Store) -> Act:
    receipt = await store.accept(inbound(1, kind="command"))
    return lambda: store.begin_forgetting(OWNER, inbox_id=receipt.inbox_id, answer_to=CHAT)


async def erase_a_person(store: Store) -> Act:
    await _in_use(store)
    await store.begin_forgetting(OWNER)
    return lambda: store.erase(OWNER)


async def finish_forgetting(store: Store) -> Act:
    await store.begin_forgetting(OWNER)
    return lambda: store.finish_forgetting(OWNER, (OutboxDraft(CHAT, "gone", "command"),))


async def clear_silent(store: Store) -> Act:
    await talk(store, said("swordfish"))
    await store.start_conversation(KEY, OWNER, PREFIX)
    await talk(store, said("the newest of all"))
    before = FakeClock().now() + 1e6
    return lambda: store.clear_silent(before)


async def strike_cleared(store: Store) -> Act:
    await (await clear_silent(store))()
    (noted,) = await store.cleared()
    return lambda: store.strike_cleared([noted.id])


async def clear_files(store: Store) -> Act:
    assert isinstance(store, SqlStore)
    files = FolderAttachments(_files_of[-1], store, FakeClock(), in_daemon_thread)
    await files.keep(b"one", owner=OWNER, file_name="a.png", media_type="image/png")
    return lambda: store.clear_files(FakeClock().now() + 1e6)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        begin_forgetting, erase_a_person, finish_forgetting, clear_silent,
        strike_cleared, clear_files,
        start_conversation, begin_turn, begin_first_turn, append, finish_turn,
        note_preview, leave_preview, finish_turn_with_preview, split,
        swap_prepared, save_prepared, discard_prepared, rewrite, micro_compact, set_option,
        compress_in_place, uncompress, refreeze_session, branch, undo, retry, resume, load,
        load_open_end, recover_turns, resume_turn, accept, answer_inbox, await_restart,
        say_restarted, plan_parts, mark_part,
        ask_pairing, approve_pairing, approve_wrong_code, revoke_pairing,
        remember_note, replace_note, forget_note,
        add_job, set_job, change_job, send_a_job, ask_a_job, a_job_overlaps, settle_runs, void_runs,
        fail_outbox, enter_request, first_time, rebuild_search_index, take_in,
        steer, finish_steered_turn, retry_steered_turn, revise, move_chat,
        accept_an_update_given_anew, quarantine, keep_file,
    )
}  # fmt: skip


def content_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything that the database says, comparable: all tables but the index's own."""
    db = sqlite3.connect(path)
    try:
        names = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'message_index%'"
        ).fetchall()
        return {
            name: db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for (name,) in names
        }
    finally:
        db.close()


async def _run(path: Path, scenario: str, hook: Callable[[str], None] | None) -> None:
    _files_of.append(path.with_suffix(".files"))
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    act = await SCENARIOS[scenario](store)
    if hook is not None:
        faultpoint.install(hook)
        await act()
        faultpoint.install(None)
    await store.close()


def main(scenario: str, folder: Path) -> None:
    points: list[str] = []
    asyncio.run(_run(folder / "old.db", scenario, None))
    asyncio.run(_run(folder / "new.db", scenario, points.append))
    for stop_at in range(len(points)):
        child = os.fork()
        if child == 0:
            seen = 0

            def hook(_: str, stop_at: int = stop_at) -> None:
                nonlocal seen
                if seen == stop_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1

            asyncio.run(_run(folder / f"{stop_at}.db", scenario, hook))
            os._exit(1)  # never got there
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), (scenario, points[stop_at], status)
    print(json.dumps(points))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
