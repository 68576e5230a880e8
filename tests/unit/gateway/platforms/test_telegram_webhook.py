"""The webhook's decisions: what Telegram's words mean, who may come in, whose turn it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import StoreUnavailable
from gateway.platforms.contract import PlatformState, PlatformUnavailable
from gateway.platforms.telegram.convert import Me, convert
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.webhook import (
    STORE_DOWN,
    Health,
    Webhook,
    WebhookInfo,
    WebhookSettings,
    hook_name,
    judge,
)
from gateway.platforms.telegram.webhook_door import DoorSettings, Key, Parcel
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

OURS = "https://bot.example.org/x"
infos = st.builds(
    WebhookInfo,
    st.sampled_from([OURS, "", "https://other.example.org"]),
    st.integers(0, 3),
    st.none() | st.floats(0, 5),
    st.sampled_from(["", "Connection refused"]),
)


@given(infos, st.none() | infos, st.booleans())
def test_what_telegram_says(info: WebhookInfo, before: WebhookInfo | None, delivered: bool) -> None:
    health = judge(OURS, before, info, delivered=delivered)
    assert (health is Health.ELSEWHERE) == (info.url != OURS)
    if health is Health.FAILING:
        assert info.pending > 0
        assert not delivered
        assert before is not None, "what failed before we were there says nothing"
    if health is Health.WELL and info.pending and not delivered and before is not None:
        # Nothing that waits and does not move is well for two checks in a row.
        assert judge(OURS, info, info, delivered=False) is Health.FAILING


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ("https://Bot.Example.org/tg/x", True),
        ("https://bot.example.org:443/tg/x", True),
        ("https://bot.example.org/tg/y", False),
        ("https://bot.example.org:8443/tg/x", False),
        ("http://bot.example.org/tg/x", False),
        ("https://other.example.org/tg/x", False),
        ("", False),
        ("https://[::1", False),
        ("https://bot.example.org:x/tg/x", False),
    ],
)
def test_an_address_in_other_words_is_the_same(said: str, same: bool) -> None:
    health = judge("https://bot.example.org/tg/x", None, WebhookInfo(said, 0), delivered=False)
    assert health is (Health.WELL if same else Health.ELSEWHERE)


class Hooks:
    """Telegram's end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answer = WebhookInfo("", 0)
        self.error: Exception | None = None

    async def set(self, url: str, secret: str, max_connections: int) -> None:
        self.calls.append("set")
        self.answer = replace(self.answer, url=url)

    async def remove(self) -> None:
        self.calls.append("remove")
        self.answer = replace(self.answer, url="")

    async def info(self) -> WebhookInfo:
        if self.error is not None:
            raise self.error
        return self.answer


class Rig:
    def __init__(self, door: DoorSettings | None = None) -> None:
        self.clock = FakeClock()
        self.reports = Reports()
        self.hooks = Hooks()
        self.intake = intake = RecordingIntake()
        me = Me(42, "bot")
        incoming = Incoming(
            lambda update: convert(update, me), "42", intake, self.reports, self.clock
        )
        settings = WebhookSettings("https://bot.example.org", door=door or DoorSettings(port=0))
        self.webhook = Webhook(settings, self.hooks, "name", incoming, self.reports, self.clock)

    async def __aenter__(self) -> Rig:
        self.task = asyncio.create_task(self.webhook.run())
        await self.reports.wait(PlatformState.RUNNING)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, state: PlatformState) -> float:
        """How long it takes."""
        began = self.clock.monotonic()
        while self.reports.states[-1] is not state:
            await self.clock.advance(self.clock.next_wake_seconds or 0.0)
        return self.clock.monotonic() - began


@pytest.mark.parametrize("error", ["Connection refused", ""])
async def test_what_does_not_arrive_is_noticed_within_a_minute(error: str) -> None:
    """At once with an error of Telegram's; at the second look where it only waits."""
    async with Rig() as rig:
        await rig.clock.advance(100)
        rig.hooks.answer = replace(
            rig.hooks.answer, pending=2, last_error=error, last_error_at=5.0 if error else None
        )
        assert await rig.until(PlatformState.DEGRADED) <= 60
        assert "2 updates wait" in rig.reports.all[-1][1]
        assert rig.hooks.calls == ["set", "remove", "set"], "and Telegram begins anew"
        rig.hooks.answer = replace(rig.hooks.answer, pending=0)
        assert await rig.until(PlatformState.RUNNING) <= 20


async def test_while_nothing_arrives_it_is_set_again_once_a_minute_and_stays_degraded() -> None:
    async with Rig() as rig:
        await rig.clock.advance(100)
        rig.hooks.answer = replace(rig.hooks.answer, pending=2)
        await rig.until(PlatformState.DEGRADED)
        seen = len(rig.reports.all)
        await rig.clock.advance(3600)
        assert 50 <= rig.hooks.calls.count("remove") <= 61
        assert set(rig.reports.states[seen:]) == {PlatformState.DEGRADED}


async def test_there_is_always_a_sign_of_life() -> None:
    async with Rig() as rig:
        for error in (None, PlatformUnavailable("no route"), None):
            rig.hooks.error = error
            for _ in range(5):
                seen = len(rig.reports.all)
                await rig.clock.advance(30)
                assert len(rig.reports.all) > seen


# --- who may come in ----------------------------------------------------------------------------


@given(st.text(), st.lists(st.text(), max_size=2))
def test_only_who_knows_both(path: str, secrets: list[str]) -> None:
    key = Key("name", "secret")
    expected = 200 if secrets == ["secret"] else 401
    assert key.opens("/telegram/name", secrets) == expected
    assert key.opens("/name", secrets) == expected
    if path.rsplit("/", 1)[-1] != "name":
        assert key.opens(path, secrets) == 404
    assert "secret" not in repr(key)
    assert "name" not in repr(key)


def test_the_name_of_the_hook() -> None:
    name = hook_name("123:token")
    assert name == hook_name("123:token")
    assert name != hook_name("123:other")
    assert len(name) == 40
    assert "token" not in name


# --- what is said of it -------------------------------------------------------------------------


def _update(number: int) -> Parcel:
    return Parcel(json.dumps({"update_id": number, "message": SAID}).encode(), whole=True)


SAID = {
    "message_id": 1,
    "date": 1,
    "chat": {"id": 1, "type": "private", "first_name": "Ann"},
    "from": {"id": 1, "is_bot": False, "first_name": "Ann"},
    "text": "hello",
}


async def test_an_update_that_is_stored_does_not_hide_what_is_wrong_at_telegram() -> None:
    """It was posted before another program took the address: more will not come."""
    async with Rig() as rig:
        rig.hooks.error = PlatformUnavailable("telegram: no route")
        assert await rig.until(PlatformState.DEGRADED) <= 20
        rig.intake.failures = 1
        with pytest.raises(StoreUnavailable):
            await rig.webhook.take(_update(1))
        assert rig.reports.all[-1] == (PlatformState.DEGRADED, STORE_DOWN)
        await rig.webhook.take(_update(1))
        assert rig.reports.all[-1] == (PlatformState.DEGRADED, "telegram: no route")
        rig.hooks.error = None
        assert await rig.until(PlatformState.RUNNING) <= 10, "owed answers wait for this"


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_a_door_that_others_can_reach_is_said(
    host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Rig(DoorSettings(host, 0)):
        pass
    assert any("other machines" in line for line in caplog.messages) is warned
