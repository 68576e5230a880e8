"""Commands on whole conversations: back, forth, fork, elsewhere; once, by whom it may, in words."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from agent.lineages import Lineages
from agent.mail import Address, InboxRecord
from agent.messages import Draft, Keep, text_of
from agent.sessions import CompressionState, Session, SplitRequest, TurnOpening
from gateway import texts
from gateway.commands import lineage_text
from gateway.commands.lineage import hold_limit
from gateway.commands.listings import Listings
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.intake import IntakeLimits
from gateway.intake.keys import key_for
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said

KEY = '["fake","900","111",null,"111"]'
GROUP = {"chat_kind": "group", "chat_id": "-100"}
GROUP_KEY = '["fake","900","-100",null,"111"]'
TWO_PEOPLE = PlatformPolicy(
    AccessRules(allow_from=frozenset({"111", "222"}), admins=frozenset({"111"})),
    require_mention=False,
)
SHARED = replace(TWO_PEOPLE, group_sessions_per_user=False)
SECRET = "sk-ant-api03-" + "a1B2c3D4" * 8
numbers = itertools.count(1)


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryStore(clock, ids)
        return
    opened = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    yield opened
    await opened.close()


@pytest.fixture
def rig(clock: FakeClock, store: Any) -> Rig:
    made = Rig(clock, store=store, policy=TWO_PEOPLE)
    made.platform.limit = 4000
    return made


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a store that has threads of its own."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def say(rig: Rig, text: str, **changes: Any) -> str:
    """Say one thing and give back the answer to it."""
    count = len(rig.platform.chat)
    message = inbound(text, message_id=f"n{next(numbers)}", **changes)
    personal = rig.policies["fake"].group_sessions_per_user
    key = key_for(message, group_sessions_per_user=personal)
    await rig.intake.receive(message)
    await rig.platform.wait_for(count + 1)
    await until(lambda: not rig.dispatch.at_work(key))
    rig.clock.set_wall(rig.clock.now() + 60)
    return rig.platform.texts()[count]


def below(rig: Rig) -> list[tuple[str, str]]:
    """The buttons of the newest answer."""
    return [(button.label, button.command) for button in rig.platform.rendered[-1].buttons]


async def tip(rig: Rig, key: str = KEY) -> Session:
    conversation = await rig.store.conversation_for_key(key)
    return await rig.store.session(conversation.tip_session_id)  # type: ignore[no-any-return]


async def words(rig: Rig, key: str = KEY) -> list[str]:
    return [text for _, text in await rig.rows(key)]


async def compress(rig: Rig, key: str = KEY, *, summary: str | None = "what was said") -> None:
    """All but the last two rows becomes a summary; without one it is only left out."""
    loaded = await rig.store.load((await tip(rig, key)).id)
    instead = [
        Draft({"role": "user", "content": text}, kind="summary") for text in [summary] if text
    ]
    result = await rig.store.split(
        SplitRequest(
            conversation_id=loaded.session.conversation_id,
            parent_id=loaded.session.id,
            expected_revision=loaded.session.revision,
            covered_row_id=loaded.last_row_id,
            entries=(*instead, *(Keep(row.id) for row in loaded.rows[-2:])),
            compression=loaded.session.compression.changed(
                count=loaded.session.compression.count + 1, awaiting_usage=True
            ),
        )
    )
    assert result.applied


async def steered_turn(rig: Rig) -> None:
    """A turn into which somebody said more; it is over."""
    store, prefix = rig.store, (await tip(rig)).prefix
    owner = (await store.conversation_for_key(KEY)).owner
    asked = Draft({"role": "user", "content": "And Oslo?"})
    ticket = await store.begin_turn(TurnOpening(KEY, owner, (), asked, prefix))
    address = Address("fake", "900", "111")
    more = InboxRecord(address, "s1", "message", KEY, owner, "and Rome?", 0.0, 0.0)
    receipt = await store.accept(more)
    meanwhile = Draft({"role": "user", "content": "and Rome?"})
    await store.steer(ticket, ticket.session_id, (receipt.inbox_id,), meanwhile)
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("Both."))


async def one_tip_each(rig: Rig) -> None:
    """Whatever happened: one live tip per conversation, and one way at most to each."""
    live: dict[str, int] = {}
    for info in await rig.store.list_sessions(limit=1000):
        live[info.conversation_id] = live.get(info.conversation_id, 0) + (info.ended_at is None)
    assert set(live.values()) <= {0, 1}


# --- /undo --------------------------------------------------------------------------------------


async def test_undo_takes_back_the_last_message_and_says_which(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, f"my key is {SECRET} and\nmore {'words ' * 40}")
    answer = await say(rig, "/undo")
    assert "Taken back: your last message" in answer
    assert "- my key is [REDACTED] and more words" in answer
    assert "…" in answer
    assert "a1B2c3D4" not in answer
    assert await words(rig) == ["one", "re: one"]
    await say(rig, "three")
    assert await words(rig) == ["one", "re: one", "three", "re: three"]


async def test_undo_more_than_there_is(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    answer = await say(rig, "/undo 2")
    assert "your last 2 messages and all that came of them." in answer
    assert "- two\n- three" in answer
    answer = await say(rig, "/undo 99")
    assert "- one" in answer
    assert "not go further back" in answer
    assert await words(rig) == []
    assert await say(rig, "/undo") == lineage_text.NOTHING_TO_TAKE_BACK
    await say(rig, "anew")
    assert await words(rig) == ["anew", "re: anew"]


@pytest.mark.parametrize("argument", ["0", "-1", "two", "1.5", "9" * 30, "٣ ٣", "1 2"])
async def test_undo_of_what_is_no_number(rig: Rig, argument: str) -> None:
    await say(rig, "one")
    assert await say(rig, f"/undo {argument}") == lineage_text.UNDO_USAGE
    assert await words(rig) == ["one", "re: one"]


async def test_undo_stops_at_a_summary(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    await compress(rig)
    answer = await say(rig, "/undo 5")
    assert "- three" in answer
    assert lineage_text.BEHIND_THE_SUMMARY in answer
    assert await words(rig) == ["what was said"]
    answer = await say(rig, "/undo")
    assert answer == f"{lineage_text.NOTHING_TO_TAKE_BACK} {lineage_text.BEHIND_THE_SUMMARY}"
    assert "/uncompress brings it back" in await say(rig, "/retry")
    await say(rig, "/uncompress")
    assert "- two" in await say(rig, "/undo"), "three was taken back before"
    assert lineage_text.BEHIND_THE_SUMMARY not in await say(rig, "/undo 9")


async def test_undo_stops_where_an_engine_left_messages_out(rig: Rig) -> None:
    """Without a summary in their place: /uncompress leads back all the same."""
    for text in ("one", "two", "three"):
        await say(rig, text)
    await compress(rig, summary=None)
    answer = await say(rig, "/undo 5")
    assert "- three" in answer
    assert lineage_text.LEFT_OUT in answer
    answer = await say(rig, "/undo")
    assert answer == f"{lineage_text.NOTHING_TO_TAKE_BACK} {lineage_text.LEFT_OUT}"
    await say(rig, "/uncompress")
    assert "- two" in await say(rig, "/undo")
    answer = await say(rig, "/undo 9")
    assert "- one" in answer
    assert lineage_text.NOTHING_FURTHER_BACK in answer


@pytest.mark.parametrize(
    ("summary", "told"),
    [("so far", lineage_text.BEHIND_THE_SUMMARY), (None, lineage_text.LEFT_OUT)],
)
async def test_undo_of_the_rest_of_a_turn_says_so(rig: Rig, summary: str | None, told: str) -> None:
    """One message was asked for and one is taken; the turn's beginning is known all the same."""
    await say(rig, "one")
    await steered_turn(rig)
    await compress(rig, summary=summary)
    answer = await say(rig, "/undo")
    assert "Taken back: your last message" in answer
    assert "- and Rome?" in answer
    assert told in answer


