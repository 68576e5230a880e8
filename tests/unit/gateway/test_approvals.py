"""What a tool may not do by itself: asked in the chat, answered by whoever may, once, or over."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from agent.approvals import Proposal
from agent.errors import StoreUnavailable
from agent.mail import OutboxDraft, PartDraft
from agent.messages import Draft
from gateway import approval_text as words
from gateway import texts
from gateway.approvals import REMEMBERED
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.records import record_of
from gateway.platforms.contract import EditRefused, SendFlood, SendUnavailable, SendUnknown
from gateway.questions import Answered
from gateway.tasks import StopSignal
from gateway.turns.task import Collected
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said

LS = Proposal("shell", "run this command", (("", "ls -la"),))
FIRST, SECOND = "300001", "300002"
KEY = '["fake","900","111",null,"111"]'
GROUP = {"chat_id": "-5", "chat_kind": "group"}


class Watched(FakePlatform):
    """Remembers what it was given to render."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.planned: list[OutboxDraft] = []

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        self.planned.append(draft)
        return super().render(draft)


class Talk:
    """A gateway whose turn for "go" asks whether it may run ``ls``."""

    def __init__(self, clock: FakeClock, **policy: Any) -> None:
        self.clock = clock
        rules = AccessRules(allow_from=frozenset({"111", "222", "333"}), admins=frozenset({"333"}))
        self.platform = Watched(limit=2000, now=clock.monotonic)
        self.rig = Rig(
            clock,
            policy=PlatformPolicy(rules, require_mention=False, **policy),
            platform=self.platform,
        )
        self.rulings: list[str] = []
        self.asks("go", LS)
        self._ids = iter(range(1, 100))

    def asks(self, text: str, *proposals: Proposal, at_once: bool = False) -> None:
        """The turn for this text asks for each, and says what came of it."""

        async def script(loop: Any, *_: object) -> Draft:
            approver = loop.contexts[-1].approver
            if at_once:
                rulings = await asyncio.gather(*map(approver.ask, proposals))
            else:
                rulings = [await approver.ask(p) for p in proposals]
            self.rulings.extend(r.words for r in rulings)
            return said(" + ".join("yes" if r.allowed else "no" for r in rulings))

        self.rig.loop.scripts[text] = script

    async def say(self, text: str, **changes: Any) -> None:
        message = inbound(text, message_id=str(next(self._ids)), **changes)
        await self.rig.intake.receive(message)
        await self.rig.settle()

    @property
    def shown(self) -> list[str]:
        return [sent.text for sent in self.platform.chat]


@pytest.fixture
def talk(clock: FakeClock) -> Talk:
    return Talk(clock)


