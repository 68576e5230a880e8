"""Owns the contract of `agent.forgetting.Forgetting`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.brought import fenced, onto
from agent.forgetting import ERASED_SUMMARY, TOMBSTONE, ClearedConversation
from agent.ledger import LedgerScope
from agent.llm.validator import validate
from agent.llm.wire import map_messages
from agent.mail import Address, Cursor, OutboxDraft, PartDraft
from agent.messages import Draft, Keep, Row
from agent.ports import Usage
from agent.sessions import CompressionState, SearchScope, session_key
from agent.store_ports import Store
from tests.contract.store_suite import (
    CHAT,
    KEY,
    OWNER,
    PREFIX,
    begin,
    inbound,
    rewrite_of,
    said,
    split_of,
    talk,
    thinking,
)
from tests.fakes.clock import FakeClock

OTHER = "telegram:333"
OTHER_KEY = session_key("telegram", "7", "333", None, "333")
GROUP = session_key("telegram", "7", "-9", None, None)
GROUP_CHAT = Address("telegram", "7", "-9")
DAY = 86_400.0
SUMMARY = Draft({"role": "user", "content": "zebra was told"}, kind="summary")


def calls(argument: str) -> Draft:
    call = {"name": "clock", "arguments": f'{{"zone":"{argument}"}}'}
    return Draft(
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"id": "a", "type": "function", "function": call}],
        }
    )


def answer(text: str) -> Draft:
    return Draft({"role": "tool", "content": text, "tool_call_id": "a", "name": "clock"})


async def in_group(store: Store, owner: str, text: str, *replies: Draft, n: int = 0) -> str:
    """A finished turn in the group, with a message and an answer; gives the session's id."""
    address = Address("telegram", "7", "-9", None, str(n))
    record = inbound(
        n, address=address, session_key=GROUP, owner=owner, text=text, payload={"shared": True}
    )
    receipt = await store.accept(record)
    ticket = await begin(store, text, (receipt.inbox_id,), session_key=GROUP, owner=owner)
    await store.append(ticket, ticket.session_id, replies, anchor_usage=Usage(50, 5, model="m"))
    owed = OutboxDraft(address, f"answer to {text}")
    tip = await store.tip(ticket.session_id)
    await store.finish_turn(ticket, tip.id, "done", outbox=(owed,))
    return tip.id


async def forget(store: Store, owner: str = OWNER, **asked: Any) -> None:
    await store.begin_forgetting(owner, **asked)
    await store.erase(owner)
    await store.finish_forgetting(owner)


async def contents(store: Store, session_id: str) -> list[Any]:
    return [row.message["content"] for row in await store.active_rows(session_id)]


def speaks(rows: list[Row], word: str) -> bool:
    return any(word in repr(row) for row in rows)


async def check_request(store: Store, session_id: str) -> None:
    """The next request of this session is one that a provider takes."""
    rows = [row.message for row in await store.active_rows(session_id)]
    messages = map_messages([*rows, {"role": "user", "content": "go on"}])
    assert not validate({"messages": messages})