async def test_a_copy_behind_a_summary_says_where_the_messages_are(rig: Rig) -> None:
    for text in ("one", "two"):
        await say(rig, text)
    await compress(rig)
    origin = (await tip(rig)).conversation_id
    await say(rig, "/undo")
    await say(rig, "/branch")
    assert lineage_text.ONLY_A_SUMMARY in await say(rig, "/undo")
    assert f"/resume {origin} leads there" in await say(rig, "/uncompress")
    fork = (await tip(rig)).conversation_id
    assert "1. (only a summary so far): " in await say(rig, "/sessions")
    await say(rig, f"/resume {origin}")
    assert "(only a summary so far)" in await say(rig, "/sessions")
    assert "Back in (only a summary so far)" in await say(rig, f"/resume {fork}")


async def test_nothing_to_work_on(rig: Rig) -> None:
    for command in ("/undo", "/uncompress", "/branch", "/title", "/title x", "/lineage"):
        assert await say(rig, command) == texts.NO_CONVERSATION
    for command in ("/sessions", "/resume"):
        assert await say(rig, command) == lineage_text.NO_SESSIONS
    assert await say(rig, "/retry") == texts.NOTHING_TO_RETRY
    assert rig.loop.seen == []
    await say(rig, "/new")
    assert await say(rig, "/branch") == lineage_text.NOTHING_TO_BRANCH
    assert await say(rig, "/uncompress") == lineage_text.NOT_COMPRESSED_YET
    assert await say(rig, "/retry") == texts.NOTHING_TO_RETRY
    assert "(nothing said yet): 0 messages" in await say(rig, "/sessions")