async def test_it_asks_and_goes_on_when_it_may(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await talk.say("go")
    assert talk.shown == [words.question(LS, FIRST, 5)]
    assert "```\nls -la\n```" in talk.shown[0]
    assert f"/approve {FIRST} or /deny {FIRST} [why]" in talk.shown[0]
    await talk.clock.advance(7)
    await talk.say(f"/approve {FIRST}")
    assert talk.shown[1:] == [words.APPROVED, "yes"]
    assert talk.rulings == ["approved by the user"]
    line = next(r for r in caplog.records if r.getMessage() == "approval")
    told = {k: getattr(line, k) for k in ("tool", "decision", "asked", "by", "seconds", "what")}
    assert told == {
        "tool": "shell",
        "decision": "approved",
        "asked": "fake:111",
        "by": "fake:111",
        "seconds": 7.0,
        "what": LS.digest,
    }
    assert line.levelno == logging.INFO


async def test_the_question_has_buttons_that_say_the_commands(talk: Talk) -> None:
    await talk.say("go")
    [draft] = talk.platform.planned
    assert draft.asks
    assert [(b.label, b.command) for b in draft.buttons] == [
        ("Approve", f"/approve {FIRST}"),
        ("Deny", f"/deny {FIRST}"),
    ]
    assert draft.address.reply_to_message_id == "1"
    long = Proposal("shell", "run this command", (("", "x" * 3000),))
    talk.asks("long", long)
    await talk.say("/deny")
    await talk.say("long")
    draft = talk.platform.planned[-1]
    assert draft.buttons[-1].command == f"/approve {SECOND} show"
    assert all(len(b.command.encode()) <= 64 for b in draft.buttons)


@pytest.mark.parametrize("answer", ["/deny", f"/deny {FIRST}"])
async def test_a_no_is_told_to_the_model(talk: Talk, answer: str) -> None:
    await talk.say("go")
    await talk.say(answer)
    assert talk.shown[1:] == [words.DENIED, "no"]
    assert talk.rulings == [
        "denied by the user. It was not done; do not try to do the same in another way"
    ]


@pytest.mark.parametrize("answer", ["/deny too risky", f"/deny {FIRST}  too risky"])
async def test_and_why(talk: Talk, answer: str) -> None:
    await talk.say("go")
    await talk.say(answer)
    assert talk.rulings[0].startswith("denied by the user, who says: too risky. It was not done")


async def test_and_why_at_length(talk: Talk) -> None:
    await talk.say("go")
    await talk.say(f"/deny {'far ' * 300}too risky")
    assert "far too risky. It was not done" in talk.rulings[0]


async def test_no_answer_is_a_no_and_is_said(talk: Talk) -> None:
    talk.asks("go", LS, LS)
    await talk.say("go")
    await talk.clock.advance(299)
    assert talk.rulings == []
    await talk.clock.advance(2)
    await talk.rig.settle()
    assert talk.shown[1:] == [words.expired("run this command", 5), "no + no"]
    assert "not answered within 5 minutes" in talk.rulings[0]
    # Nobody is there: the second was not even asked.
    assert talk.rulings[1].startswith("not done and not asked")
    await talk.say(f"/approve {FIRST}")
    assert talk.shown[-1] == words.EXPIRED


async def test_a_stop_ends_the_wait_at_once(talk: Talk) -> None:
    await talk.say("go")
    await talk.say("/stop")
    assert talk.shown[1:] == [texts.STOPPED]
    assert talk.rulings == []
    await talk.say(f"/approve {FIRST}")
    await talk.say("/approve")
    assert talk.shown[2:] == [words.WITHDRAWN, words.NOTHING_OPEN]
    assert not talk.rig.lanes.busy(KEY)


async def test_each_press_too_many_has_its_words(talk: Talk) -> None:
    await talk.say(f"/approve {FIRST}")
    await talk.say("/approve")
    await talk.say("/deny")
    assert talk.shown == [words.OVER, words.NOTHING_OPEN, words.NOTHING_OPEN]
    gate = asyncio.Event()
    talk.rig.hold("later", gate)
    await talk.say("go")
    await talk.say(f"/approve {FIRST}")
    await talk.say(f"/approve {FIRST}")
    await talk.say(f"/deny {FIRST}")
    assert talk.shown[-2:] == [words.APPROVED_ALREADY, words.APPROVED_ALREADY]
    await talk.say("go")
    await talk.say(f"/deny {SECOND}")
    await talk.say(f"/approve {SECOND}")
    assert talk.shown[-1] == words.DENIED_ALREADY
    assert talk.rulings[0] == "approved by the user"
    assert talk.rulings[1].startswith("denied")


@pytest.mark.parametrize(
    "text",
    ["/approve yes please", f"/approve {FIRST} please", "/approve of course", "/approve 3f9"],
)
async def test_what_is_no_plain_yes_is_none(talk: Talk, text: str) -> None:
    await talk.say("go")
    await talk.say(text)
    assert talk.shown[1:] == [words.USAGE]
    assert talk.rulings == []
    await talk.say(f"/approve  {FIRST.upper()} ")
    assert talk.rulings == ["approved by the user"]


async def test_only_whoever_asked_may_answer(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("go", sender_id="111", **GROUP)
    for other in ("222", "333"):  # each has a conversation of their own here, admins too
        await talk.say(f"/approve {FIRST}", sender_id=other, **GROUP)
        await talk.say(f"/deny {FIRST}", sender_id=other, **GROUP)
        await talk.say("/approve", sender_id=other, **GROUP)
        await talk.say(f"/approve {FIRST} show", sender_id=other, **GROUP)
        expected = [words.NOT_YOURS, words.NOT_YOURS, words.NOTHING_OPEN, words.NOT_YOURS]
        assert talk.shown[-4:] == expected
    # In another chat one does not even learn that there is such a question.
    await talk.say(f"/approve {FIRST}", sender_id="222", chat_id="222")
    assert talk.shown[-1] == words.OVER
    # A stranger's press leaves no trace.
    before = len(talk.shown)
    await talk.say(f"/approve {FIRST}", sender_id="666", **GROUP)
    assert len(talk.shown) == before
    assert talk.rulings == []
    await talk.say(f"/approve {FIRST}", sender_id="111", **GROUP)
    assert talk.rulings == ["approved by the user"]


async def test_where_several_share_a_talk_an_admin_may_answer_too(clock: FakeClock) -> None:
    talk = Talk(clock, group_sessions_per_user=False)
    await talk.say("go", sender_id="111", **GROUP)
    assert "for whoever asked me, or an admin" in talk.shown[0]
    await talk.say("/approve", sender_id="222", **GROUP)
    assert talk.shown[-1] == words.NOT_YOURS
    await talk.say(f"/approve {FIRST}", sender_id="333", chat_id="-6", chat_kind="group")
    assert talk.shown[-1] == words.OVER
    await talk.say("/approve", sender_id="333", **GROUP)
    assert talk.shown[-2:] == [words.APPROVED, "yes"]


async def test_who_was_shut_out_meanwhile_answers_nothing(talk: Talk) -> None:
    await talk.say("go")
    talk.rig.policies["fake"] = PlatformPolicy(AccessRules())
    talk.rig.gate.changed()
    await talk.say(f"/approve {FIRST}")
    assert talk.rulings == []


async def test_questions_of_one_turn_come_one_by_one(talk: Talk) -> None:
    talk.asks("go", LS, LS, LS, at_once=True)
    await talk.say("go")
    assert len(talk.shown) == 1
    await talk.say("/approve")
    assert [FIRST in talk.shown[0], SECOND in talk.shown[-1]] == [True, True]
    # Two bare yeses in one breath: the second may have been meant for the first question.
    await talk.say("/approve")
    assert talk.shown[-1] == words.which([SECOND])
    await talk.say(f"/approve {SECOND}")
    await talk.clock.advance(11)
    await talk.say("/approve")
    assert talk.rulings == ["approved by the user"] * 3


async def test_a_yes_that_was_said_before_the_question_is_none(talk: Talk) -> None:
    await talk.say("go")
    record = replace(
        talk.rig.approvals._open[FIRST].record, received_at=talk.clock.now() - 5, text="/approve"
    )
    reply = talk.rig.approvals.answer(record, False, None, allow=True)
    assert reply.choices == (FIRST,)
    assert talk.rulings == []


async def test_all_of_what_is_long_can_be_seen(talk: Talk) -> None:
    text = "echo " + "".join(f"{n:05} " for n in range(400))
    long = Proposal("shell", "run this command", (("", text),))
    talk.asks("go", long)
    await talk.say("go")
    assert "characters left out" in talk.shown[0]
    assert long.digest in talk.shown[0]
    await talk.say(f"/approve {FIRST} show")
    listing = "".join(talk.shown[1:])
    assert all(f"{n:05}" in listing for n in range(400))
    assert talk.rulings == []
    await talk.say("/approve show")
    assert long.digest in "".join(talk.shown[3:])


# --- restarts, floods, stores


async def test_after_a_restart_an_old_button_answers_kindly(talk: Talk) -> None:
    talk.asks("go", LS)
    await talk.say("go")
    await talk.rig.stop()
    rows = await talk.rig.rows(KEY)
    assert rows == [("user", "go")]  # interrupted, not stopped: it goes on at the next start
    talk.rig.boot()
    talk.rig.loop.contexts.clear()
    await talk.rig.recovery.run()
    await talk.rig.settle()
    assert SECOND in talk.shown[-1]  # the turn asks again
    await talk.say(f"/approve {FIRST}")
    assert talk.shown[-1] == words.OVER
    await talk.say(f"/deny {FIRST}")
    assert talk.shown[-1] == words.OVER
    assert talk.rulings == []
    await talk.say(f"/approve {SECOND}")
    assert talk.shown[-1] == "yes"


async def test_a_question_does_not_hold_up_the_end(talk: Talk) -> None:
    await talk.say("go")
    talk.rig.approvals.close()
    await talk.rig.settle()
    assert not talk.rig.lanes.busy(KEY)
    [turn] = await talk.rig.store.recover_turns()
    assert turn.session_key == KEY


async def test_what_asks_on_the_way_down_ends_too(talk: Talk) -> None:
    talk.rig.approvals.close()
    await talk.say("go")
    assert talk.shown == []
    assert not talk.rig.lanes.busy(KEY)
    assert len(await talk.rig.store.recover_turns()) == 1


async def test_a_question_that_is_over_does_not_go_out(talk: Talk) -> None:
    talk.platform.fail(SendFlood(60))
    await talk.say("go")
    assert talk.shown == []
    await talk.say("/stop")
    await talk.clock.advance(61)
    await talk.rig.settle()
    assert talk.shown == [texts.STOPPED]


async def test_nor_in_another_run(talk: Talk) -> None:
    talk.platform.gate = asyncio.Event()
    await talk.say("go")
    talk.rig.kill()
    await talk.rig.settle()
    talk.rig.boot()
    talk.platform.gate = None
    talk.asks("go")
    await talk.rig.delivery.start()
    await talk.rig.settle()
    assert talk.shown == []


async def test_a_store_that_does_not_take_the_question_is_a_no(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no(*_: object) -> Any:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(talk.rig.store, "owe", no)
    await talk.say("go")
    assert talk.shown == ["no"]
    assert "could not be put" in talk.rulings[0]


async def test_who_writes_on_hears_that_an_answer_is_awaited(talk: Talk) -> None:
    await talk.say("go")
    await talk.say("yes")
    await talk.clock.advance(3)
    await talk.rig.settle()
    assert talk.shown[1:] == [words.WAITS_FOR_ANSWER]
    await talk.say("/approve")
    assert talk.shown[-2:] == ["yes", "re: yes"]


async def test_nobody_is_shown_as_writing_while_an_answer_is_awaited(talk: Talk) -> None:
    await talk.say("go")
    await talk.clock.advance(30)
    assert talk.platform.typed == []
    gate = asyncio.Event()
    talk.rig.hold("later", gate)
    await talk.say("/approve")
    await talk.say("later")
    await talk.clock.advance(30)
    assert talk.platform.typed != []
    gate.set()
    await talk.rig.settle()


async def test_a_chat_that_moves_takes_its_question_along(clock: FakeClock) -> None:
    talk = Talk(clock, group_sessions_per_user=False)
    await talk.say("go", sender_id="111", **GROUP)
    await talk.rig.intake.moved("fake", "900", "-5", "-1005")
    await talk.say(f"/approve {FIRST}", sender_id="333", chat_id="-1005", chat_kind="group")
    assert talk.rulings == ["approved by the user"]


async def test_many_questions_are_not_remembered_for_ever(talk: Talk) -> None:
    desk = talk.rig.approvals
    record = record_of(inbound("go"), kind="message", group_sessions_per_user=True, now=0.0)
    asking = desk.approver(record, "c", StopSignal(), Collected().make_way)
    for _ in range(REMEMBERED + 10):
        waiting = asyncio.ensure_future(asking.ask(LS))
        for _ in range(5):
            await asyncio.sleep(0)
        assert desk.is_asking(record.session_key)
        desk.answer(record, False, None, allow=False)
        await waiting
    assert desk.answer(record, False, FIRST, allow=True).answered is Answered.UNKNOWN
    assert len(desk._over) == REMEMBERED


# --- what becomes of the buttons


@pytest.mark.parametrize("word", [f"/approve {FIRST}", "/approve", "/deny", f"/deny {FIRST} no"])
async def test_a_question_that_is_answered_loses_its_buttons(talk: Talk, word: str) -> None:
    await talk.say("go")
    assert talk.platform.bare == []
    await talk.say(word)
    assert talk.platform.bare == [("111", "m0")]
    await talk.say(word)
    assert talk.platform.bare == [("111", "m0")]


async def test_so_does_one_that_is_over_in_another_way(talk: Talk) -> None:
    await talk.say("go")
    await talk.clock.advance(301)
    await talk.rig.settle()
    assert talk.platform.bare == [("111", "m0")]
    await talk.say("go")
    await talk.say("/stop")
    [_, second] = [n for n, text in enumerate(talk.shown) if text.startswith("May I")]
    assert talk.platform.bare[1:] == [("111", f"m{second}")]


async def test_who_may_not_answer_takes_no_buttons(clock: FakeClock) -> None:
    talk = Talk(clock)
    await talk.say("go", sender_id="111", **GROUP)
    await talk.say(f"/approve {FIRST}", sender_id="222", interaction="pressed", **GROUP)
    await talk.say("/approve show", sender_id="111", **GROUP)
    assert talk.platform.bare == []
    drafts = {draft.text: draft for draft in talk.platform.planned}
    refused = drafts[words.NOT_YOURS]
    assert (refused.aside, refused.decides, refused.interaction) == (True, False, "pressed")


async def test_a_press_on_what_is_over_takes_the_buttons_that_were_pressed(talk: Talk) -> None:
    await talk.say("go")
    await talk.say(f"/approve {FIRST}", interaction="first")
    await talk.say(f"/approve {FIRST}", interaction="second")
    await talk.say("/deny 999999", interaction="third")  # of an earlier run
    drafts = {draft.interaction: draft for draft in talk.platform.planned if draft.interaction}
    told = {key: (draft.decides, draft.aside) for key, draft in drafts.items()}
    assert told == {"first": (False, False), "second": (True, True), "third": (True, True)}


async def test_answered_while_it_is_on_its_way_it_loses_its_buttons_there(talk: Talk) -> None:
    talk.platform.gate = asyncio.Event()
    await talk.say("go")
    await talk.say(f"/approve {FIRST}")
    assert talk.platform.bare == []
    talk.platform.gate.set()
    await talk.rig.settle()
    assert talk.platform.bare == [("111", "m0")]


async def test_buttons_wait_for_what_the_chat_takes_and_then_stay(talk: Talk) -> None:
    talk.platform.bare_failures.extend([SendFlood(40), SendUnknown("?"), SendUnavailable("?")])
    await talk.say("go")
    await talk.say(f"/approve {FIRST}")
    assert len(talk.platform.bare) == 1
    await talk.clock.advance(39)
    await talk.rig.settle()
    assert len(talk.platform.bare) == 1
    for _ in range(2):
        await talk.clock.advance(130)
        await talk.rig.settle()
    assert len(talk.platform.bare) == 4
    talk.platform.bare_failures.append(EditRefused("it is gone"))
    await talk.say("go")
    await talk.say(f"/deny {SECOND}")
    await talk.clock.advance(600)
    await talk.rig.settle()
    assert len(talk.platform.bare) == 5
    assert talk.shown[-1] == "no"


async def test_in_a_chat_that_moved_no_other_message_loses_its_buttons(talk: Talk) -> None:
    await talk.say("go", **GROUP)
    talk.rig.approvals.moved("fake", "900", "-5", "-1005")
    await talk.say(f"/approve {FIRST}")
    assert talk.rulings == ["approved by the user"]
    assert talk.platform.bare == []