class ForgettingContract:
    async def test_the_sessions_of_a_conversation_are_known_over_its_end(
        self, store: Store
    ) -> None:
        """Whoever keeps things by them is told which, also if it has to be told again."""
        loaded = await talk(store, said("hi"))
        conversation_id = loaded.session.conversation_id
        child = await store.split(split_of(loaded, SUMMARY))
        ids = tuple(sorted({loaded.session.id, child.tip.id}))
        assert len(ids) == 2
        assert await store.sessions_of([conversation_id, "nobody's"]) == ids
        assert await store.sessions_of([]) == ()
        await forget(store)
        assert await store.sessions_of([conversation_id]) == ids

    async def test_nothing_is_held_of_a_stranger(self, store: Store) -> None:
        await talk(store, said("hi"))
        held = await store.holdings(OTHER)
        assert held.nothing
        assert (held.keys, held.conversation_ids) == ((), ())

    async def test_a_command_that_came_in_is_held_and_the_wish_is_not(self, store: Store) -> None:
        await store.accept(inbound(1, text="/forget me", kind="command"))
        assert (await store.holdings(OWNER)).nothing
        await store.accept(inbound(2, text="/title zebra", kind="command"))
        assert (await store.holdings(OWNER)).mail == 1
        await forget(store)
        assert (await store.holdings(OWNER)).nothing

    async def test_what_is_held_is_counted(self, store: Store) -> None:
        await talk(store, said("hi"))
        await in_group(store, OWNER, "zebra", said("yes"))
        await in_group(store, OTHER, "lion", said("no"), n=1)
        await store.remember_note(OWNER, OWNER, "likes tea")
        held = await store.holdings(OWNER)
        assert (held.messages, held.conversations, held.shared, held.notes) == (4, 1, 1, 1)
        assert held.keys == tuple(sorted((KEY, GROUP)))

    async def test_own_conversations_become_shells_that_nothing_leads_to(
        self, store: Store
    ) -> None:
        before = await talk(store, calls("zebra"), answer("zebra"), thinking("zebra"), text="zebra")
        await store.set_title(before.session.conversation_id, "zebra")
        await forget(store)
        assert await store.conversation_for_key(KEY) is None
        assert await store.conversations_of(OWNER) == []
        after = await store.all_rows(before.session.id)
        assert not speaks(after, "zebra")
        assert not speaks(after, "let me see")
        assert [(r.id, r.seq, r.message["role"]) for r in after] == [
            (r.id, r.seq, r.message["role"]) for r in before.rows
        ]
        shell = await store.session(before.session.id)
        assert (shell.title, shell.end_reason, shell.anchor) == (None, "reset", None)
        assert shell.revision > before.session.revision
        await check_request(store, shell.id)
        new = await talk(store, said("hello"), text="here again")
        assert new.session.conversation_id != shell.conversation_id

    async def test_others_keep_every_word(self, store: Store) -> None:
        mine = await talk(store, said("zebra"))
        ticket = await begin(store, "lion", session_key=OTHER_KEY, owner=OTHER)
        await store.append(ticket, ticket.session_id, (thinking("roar"),))
        await store.finish_turn(ticket, ticket.session_id, "done")
        before = await store.load(ticket.session_id)
        await store.remember_note(OTHER, OTHER, "likes meat")
        await forget(store)
        assert await store.load(ticket.session_id) == before
        assert [note.text for note in await store.notes(OTHER)] == ["likes meat"]
        assert not speaks(await store.all_rows(mine.session.id), "zebra")

    async def test_in_a_group_only_their_own_goes(self, store: Store) -> None:
        await in_group(store, OTHER, "lion", said("roar"))
        await in_group(store, OWNER, "zebra", calls("zebra"), answer("zebra"), said("zebra!"), n=1)
        old = await in_group(store, OTHER, "lion again", thinking("roar again"), n=2)
        await forget(store)
        found = await store.conversation_for_key(GROUP)
        assert found is not None
        tip = await store.session(found.tip_session_id)
        assert (tip.parent_session_id, tip.link) == (old, "continuation")
        assert (await store.session(old)).end_reason == "switch"
        assert await contents(store, tip.id) == [
            "lion", "roar", TOMBSTONE, TOMBSTONE, TOMBSTONE, TOMBSTONE, "lion again", "roar again",
        ]  # fmt: skip
        rows = await store.active_rows(tip.id)
        assert not speaks(rows, "zebra")
        assert not speaks(rows, "signature")
        assert not speaks(await store.all_rows(old), "zebra")
        await check_request(store, tip.id)

    async def test_a_summary_made_since_goes_and_one_made_before_stays(self, store: Store) -> None:
        await in_group(store, OTHER, "lion", said("roar"))
        loaded = await store.load((await self._tip(store)).id)
        earlier = Draft({"role": "user", "content": "lions were told"}, kind="summary")
        await store.split(split_of(loaded, earlier, *[Keep(r.id) for r in loaded.rows]))
        await in_group(store, OWNER, "zebra", said("stripes"), n=1)
        await in_group(store, OTHER, "lion again", said("again"), n=2)
        loaded = await store.load((await self._tip(store)).id)
        keep = [Keep(row.id) for row in loaded.rows[-2:]]
        kept_summary = Keep(loaded.rows[0].id)
        manifest = {"kept": ["zebra"]}
        await store.split(split_of(loaded, kept_summary, SUMMARY, *keep, manifest=manifest))
        await forget(store)
        tip = await self._tip(store)
        assert await contents(store, tip.id) == [
            "lions were told", ERASED_SUMMARY, "lion again", "again",
        ]  # fmt: skip
        for session in await store.lineage(tip.id):
            assert session.manifest is None
            assert not speaks(await store.all_rows(session.id), "zebra")
        await check_request(store, tip.id)

    async def test_what_a_compression_inside_a_session_made_goes(self, store: Store) -> None:
        await in_group(store, OWNER, "zebra", said("stripes"))
        await in_group(store, OTHER, "lion", said("roar"), n=1)
        loaded = await store.load((await self._tip(store)).id)
        made = Draft({"role": "assistant", "content": "zebra, by an engine"})
        result = await store.rewrite(
            rewrite_of(
                loaded, made, Keep(loaded.rows[-2].id), Keep(loaded.rows[-1].id),
                compression=CompressionState(count=1),
            )
        )  # fmt: skip
        assert result.applied
        await forget(store)
        tip = await self._tip(store)
        assert await contents(store, tip.id) == [TOMBSTONE, "lion", "roar"]
        await check_request(store, tip.id)

    async def test_what_rode_in_messages_of_others_goes(self, store: Store) -> None:
        await store.remember_note(GROUP, OWNER, "zebra")
        lion = Draft({"role": "user", "content": "lion"})
        brought = onto(lion, fenced("notes of this chat", "- n1: zebra"))
        ticket = await begin(store, session_key=GROUP, owner=OTHER, message=brought)
        await store.append(ticket, ticket.session_id, (thinking("roar"),))
        await store.finish_turn(ticket, ticket.session_id, "done")
        await forget(store)
        for session in await store.lineage(ticket.session_id):
            assert not speaks(await store.all_rows(session.id), "zebra")
        tip = await self._tip(store)
        rows = await store.active_rows(tip.id)
        assert [row.message["content"] for row in rows] == ["lion", "roar"]
        assert not speaks(rows, "signature")
        await check_request(store, tip.id)

    async def test_what_others_had_looked_up_goes(self, store: Store) -> None:
        await in_group(store, OWNER, "zebra", said("stripes"))
        looked = calls("fish")
        looked.message["tool_calls"][0]["function"]["name"] = "recall"
        found = answer("m1: zebra")
        found.message["name"] = "recall"
        await in_group(store, OTHER, "who said it?", looked, found, said("somebody"), n=1)
        await forget(store)
        tip = await self._tip(store)
        assert not speaks(await store.active_rows(tip.id), "zebra")
        assert (await contents(store, tip.id))[-4:] == [
            "who said it?", "let me see", TOMBSTONE, "somebody",
        ]  # fmt: skip
        await check_request(store, tip.id)

    async def test_a_group_that_was_not_concerned_goes_on_as_it_is(self, store: Store) -> None:
        await talk(store, said("hi"))
        session_id = await in_group(store, OTHER, "lion", thinking("roar"))
        before = await store.load(session_id)
        await forget(store)
        assert await store.load((await self._tip(store)).id) == before

    async def test_a_fork_by_somebody_else_loses_the_same_words(self, store: Store) -> None:
        old = await in_group(store, OWNER, "zebra", said("stripes"))
        await in_group(store, OTHER, "lion", said("roar"), n=1)
        fork = await store.branch(old, GROUP, OTHER)
        await forget(store)
        for session in await store.lineage(fork.id):
            assert not speaks(await store.all_rows(session.id), "zebra")
        tip = await store.tip(fork.id)
        assert await contents(store, tip.id) == [TOMBSTONE, TOMBSTONE, "lion", "roar"]

    async def test_a_fork_of_what_only_they_have_said(self, store: Store) -> None:
        old = await in_group(store, OWNER, "zebra", said("stripes"))
        fork = await store.branch(old, GROUP, OTHER)
        await in_group(store, OTHER, "lion", said("roar"), n=1)
        await forget(store)
        tip = await store.tip(fork.id)
        assert await contents(store, tip.id) == [TOMBSTONE, TOMBSTONE, "lion", "roar"]
        assert not speaks(await store.all_rows(old), "zebra")

    async def test_a_conversation_that_was_put_aside_can_be_taken_up(self, store: Store) -> None:
        await in_group(store, OWNER, "zebra", said("stripes"))
        aside = await in_group(store, OTHER, "lion", thinking("roar"), n=1)
        conversation_id = (await store.session(aside)).conversation_id
        await store.start_conversation(GROUP, OTHER, PREFIX)
        await forget(store)
        again = await store.resume(GROUP, conversation_id)
        rows = await store.active_rows(again.id)
        assert not speaks(rows, "signature")
        assert await contents(store, again.id) == [TOMBSTONE, TOMBSTONE, "lion", "roar"]

    async def test_search_finds_nothing_and_the_others_still(self, store: Store) -> None:
        await talk(store, said("zebrafish"), text="zebrafish")
        await in_group(store, OTHER, "lionfish", said("zebrafish is what another said"))
        await forget(store)
        for _ in range(9):
            found = await store.search("zebrafish lionfish erased", SearchScope())
            assert {hit.role for hit in found} == {"user", "assistant"}
            assert len(found) == 2
            if not await store.maintain():
                break

    async def test_mail_loses_its_words_and_is_still_known(self, store: Store) -> None:
        payload = {"chat_kind": "direct", "sender_name": "zebra"}
        receipt = await store.accept(inbound(1, text="zebra", payload=payload))
        waits = await store.accept(inbound(2, text="zebra", payload=payload))
        foreign = await store.accept(inbound(3, text="lion", owner=OTHER, session_key=OTHER_KEY))
        await store.answer_inbox([receipt.inbox_id], [OutboxDraft(CHAT, "zebra", "command")])
        (owed,) = await store.owed()
        await store.plan_parts(owed.id, [PartDraft({"text": "zebra"})])
        await forget(store)
        assert await store.owed() == []
        assert [item.id for item in await store.open_inbox()] == [foreign.inbox_id]
        emptied = await store.inbox_items([receipt.inbox_id, waits.inbox_id])
        assert {(i.record.text, i.record.owner, i.state) for i in emptied} == {("", "", "answered")}
        assert "zebra" not in repr(emptied)
        again = await store.accept(inbound(2), Cursor("telegram", "7", "111", "2"))
        assert not again.fresh

    async def test_what_came_behind_the_wish_is_new(self, store: Store) -> None:
        wish = await store.accept(inbound(1, text="/forget me", kind="command"))
        later = await store.accept(inbound(2, text="hello again"))
        await forget(store, inbox_id=wish.inbox_id)
        (item,) = await store.open_inbox()
        assert (item.id, item.record.text) == (later.inbox_id, "hello again")

    async def test_a_turn_that_is_not_over_is_not_taken_up(self, store: Store) -> None:
        receipt = await store.accept(inbound(1))
        ticket = await begin(store, "zebra", (receipt.inbox_id,))
        await store.note_preview(ticket, CHAT, "5")
        await store.interrupt_turn(ticket)
        await forget(store)
        assert await store.recover_turns() == []
        assert await store.open_inbox() == []

    async def test_notes_and_names_go(self, store: Store) -> None:
        await store.remember_note(OWNER, OWNER, "zebra")
        await store.remember_note(GROUP, OWNER, "zebra")
        await store.remember_note(GROUP, OTHER, "lion")
        await forget(store)
        assert not await store.notes(OWNER)
        assert [note.text for note in await store.notes(GROUP)] == ["lion"]

    async def test_the_title_of_a_group_goes_if_it_may_be_theirs(self, store: Store) -> None:
        first = await in_group(store, OTHER, "lion")
        await in_group(store, OWNER, "zebra", said("yes"), n=1)
        conversation_id = (await store.session(first)).conversation_id
        await store.set_title(conversation_id, "Animals")
        await forget(store)
        assert (await self._tip(store)).title == "Animals"
        await in_group(store, OWNER, "zebra", said("yes"), n=2)
        named = inbound(3, session_key=GROUP, kind="command", text="/title zebras")
        await store.accept(named)
        await forget(store)
        assert (await self._tip(store)).title is None

    async def test_bills_stay_right(self, store: Store) -> None:
        await in_group(store, OWNER, "zebra", said("yes"))
        scope = LedgerScope(owner=OWNER)
        before = await store.ledger_lines(scope)
        assert before
        await forget(store)
        assert await store.ledger_lines(scope) == before

    async def test_the_wish_is_kept_until_the_last_has_gone(self, store: Store) -> None:
        receipt = await store.accept(inbound(1))
        await talk(store, said("zebra"))
        to = Address("telegram", "7", "111", None, "1")
        asked = await store.begin_forgetting(OWNER, inbox_id=receipt.inbox_id, answer_to=to)
        assert (await store.begin_forgetting(OWNER)) == asked
        assert await store.forgetting() == [asked]
        done = await store.erase(OWNER)
        assert done.erased is not None
        assert done.erased.messages == 2
        assert await store.erase(OWNER) == done
        assert await store.forgetting() == [done]
        words = OutboxDraft(to, "gone")
        (owed,) = await store.finish_forgetting(OWNER, (words,))
        assert owed.draft == words
        assert await store.finish_forgetting(OWNER, (words,)) == ()
        assert await store.forgetting() == []

    async def test_nobody_is_erased_unasked(self, store: Store) -> None:
        with pytest.raises(LookupError):
            await store.erase(OWNER)

    async def test_forgotten_twice(self, store: Store) -> None:
        await in_group(store, OWNER, "zebra", said("stripes"))
        await in_group(store, OTHER, "lion", said("roar"), n=1)
        await forget(store)
        first = await self._tip(store)
        assert (await store.holdings(OWNER)).nothing
        await forget(store)
        assert (await self._tip(store)).id == first.id

    async def _tip(self, store: Store) -> Any:
        found = await store.conversation_for_key(GROUP)
        assert found is not None
        return await store.session(found.tip_session_id)


