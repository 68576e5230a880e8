"""The budget per person and day: warned, refused, never locked out for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.errors import StoreUnavailable
from agent.ledger import LedgerScope, RequestEntry
from agent.ports import Usage
from gateway.accounts import Accounts
from gateway.intake.access import AccessRules, PlatformPolicy
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said

BERLIN = ZoneInfo("Europe/Berlin")
MODEL = "claude-sonnet-5-5"
DIME = Usage(input_tokens=50_000, model=MODEL)
"""Ten cents at two dollars a million."""
TWO = PlatformPolicy(AccessRules(allow_from=frozenset({"111", "112"})))
HOUR = 3600.0


def noon(date: str = "2026-11-30") -> float:
    return datetime.fromisoformat(f"{date}T12:00").replace(tzinfo=BERLIN).timestamp()


class Payer(Rig):
    """A gateway where each answer costs ten cents of a budget of fifty."""

    usd_per_user_day: float | None = 0.5

    def __init__(self, clock: FakeClock, **options: Any) -> None:
        clock.set_wall(noon())
        platform = FakePlatform(now=clock.monotonic, limit=9_999)
        super().__init__(clock, policy=TWO, platform=platform, **options)
        self.loop.usage = DIME
        self._sent = 0

    async def say(
        self, text: str = "hi", sender: str = "111", chat: str | None = None
    ) -> list[str]:
        """Say something; what comes of it."""
        before = len(self.platform.texts())
        self._sent += 1
        await self.intake.receive(
            inbound(
                text,
                message_id=str(self._sent),
                sender_id=sender,
                chat_id=chat or sender,
                sent_at=self.clock.now(),
            )
        )
        await self.settle()
        return self.platform.texts()[before:]

    async def spend(self, answers: int, **where: Any) -> list[str]:
        texts = []
        for _ in range(answers):
            texts += await self.say(**where)
        return texts


def is_refusal(texts: list[str]) -> bool:
    return len(texts) == 1 and "is used up" in texts[0]


async def test_free_then_warned_once_then_refused_before_the_model_is_asked(
    clock: FakeClock,
) -> None:
    rig = Payer(clock)
    assert await rig.spend(3) == ["re: hi"] * 3
    answer, warning = await rig.say()
    assert answer == "re: hi"
    assert warning == (
        "A word on money: about $0.40 of today's $0.50 is spent. When it is used up I stop until "
        "00:00 (Europe/Berlin), in about 12 hours."
    )
    asked = len(rig.loop.seen)
    assert await rig.say() == ["re: hi"]  # warned before
    assert len(rig.loop.seen) == asked + 1
    refused = await rig.say("too much")
    assert refused == [
        "Today's budget of $0.50 is used up, so I have not taken this to the model. "
        "I start again at 00:00 (Europe/Berlin), in about 12 hours; please send it again then. "
        "Commands that need no model still work; /usage shows what it went to."
    ]
    assert len(rig.loop.seen) == asked + 1
    assert await rig.store.open_inbox() == []  # answered, not left to be tried again


async def test_a_jump_over_everything_is_told_with_the_answer_that_made_it(
    clock: FakeClock,
) -> None:
    rig = Payer(clock)
    rig.loop.usage = Usage(input_tokens=400_000, model=MODEL)
    answer, warning = await rig.say()
    assert answer == "re: hi"
    assert warning.startswith("That was the last answer for today: about $0.80 of today's $0.50")
    assert is_refusal(await rig.say())


async def test_nobody_pays_for_somebody_else(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(5)
    assert is_refusal(await rig.say())
    assert await rig.say(sender="112") == ["re: hi"]


async def test_a_new_day_begins_at_midnight_of_the_zone(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(5)
    clock.set_wall(noon() + 12 * HOUR - 1)
    assert is_refusal(await rig.say())
    clock.set_wall(noon() + 12 * HOUR)
    assert await rig.spend(3) == ["re: hi"] * 3
    assert len(await rig.say()) == 2  # and warned anew


@pytest.mark.parametrize(
    ("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)], ids=["spring", "autumn"]
)
async def test_days_on_which_the_clocks_change(clock: FakeClock, date: str, hours: int) -> None:
    rig = Payer(clock)
    start = noon(date) - (hours - 12) * HOUR
    clock.set_wall(start)
    await rig.spend(5)
    clock.set_wall(start + hours * HOUR - 1)
    assert is_refusal(await rig.say())
    clock.set_wall(start + hours * HOUR)
    assert await rig.say() == ["re: hi"]


async def test_a_restart_changes_nothing(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(4)
    rig.boot()
    assert await rig.say() == ["re: hi"]  # was warned before the restart
    rig.boot()
    assert is_refusal(await rig.say())


@pytest.mark.parametrize("back", [HOUR, 11 * HOUR, 13 * HOUR, 23 * HOUR])
async def test_a_clock_set_back_refills_nothing_and_ends(clock: FakeClock, back: float) -> None:
    rig = Payer(clock)
    await rig.spend(5)
    clock.set_wall(noon() - back)
    assert is_refusal(await rig.say())
    clock.set_wall(noon() - back + 48 * HOUR)
    assert await rig.say() == ["re: hi"]


async def test_a_clock_that_was_years_ahead_locks_nobody_out(clock: FakeClock) -> None:
    rig = Payer(clock)
    clock.set_wall(noon() + 10_000 * 24 * HOUR)
    await rig.spend(5)
    clock.set_wall(noon())
    assert await rig.say() == ["re: hi"]


async def test_an_unknown_price_is_no_limit(clock: FakeClock) -> None:
    rig = Payer(clock)
    rig.loop.usage = Usage(input_tokens=10**9, model="a-model")
    assert await rig.spend(4) == ["re: hi"] * 4


async def test_summaries_and_work_in_the_background_count(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.say()
    conversation = await rig.store.conversation_for_key('["fake","900","111",null,"111"]')
    assert conversation is not None
    assert await rig.accounts.may_prepare(conversation.owner)
    await rig.store.enter_request(
        RequestEntry("background", MODEL, conversation.id, input_tokens=200_000)
    )
    assert not await rig.accounts.may_prepare(conversation.owner)
    assert is_refusal(await rig.say())


async def test_a_turn_that_runs_comes_to_its_end(clock: FakeClock) -> None:
    """Two conversations of one person begin at once: both are answered, the next is refused."""
    rig = Payer(clock)
    await rig.spend(4)
    gate = asyncio.Event()

    async def slow(*_: Any) -> Any:
        await gate.wait()
        return said("done")

    rig.loop.scripts["slow"] = slow
    assert await rig.say("slow") == []
    assert await rig.say("slow", chat="777") == []
    gate.set()
    await rig.settle()
    assert rig.platform.texts()[-2:] == ["done", "done"]
    assert is_refusal(await rig.say())
    assert is_refusal(await rig.say(chat="777"))


async def test_two_at_once_warn_once(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(2)
    gate = asyncio.Event()

    async def slow(*_: Any) -> Any:
        await gate.wait()
        return said("done")

    rig.loop.scripts["slow"] = slow
    await rig.say("slow")
    await rig.say("slow", chat="777")
    gate.set()
    await rig.settle()
    texts = [*rig.platform.texts(), *await rig.say()]
    assert sum("spent" in text for text in texts) == 1


async def test_a_turn_that_was_cut_off_is_resumed_over_the_budget(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(4)
    started = asyncio.Event()

    async def cut(*_: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    rig.loop.scripts["cut"] = cut
    await rig.say("cut")
    await started.wait()
    await rig.store.enter_request(
        RequestEntry("other", MODEL, owner="fake:111", input_tokens=500_000)
    )
    await rig.stop()
    del rig.loop.scripts["cut"]
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert "re: cut" in rig.platform.texts()


async def test_commands_work_and_retry_asks_no_model(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(5)
    for command in ("/usage", "/status", "/context", "/whoami", "/help"):
        assert not is_refusal(await rig.say(command))
    asked = len(rig.loop.seen)
    assert is_refusal(await rig.say("/retry"))
    assert len(rig.loop.seen) == asked
    (reply,) = await rig.say("/new")
    assert "new conversation" in reply
    assert is_refusal(await rig.say())  # another conversation is no other purse


async def test_compress_asks_no_model_over_the_budget(clock: FakeClock) -> None:
    """Or whoever has nothing left buys one summary after the other, each with another focus."""
    rig = Payer(clock)
    await rig.spend(4)
    assert not is_refusal(await rig.say("/compress boats"))
    asked = len(rig.compactor.asked)
    assert asked == 1
    await rig.spend(1)
    assert is_refusal(await rig.say("/compress"))
    assert is_refusal(await rig.say("/compress boats"))
    assert len(rig.compactor.asked) == asked


async def test_status_context_and_usage_say_how_one_stands(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(2)
    line = (
        "Budget: about $0.20 of $0.50 spent today; it starts anew at 00:00 (Europe/Berlin), "
        "in about 12 hours."
    )
    for command in ("/status", "/context", "/usage"):
        (reply,) = await rig.say(command)
        assert line in reply


async def test_without_a_budget_nothing_is_looked_up(clock: FakeClock) -> None:
    rig = Rig(clock)
    looked = []

    async def lines(scope: LedgerScope) -> list[Any]:
        looked.append(scope)
        return []

    rig.store.ledger_lines = lines
    await rig.intake.receive(inbound("hi"))
    await rig.settle()
    assert rig.platform.texts() == ["re: hi"]
    assert looked == []


@pytest.mark.parametrize("broken", ["ledger_lines", "first_time"])
async def test_a_ledger_that_can_not_be_read_keeps_nobody_out(
    clock: FakeClock, broken: str
) -> None:
    rig = Payer(clock)
    await rig.spend(3)

    async def fail(*_: Any) -> Any:
        raise StoreUnavailable("disk I/O error")

    setattr(rig.store, broken, fail)
    assert await rig.say() == ["re: hi"]


def accounts(clock: FakeClock, store: Any, on_refusal: Callable[[], None]) -> Accounts:
    from agent.prices import price_table

    return Accounts(
        store,
        clock=clock,
        zone=BERLIN,
        prices=price_table(),
        usd_per_user_day=0.5,
        on_refusal=on_refusal,
    )


async def test_refusals_are_counted(clock: FakeClock) -> None:
    rig = Payer(clock)
    await rig.spend(5)
    refused: list[None] = []
    desk = accounts(clock, rig.store, lambda: refused.append(None))
    assert await desk.refusal("fake:111") is not None
    assert await desk.refusal("fake:112") is None
    assert len(refused) == 1
