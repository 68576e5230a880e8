"""Owns the tests of /forget me while people talk: what runs, what waits, what others are told."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from agent.mail import Address, OutboxDraft
from gateway.forgetting import words
from gateway.intake.access import AccessRules, PlatformPolicy
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_lineage_commands import below

KEY = '["fake","900","111",null,"111"]'
GROUP = '["fake","900","-5",null,null]'
OPEN = PlatformPolicy(
    AccessRules(allow_from=frozenset({"111", "222"}), admins=frozenset({"111"})),
    require_mention=False,
    group_sessions_per_user=False,
)


@pytest.fixture
def rig(clock: FakeClock) -> Rig:
    rig = Rig(clock, policy=OPEN)
    rig.platform.limit = 10_000
    return rig


class Talk:
    """Messages with numbers of their own."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.number = 0

    async def __call__(self, text: str, **changes: Any) -> str:
        self.number += 1
        await self.rig.intake.receive(inbound(text, message_id=str(self.number), **changes))
        await self.rig.settle()
        return self.rig.platform.texts()[-1]

    async def in_group(self, text: str, user: str) -> str:
        return await self(text, chat_kind="group", chat_id="-5", sender_id=user)


def code_in(text: str) -> str:
    found = re.search(r"yes-[a-z0-9]+", text)
    assert found is not None
    return found[0]


async def test_asked_pressed_gone_and_talking_on(rig: Rig) -> None:
    talk = Talk(rig)
    await talk("zebra")
    old = await rig.store.conversation_for_key(KEY)
    question = await talk("/forget me")
    assert "2 messages" in question
    ((label, command),) = below(rig)
    assert label == words.BUTTON
    assert command == f"/forget me {code_in(question)}"
    assert "Done. I have erased 2 messages in 1 conversation" in await talk(command)
    assert await rig.store.conversation_for_key(KEY) is None
    assert await talk("hello again") == "re: hello again"
    new = await rig.store.conversation_for_key(KEY)
    assert new is not None
    assert new.id != old.id
    assert await rig.rows(KEY) == [("user", "hello again"), ("assistant", "re: hello again")]


async def test_somebody_elses_code_erases_nothing(rig: Rig) -> None:
    talk = Talk(rig)
    await talk.in_group("zebra", "222")
    code = code_in(await talk.in_group("/forget me", "222"))
    await talk.in_group("lion", "111")
    assert await talk.in_group(f"/forget me {code}", "111") == words.WRONG
    assert ("user", "zebra") in [(role, text[-5:]) for role, text in await rig.rows(GROUP)]


@pytest.mark.parametrize("said", ["/forget me yes-zzzzzz", "/forget me yes-"])
async def test_a_wrong_code_says_how_to_begin(rig: Rig, said: str) -> None:
    talk = Talk(rig)
    await talk("zebra")
    assert await talk(said) == words.WRONG
    assert await talk("/forget me please") == words.USAGE


async def test_of_a_stranger_nothing_is_held(rig: Rig) -> None:
    assert await Talk(rig)("/forget me") == words.NOTHING


async def test_what_works_for_them_is_stopped_and_what_waits_is_not_asked(rig: Rig) -> None:
    talk = Talk(rig)
    await talk("first")
    rig.hold("endless", asyncio.Event())
    await talk("endless")
    await talk("waits behind it")
    code = code_in(await talk("/forget me"))
    await talk(f"/forget me {code}")
    for _ in range(10):
        await rig.clock.advance(1)
        await rig.settle()
    assert not rig.lanes.busy(KEY)
    assert await rig.store.conversation_for_key(KEY) is None
    assert "waits behind it" not in str(rig.loop.seen)
    assert await rig.store.open_inbox() == []
    assert await talk("hello again") == "re: hello again"


async def test_what_is_said_while_it_goes_on_begins_anew(rig: Rig) -> None:
    talk = Talk(rig)
    await talk("first")
    gate = asyncio.Event()

    async def erase(owner: str, whole: Any = rig.store.erase) -> Any:
        await gate.wait()
        return await whole(owner)

    rig.store.erase = erase
    code = code_in(await talk("/forget me"))
    await talk(f"/forget me {code}")
    await talk("meanwhile")
    assert "meanwhile" not in str(rig.loop.seen)
    gate.set()
    await rig.settle()
    assert await rig.rows(KEY) == [("user", "meanwhile"), ("assistant", "re: meanwhile")]


async def test_others_in_the_group_may_finish(rig: Rig) -> None:
    talk = Talk(rig)
    await talk.in_group("zebra", "222")
    code = code_in(await talk.in_group("/forget me", "222"))
    said = (await rig.rows(GROUP))[0][1]
    lion = said.replace("zebra", "lion").replace("222", "111")
    gate = asyncio.Event()
    rig.hold(lion, gate)
    await talk.in_group("lion", "111")
    await talk.in_group(f"/forget me {code}", "222")
    assert "Done" not in rig.platform.texts()[-1]
    gate.set()
    await rig.settle()
    assert "Done" in rig.platform.texts()[-1]
    rows = await rig.rows(GROUP)
    assert "zebra" not in str(rows)
    assert rows[-1][1] == f"re: {lion}"


async def test_answers_that_are_still_on_their_way_are_not_sent(rig: Rig) -> None:
    talk = Talk(rig)
    await talk("first")
    count = len(rig.platform.texts())
    code = code_in((await rig.forgetting.ask("fake:111"))[0])
    await rig.store.owe(OutboxDraft(Address("fake", "900", "111"), "zebra"))
    await rig.store.owe(OutboxDraft(Address("fake", "900", "222"), "lion"))
    assert await rig.forgetting.confirm("fake:111", code.removeprefix("yes-"))
    await rig.settle()
    rig.delivery.hand_over(await rig.store.owed())
    await rig.settle()
    assert rig.platform.texts()[count:] == ["lion"]