class RetentionContract:
    async def test_what_is_silent_goes_whole_and_its_place_begins_anew(
        self, store: Store, clock: FakeClock
    ) -> None:
        loaded = await talk(store, said("old"))
        compressed = await store.split(split_of(loaded, SUMMARY, Keep(loaded.rows[-1].id)))
        clock.jump(10 * DAY)
        await self._news(store)
        cleared = await store.clear_silent(clock.now() - 5 * DAY)
        assert (cleared.conversations, cleared.messages, cleared.more) == (1, 4, False)
        assert cleared.text_bytes > 0
        assert await store.conversation(loaded.session.conversation_id) is None
        assert await store.conversation_for_key(KEY) is None
        assert await store.list_sessions(conversation_id=compressed.tip.conversation_id) == []
        fresh = await talk(store, said("new"))
        assert fresh.rows[0].id > compressed.tip.message_count

    async def test_what_was_said_lately_stays(self, store: Store, clock: FakeClock) -> None:
        loaded = await talk(store, said("old"))
        clock.jump(10 * DAY)
        await talk(store, said("new"))
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 0
        assert len(await store.all_rows(loaded.session.id)) == 4

    async def test_what_a_command_came_for_lately_stays(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Whoever went back to it this evening finds it there in the morning."""
        clock.set_wall(inbound(1).received_at)
        await talk(store, said("old"))
        clock.jump(10 * DAY)
        await self._news(store)
        record = replace(inbound(1, text="/resume 2", kind="command"), received_at=clock.now())
        await store.accept(record)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 0
        clock.jump(10 * DAY)
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 1

    async def test_a_family_of_forks_stays_or_goes_together(
        self, store: Store, clock: FakeClock
    ) -> None:
        loaded = await talk(store, said("old"))
        fork = await store.branch(loaded.session.id, KEY, OWNER)
        clock.jump(10 * DAY)
        await talk(store, said("goes on in the fork"))
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 0
        clock.jump(10 * DAY)
        await self._news(store)
        cleared = await store.clear_silent(clock.now() - 5 * DAY, conversations=1)
        assert (cleared.conversations, cleared.more) == (2, False)
        assert await store.conversation(fork.conversation_id) is None

    async def test_what_went_is_noted_until_plugins_were_told(
        self, store: Store, clock: FakeClock
    ) -> None:
        loaded = await talk(store, said("old"))
        conversation_id = loaded.session.conversation_id
        await store.split(split_of(loaded, SUMMARY, Keep(loaded.rows[-1].id)))
        sessions = await store.sessions_of([conversation_id])
        await talk_at(store, session_key("telegram", "7", "5", None, "5"), "telegram:5")
        clock.jump(10 * DAY)
        await self._news(store)
        assert await store.cleared() == []
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 2
        noted = await store.cleared()
        assert ClearedConversation(conversation_id, sessions) in noted
        assert len(sessions) == 2
        assert [one.id for one in noted] == sorted(one.id for one in noted)
        assert list(await store.cleared(limit=1)) == list(noted)[:1]
        await store.clear_silent(clock.now() - 5 * DAY)
        assert await store.cleared() == noted
        await store.strike_cleared([conversation_id, "unknown"])
        assert [one.id for one in await store.cleared()] == [
            one.id for one in noted if one.id != conversation_id
        ]

    async def test_a_few_at_a_time(self, store: Store, clock: FakeClock) -> None:
        for n in range(5):
            key = session_key("telegram", "7", str(n), None, str(n))
            await talk_at(store, key, f"telegram:{n}")
        clock.jump(10 * DAY)
        await self._news(store)
        before = clock.now() - 5 * DAY
        steps = [await store.clear_silent(before, conversations=2) for _ in range(3)]
        assert [(step.conversations, step.more) for step in steps] == [
            (2, True), (2, True), (1, False),
        ]  # fmt: skip

    async def test_a_turn_that_is_not_over_keeps_its_conversation(
        self, store: Store, clock: FakeClock
    ) -> None:
        ticket = await begin(store)
        await store.interrupt_turn(ticket)
        clock.jump(10 * DAY)
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 0

    async def test_the_newest_message_of_all_stays(self, store: Store, clock: FakeClock) -> None:
        last = await talk(store, said("old"))
        clock.jump(10 * DAY)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 0
        assert await store.conversation(last.session.conversation_id) is not None

    async def test_mail_goes_with_it_and_repeats_of_a_week_are_known(
        self, store: Store, clock: FakeClock
    ) -> None:
        clock.set_wall(inbound(1).received_at)
        old = await store.accept(inbound(1))
        ticket = await begin(store, "old", (old.inbox_id,))
        owed = OutboxDraft(CHAT, "zebra")
        (item,) = await store.finish_turn(ticket, ticket.session_id, "done", outbox=(owed,))
        (part,) = await store.plan_parts(item.id, [PartDraft({"text": "zebra"})])
        await store.mark_part(part.id, "sent", platform_message_id="77")
        clock.jump(5 * DAY)
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 4 * DAY)).conversations == 1
        (kept,) = await store.inbox_items([old.inbox_id])
        assert (kept.record.text, kept.record.payload, kept.state) == ("", {}, "answered")
        assert not (await store.accept(inbound(1))).fresh
        await store.accept(inbound(2, owner=OTHER))
        clock.jump(10 * DAY)
        await self._news(store)
        await store.clear_silent(clock.now() - 4 * DAY)
        assert await store.inbox_items([old.inbox_id]) == []

    async def test_what_goes_out_never_bears_a_number_that_went_out_before(
        self, store: Store, clock: FakeClock
    ) -> None:
        """A platform that knows the number would take the new words for a repeat."""
        ticket = await begin(store, "old")
        owed = OutboxDraft(CHAT, "zebra")
        (item,) = await store.finish_turn(ticket, ticket.session_id, "done", outbox=(owed,))
        (part,) = await store.plan_parts(item.id, [PartDraft({"text": "zebra"})])
        await store.mark_part(part.id, "sent", platform_message_id="77")
        clock.jump(20 * DAY)
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 1
        later = await store.owe(owed)
        (new,) = await store.plan_parts(later.id, [PartDraft({"text": "lion"})])
        assert (later.id > item.id, new.id > part.id) == (True, True)

    async def test_bills_outlive_their_conversations(self, store: Store, clock: FakeClock) -> None:
        await in_group(store, OWNER, "zebra", said("yes"))
        scope = LedgerScope(owner=OWNER)
        before = await store.ledger_lines(scope)
        clock.jump(10 * DAY)
        await self._news(store)
        assert (await store.clear_silent(clock.now() - 5 * DAY)).conversations == 1
        assert await store.ledger_lines(scope) == before

    async def test_search_forgets_it_too(self, store: Store, clock: FakeClock) -> None:
        await talk(store, said("zebrafish"))
        clock.jump(10 * DAY)
        await self._news(store)
        await store.clear_silent(clock.now() - 5 * DAY)
        assert await store.search("zebrafish", SearchScope()) == []

    async def _news(self, store: Store) -> None:
        await talk_at(store, OTHER_KEY, OTHER)


async def talk_at(store: Store, key: str, owner: str) -> None:
    ticket = await begin(store, "news", session_key=key, owner=owner)
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("and more"))