async def test_an_undo_behind_a_crash_is_not_done_twice(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    real = rig.store.undo
    done = asyncio.Event()

    async def killed(*args: Any, **kwargs: Any) -> Any:
        await real(*args, **kwargs)
        done.set()
        rig.kill()
        await asyncio.Event().wait()

    rig.store.undo = killed
    await rig.intake.receive(inbound("/undo", message_id="u"))
    await until(done.is_set)
    rig.store.undo = real
    rig.boot()
    await rig.recovery.run()
    await rig.platform.wait_for(4)
    assert "- three" in rig.platform.texts()[-1]
    assert await words(rig) == ["one", "re: one", "two", "re: two"]
    assert await rig.store.open_inbox() == []


async def test_an_undo_whose_outcome_is_unknown_is_told_once(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "two")
    real = rig.store.undo

    async def unknown(*args: Any, **kwargs: Any) -> Any:
        await real(*args, **kwargs)
        raise StoreUnavailable("it did happen, in fact")

    rig.store.undo = unknown
    assert "- two" in await say(rig, "/undo")
    await rig.settle()
    assert len(rig.platform.chat) == 3
    assert await words(rig) == ["one", "re: one"]


async def test_undo_while_a_turn_waits_takes_what_was_said_before_it(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.hold("long", gate)
    await rig.intake.receive(inbound("long", message_id="1"))
    await rig.loop.started("long")
    await rig.intake.receive(inbound("/undo", message_id="2"))
    await rig.intake.receive(inbound("next", message_id="3"))
    await rig.settle()
    gate.set()
    await rig.platform.wait_for(3)
    await rig.settle()
    assert rig.platform.texts()[0] == "re: long"
    assert "- long" in rig.platform.texts()[1]
    assert await words(rig) == ["next", "re: next"]


# --- /retry -------------------------------------------------------------------------------------


async def test_retry_asks_the_same_again(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "two", quoted_text="what you said")
    sent = (await rig.store.load((await tip(rig)).id)).rows[-2].wire_content
    assert "in reply to" in str(sent)

    async def otherwise(*_: Any) -> Draft:
        return said("otherwise")

    rig.loop.scripts["two"] = otherwise
    assert await say(rig, "/retry") == "otherwise"
    assert await words(rig) == ["one", "re: one", "two", "otherwise"]
    assert (await rig.store.load((await tip(rig)).id)).rows[-2].wire_content == sent
    assert [m["content"] for m in rig.loop.seen[-1]] == ["one", "re: one", "two"]
    assert not any("/retry" in str(m) for seen in rig.loop.seen for m in seen)
    await say(rig, "/undo")
    assert await words(rig) == ["one", "re: one"]


async def test_retry_of_a_turn_that_was_stopped(rig: Rig) -> None:
    rig.hold("long", asyncio.Event())
    await rig.intake.receive(inbound("long", message_id="1"))
    await rig.loop.started("long")
    assert await say(rig, "/stop") == texts.STOPPED
    rig.loop.scripts.clear()
    assert await say(rig, "/retry") == "re: long"
    assert await words(rig) == ["long", "re: long"]


@pytest.mark.parametrize("moment", ["before", "after", "at work"])
async def test_a_retry_killed_at_any_moment_happens_once(rig: Rig, moment: str) -> None:
    await say(rig, "one")
    await say(rig, "two")
    real = rig.store.retry
    reached = asyncio.Event()

    async def killed(opening: Any) -> Any:
        if moment == "after":
            await real(opening)
        reached.set()
        await asyncio.Event().wait()

    if moment == "at work":
        rig.hold("two", asyncio.Event())
        seen = len(rig.loop.seen)
    else:
        rig.store.retry = killed
    await rig.intake.receive(inbound("/retry", message_id="r"))
    if moment == "at work":
        await until(lambda: len(rig.loop.seen) > seen)
    else:
        await reached.wait()
    rig.kill()
    await rig.settle()
    rig.store.retry = real
    rig.loop.scripts.clear()
    rig.boot()
    report = await rig.recovery.run()
    assert (report.resumed, report.replayed) == ((0, 1) if moment == "before" else (1, 0))
    await rig.platform.wait_for(3)
    await rig.settle()
    assert rig.platform.texts() == ["re: one", "re: two", "re: two"]
    assert await words(rig) == ["one", "re: one", "two", "re: two"]
    assert await rig.store.open_inbox() == []
    assert await rig.store.recover_turns() == []


async def test_a_retry_that_was_stopped_before_it_began_takes_nothing_back(rig: Rig) -> None:
    await say(rig, "one")
    real, tried = rig.store.retry, asyncio.Event()

    async def retry(opening: Any) -> Any:
        if tried.is_set():
            return await real(opening)
        tried.set()
        raise StoreUnavailable("disk full")

    rig.store.retry = retry
    await rig.intake.receive(inbound("/retry", message_id="r"))
    await tried.wait()
    assert await say(rig, "/stop") == texts.STOPPED
    assert await words(rig) == ["one", "re: one"]
    assert await rig.store.open_inbox() == []


async def test_stop_hits_a_retry_and_it_can_be_retried(rig: Rig) -> None:
    await say(rig, "one")
    rig.hold("one", asyncio.Event())
    seen = len(rig.loop.seen)
    await rig.intake.receive(inbound("/retry", message_id="r"))
    await until(lambda: len(rig.loop.seen) > seen)
    assert await say(rig, "/stop") == texts.STOPPED
    assert await words(rig) == ["one"]
    rig.loop.scripts.clear()
    assert await say(rig, "/retry") == "re: one"


# --- /uncompress --------------------------------------------------------------------------------


async def test_uncompress_brings_everything_back_and_holds(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    whole = await words(rig)
    await compress(rig)
    await say(rig, "four")
    assert await words(rig) == ["what was said", "three", "re: three", "four", "re: four"]
    limit = hold_limit(rig_triggers(rig))
    answer = await say(rig, "/uncompress")
    assert "8 messages word for word again" in answer
    assert f"{limit:,} tokens" in answer
    assert await words(rig) == [*whole, "four", "re: four"]
    session = await tip(rig)
    assert session.compression == CompressionState(count=1, hold_tokens=limit)
    chain = await rig.store.lineage(session.id)
    assert [s.end_reason for s in chain] == ["compression", "uncompress", None]
    assert await say(rig, "/uncompress") == lineage_text.UNCOMPRESSED_ALREADY
    shown = await say(rig, "/lineage")
    assert "ended by /uncompress" in shown
    await one_tip_each(rig)


def rig_triggers(rig: Rig) -> Any:
    return rig.dispatch._host.status.triggers()


async def test_uncompress_that_does_not_fit_is_refused_with_the_numbers(rig: Rig) -> None:
    limit = hold_limit(rig_triggers(rig))
    assert limit == 160_000

    async def ok(*_: Any) -> Draft:
        return said("ok")

    for n in range(8):
        rig.loop.scripts[text := f"{n}{'x' * 90_000}"] = ok
        await say(rig, text)
    await say(rig, "short")
    await compress(rig)
    before = await tip(rig)
    answer = await say(rig, "/uncompress")
    assert answer.startswith("Not uncompressed")
    for number in ("160,000", "200,000"):
        assert number in answer
    assert await tip(rig) == before


async def test_the_hold_never_lies_where_an_answer_would_not_fit(rig: Rig) -> None:
    triggers = rig_triggers(rig)
    assert hold_limit(replace(triggers, window_tokens=8000, max_tokens=2000)) == 6000
    assert hold_limit(replace(triggers, window_tokens=1_000_000)) == 800_000


@pytest.mark.parametrize("times", [2, 3])
async def test_uncompress_as_often_as_it_was_compressed(rig: Rig, times: int) -> None:
    said_: list[str] = []
    for n in range(times):
        for text in (f"a{n}", f"b{n}", f"c{n}"):
            await say(rig, text)
            said_ += [text, f"re: {text}"]
        await compress(rig)
    for _ in range(times):
        assert "word for word" in await say(rig, "/uncompress")
    assert await words(rig) == said_
    assert await say(rig, "/uncompress") == lineage_text.UNCOMPRESSED_ALREADY


async def test_uncompress_asked_twice_at_once_is_done_once(rig: Rig) -> None:
    for n in range(2):
        for text in (f"a{n}", f"b{n}"):
            await say(rig, text)
        await compress(rig)
    await asyncio.gather(
        *(rig.intake.receive(inbound("/uncompress", message_id=f"u{n}")) for n in range(2))
    )
    await rig.platform.wait_for(6)
    await rig.settle()
    assert all("word for word" in text for text in rig.platform.texts()[-2:])
    assert await words(rig) == ["what was said", "b0", "re: b0", "a1", "re: a1", "b1", "re: b1"]
    await one_tip_each(rig)


async def test_uncompress_overtaken_by_a_split(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, text)
    await compress(rig)
    real = rig.store.uncompress

    async def overtaken(request: Any) -> Any:
        await compress(rig)
        return await real(request)

    rig.store.uncompress = overtaken
    assert await say(rig, "/uncompress") == lineage_text.MOVED_ON
    await one_tip_each(rig)


async def test_status_after_a_compression_tells_the_estimate(rig: Rig) -> None:
    await say(rig, "one")
    await compress(rig)
    assert "Context: about 1,234 tokens (estimated; it was just compressed)" in await say(
        rig, "/status"
    )


# --- /branch ------------------------------------------------------------------------------------


async def test_branch_goes_on_in_a_copy_and_back(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "/title plan")
    origin = (await tip(rig)).conversation_id
    answer = await say(rig, "/branch")
    assert "/resume plan leads back" in answer
    assert "“plan (2)”" in answer
    assert "all 2 messages" in answer
    await say(rig, "other way")
    fork = await tip(rig)
    assert (fork.link, fork.conversation_id == origin) == ("branch", False)
    assert await words(rig) == ["one", "re: one", "other way", "re: other way"]
    assert "/resume plan leads back" in await say(rig, "/lineage")
    assert "Back in “plan”: 2 messages" in await say(rig, f"/resume {origin}")
    assert await words(rig) == ["one", "re: one"]
    shown = await say(rig, "/sessions")
    assert "1. “plan (2)”: 4 messages, 3 minutes ago" in shown
    assert "2. “plan”: 2 messages, 6 minutes ago ← here" in shown
    await one_tip_each(rig)


async def test_a_copy_behind_a_summary_says_what_it_holds(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "/title My trip")
    await compress(rig)
    await say(rig, "two")
    await compress(rig)
    assert await say(rig, "/title") == lineage_text.titled("My trip")
    answer = await say(rig, "/branch")
    assert "“My trip (2)”" in answer
    kept = [row for row in (await rig.store.load((await tip(rig)).id)).rows if row.kind is None]
    assert len(kept) == 2
    assert "the summary and the last 2 messages" in answer
    assert "/resume My trip leads back" in answer
    assert "Back in “My trip”" in await say(rig, "/resume my trip"), "not “My trip (2)”"


async def test_a_name_that_would_mean_something_else_does_not_lead_back(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "/title 2")
    origin = (await tip(rig)).conversation_id
    assert f"/resume {origin} leads back" in await say(rig, "/branch")


async def test_a_copy_of_nothing_but_a_summary_is_not_zero_messages(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "two")
    await say(rig, "/title My trip")
    await compress(rig)
    await say(rig, "/undo")
    assert "it holds the summary." in await say(rig, "/branch")
    assert "“My trip (2)”: only a summary so far" in await say(rig, "/sessions")


@pytest.mark.parametrize("command", ["/branch", "/uncompress"])
async def test_a_command_killed_before_its_answer_is_not_done_twice(rig: Rig, command: str) -> None:
    for n in range(2):
        for text in (f"a{n}", f"b{n}"):
            await say(rig, text)
        await compress(rig)
    real = rig.store.answer_inbox

    reached = asyncio.Event()

    async def killed(*_: Any, **__: Any) -> Any:
        reached.set()
        rig.kill()
        await asyncio.Event().wait()

    rig.store.answer_inbox = killed
    before = len(await rig.store.list_sessions())
    await rig.intake.receive(replace(inbound(command, message_id="c"), sent_at=rig.clock.now()))
    await reached.wait()
    await rig.settle()
    rig.store.answer_inbox = real
    rig.boot()
    await rig.recovery.run()
    await rig.platform.wait_for(5)
    assert len(await rig.store.list_sessions()) == before + 1
    assert ("copy" if command == "/branch" else "word for word") in rig.platform.texts()[-1]


# --- /title, /sessions, /resume -----------------------------------------------------------------


async def test_title_shows_and_sets(rig: Rig) -> None:
    await say(rig, "one")
    assert await say(rig, "/title") == lineage_text.NO_TITLE
    answer = await say(rig, "/title  holiday\u202e in\u200b 山 ")
    assert answer == lineage_text.named("holiday in 山")
    assert await say(rig, "/title") == lineage_text.titled("holiday in 山")
    assert await say(rig, "/title \u200b\u2060") == lineage_text.NOTHING_IN_TITLE
    assert await say(rig, "/title") == lineage_text.NO_TITLE
    long = await say(rig, f"/title {'y' * 400}")
    assert "y" * 100 in long
    assert "y" * 101 not in long


async def test_sessions_are_listed_newest_first_and_found(rig: Rig) -> None:
    await say(rig, "the lighthouse stands in the fog")
    await say(rig, "/new")
    await say(rig, f"{SECRET} second one")
    await say(rig, "/title harbour")
    await say(rig, "/new")
    await say(rig, "third\none")
    shown = (await say(rig, "/sessions")).split("\n")
    assert shown == [
        "1. third one: 2 messages, 1 minute ago ← here",
        "2. “harbour”: 2 messages, 4 minutes ago",
        "3. the lighthouse stands in the fog: 2 messages, 6 minutes ago",
        lineage_text.RESUME_HINT,
    ]
    assert "“harbour”" in await say(rig, "/sessions HARBOUR")
    assert "harbour" not in await say(rig, "/sessions lighthouse")
    assert "“harbour”" in await say(rig, "/sessions second")
    assert "no conversation" in await say(rig, "/sessions volcano")
    assert "1. third one" in await say(rig, "/resume")


async def test_resume_by_number_means_the_list_that_was_shown(rig: Rig) -> None:
    for text in ("one", "two", "three"):
        await say(rig, "/new")
        await say(rig, text)
    await say(rig, "/sessions")
    assert "Back in “two”: 2 messages, the last" in await say(rig, "/resume 2")
    assert await words(rig) == ["two", "re: two"]
    await say(rig, "more")  # two is the newest now, and still the second of the list
    assert "Back in “one”" in await say(rig, "/resume 3")
    assert await say(rig, "/resume 3") == lineage_text.ALREADY_HERE
    assert "Back in “two”" in await say(rig, "/resume 2")
    assert await words(rig) == ["two", "re: two", "more", "re: more"]
    assert "no conversation" in await say(rig, "/resume 7")
    await one_tip_each(rig)


async def test_a_long_list_comes_page_by_page_and_its_numbers_stay(rig: Rig) -> None:
    for n in range(1, 13):
        await say(rig, "/new")
        await say(rig, f"talk {n}")
    first = await say(rig, "/sessions")
    assert "10. talk 3:" in first
    assert "… and 2 more; /sessions 2 shows the next." in first
    buttons = below(rig)
    assert [label for label, _ in buttons] == [*map(str, range(2, 11)), lineage_text.OLDER]
    assert buttons[-1] == (lineage_text.OLDER, "/sessions 2")
    await say(rig, buttons[8][1])  # the tenth is the newest now, and still the tenth
    await say(rig, "more")
    second = await say(rig, "/sessions 2")
    assert [line.partition(":")[0] for line in second.split("\n")] == [
        "11. talk 2", "12. talk 1", lineage_text.RESUME_HINT,
    ]  # fmt: skip
    pressed = dict(below(rig))
    assert list(pressed) == ["11", "12", lineage_text.NEWER]
    assert "Back in “talk 1”" in await say(rig, pressed["12"])
    assert "Back in “talk 2”" in await say(rig, "/resume 11")
    assert "no conversation" in await say(rig, "/sessions 77")  # then it is a word
    assert "Several" in await say(rig, "/resume talk")
    assert [label for label, _ in below(rig)][-1] == "10"


def test_listings_forget_the_place_that_was_shown_longest_ago() -> None:
    listings = Listings(max_places=2)
    for key in ("a", "b", "a", "c"):
        listings.remember(key, [key])
    assert [listings.of(key) for key in "abc"] == [("a",), (), ("c",)]


async def test_a_lineage_of_one_session_has_no_order(rig: Rig) -> None:
    await say(rig, "one")
    assert (await say(rig, "/lineage")).startswith("This conversation has one session:\n1. ")


async def test_resume_by_title_part_of_it_id_and_session(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "/title red house")
    first = await tip(rig)
    await compress(rig)
    await say(rig, "/new")
    await say(rig, "two")
    await say(rig, "/title red boat")
    await say(rig, "/new")
    await say(rig, "2024")
    assert "Several" in (answer := await say(rig, "/resume red"))
    assert "1. “red boat”" in answer
    assert "2. “red house”" in answer
    assert "Back in “red house”" in await say(rig, "/resume 2")
    assert "Back in “red boat”" in await say(rig, "/resume RED BOAT")
    assert "Back in “red house”" in await say(rig, f"/resume {first.id}")
    assert "Back in “2024”" in await say(rig, "/resume 2024")
    assert "Back in “red house”" in await say(rig, f"/resume {first.conversation_id}")
    assert (await tip(rig)).parent_session_id == first.id


async def test_nobody_reaches_what_is_not_theirs(rig: Rig) -> None:
    await say(rig, "one")
    await say(rig, "/title mine")
    mine = await tip(rig)
    await say(rig, "/new")
    await say(rig, "hello", sender_id="222", chat_id="222")
    for argument in (mine.id, mine.conversation_id, "mine", "one", "2"):
        answer = await say(rig, f"/resume {argument}", sender_id="222", chat_id="222")
        assert answer == lineage_text.found_nothing(argument)
    assert "mine" not in await say(rig, "/sessions", sender_id="222", chat_id="222")
    assert "no conversation" in await say(rig, "/sessions one", sender_id="222", chat_id="222")
    assert await words(rig, '["fake","900","222",null,"222"]') == ["hello", "re: hello"]


async def test_what_was_said_in_private_is_not_carried_into_a_group(rig: Rig) -> None:
    await say(rig, "private")
    private = (await tip(rig)).conversation_id
    await say(rig, "public", **GROUP)
    assert "private" not in await say(rig, "/sessions", **GROUP)
    assert "no conversation" in await say(rig, f"/resume {private}", **GROUP)
    # the other way is one's own business; from there it does not come back
    shown = await say(rig, "/sessions")
    assert "1. public: 2 messages, 3 minutes ago, open in another chat" in shown
    moved = await say(rig, "/resume 1")
    assert "open in another chat" in moved
    await say(rig, "between us")
    assert "between us" not in "".join(
        [await say(rig, "/sessions", **GROUP), await say(rig, "/resume public", **GROUP)]
    )
    await say(rig, "what now?", **GROUP)
    assert await words(rig, GROUP_KEY) == ["what now?", "re: what now?"]
    assert await words(rig) == ["public", "re: public", "between us", "re: between us"]
    await one_tip_each(rig)


async def test_a_conversation_at_work_elsewhere_stays_there(rig: Rig) -> None:
    gate = asyncio.Event()
    rig.hold("long", gate)
    await say(rig, "private")
    await rig.intake.receive(inbound("long", message_id="g", **GROUP))
    await rig.loop.started("long")
    assert await say(rig, "/resume long") == lineage_text.BUSY_ELSEWHERE
    # and the store knows it, whatever the lanes say
    object.__setattr__(rig.dispatch._host, "busy", lambda key: False)
    assert await say(rig, "/resume long") == lineage_text.BUSY_ELSEWHERE
    gate.set()
    await rig.platform.wait_for(4)
    await until(lambda: not rig.dispatch.at_work(GROUP_KEY))
    assert "Back in “long”" in await say(rig, "/resume long")
    assert await words(rig) == ["long", "re: long"]


async def test_a_shared_conversation_stays_where_it_was_shared(
    clock: FakeClock, store: Any
) -> None:
    rig = Rig(clock, store=store, policy=SHARED)
    rig.platform.limit = 4000
    await say(rig, "ours", sender_id="111", **GROUP)
    ours = await tip(rig, '["fake","900","-100",null,null]')
    await say(rig, "mine")
    assert "ours" not in await say(rig, "/sessions")
    assert "no conversation" in await say(rig, f"/resume {ours.conversation_id}")
    await say(rig, "/new", sender_id="111", **GROUP)
    await say(rig, "next", sender_id="222", **GROUP)
    for command in ("/resume 2", "/undo", "/retry", "/branch", "/uncompress", "/title x", "/new"):
        assert await say(rig, command, sender_id="222", **GROUP) == texts.ADMIN_ONLY
    shown = await say(rig, "/sessions", sender_id="222", **GROUP)
    assert "2. ours" in shown
    assert "mine" not in shown
    assert await say(rig, "/title", sender_id="222", **GROUP) == lineage_text.NO_TITLE
    assert "Back in “ours”" in await say(rig, "/resume 2", sender_id="111", **GROUP)


async def test_a_conversation_ended_by_new_lives_again(rig: Rig) -> None:
    await say(rig, "one")
    first = await tip(rig)
    await say(rig, "/new")
    await say(rig, "two")
    await say(rig, f"/resume {first.id}")
    session = await tip(rig)
    assert (session.id, session.ended_at, session.end_reason) == (first.id, None, None)
    assert await say(rig, "three") == "re: three"
    assert await words(rig) == ["one", "re: one", "three", "re: three"]


# --- together -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("/undo", ["one", "re: one"]),
        ("/retry", ["one", "re: one", "long", "re: long"]),
        ("/branch", ["one", "re: one", "long", "re: long"]),
        ("/resume old", ["old", "re: old"]),
        ("/new", []),
    ],
)
@pytest.mark.parametrize("orderly", [True, False])
async def test_what_waits_behind_a_turn_that_is_cut_off_keeps_its_place(
    rig: Rig, command: str, left: list[str], orderly: bool
) -> None:
    """The turn is resumed first, then the command runs, once, on what came of it."""
    await say(rig, "old")
    await say(rig, "/new")
    await say(rig, "one")
    rig.hold("long", asyncio.Event())
    await rig.intake.receive(inbound("long", message_id="l"))
    await rig.loop.started("long")
    await rig.intake.receive(inbound(command, message_id="c"))
    await rig.settle()
    if orderly:
        await rig.stop()
    else:
        rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    rig.boot()
    report = await rig.recovery.run()
    assert (report.resumed, report.replayed) == (1, 1)
    await rig.platform.wait_for(5)
    await until(lambda: not rig.dispatch.at_work(KEY))
    assert rig.platform.texts()[3] == "re: long"
    assert len(rig.platform.chat) == 5
    assert await words(rig) == left
    assert await rig.store.open_inbox() == []
    assert await rig.store.recover_turns() == []
    await one_tip_each(rig)


async def test_commands_that_wait_count_for_the_queue(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store, limits=IntakeLimits(queue_limit=2))
    gate = asyncio.Event()
    rig.hold("long", gate)
    for n, text in enumerate(["long", "/undo", "/branch", "/retry", "/status"]):
        await rig.intake.receive(inbound(text, message_id=str(n)))
        await rig.settle()
    await rig.platform.wait_for(2)
    assert texts.queue_full(2) in rig.platform.texts()
    assert any("waiting" in text for text in rig.platform.texts())
    gate.set()


async def test_a_store_that_fails_in_the_middle_is_told(rig: Rig) -> None:
    await say(rig, "one")

    async def unknown(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("disk")

    rig.store.branch = unknown
    assert await say(rig, "/branch") == texts.COMMAND_IN_DOUBT


async def test_an_answer_is_never_text_for_the_model(rig: Rig) -> None:
    await say(rig, "one")
    for command in ("/undo", "/branch", "/sessions", "/title x", "/lineage", "/uncompress"):
        await say(rig, command)
    assert all(text_of(m["content"])[0] != "/" for seen in rig.loop.seen for m in seen)
    _: Lineages = rig.store
