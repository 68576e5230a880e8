"""/usage and `posthouse usage`: figures for whoever asks, everybody's for admins only."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from agent.ledger import LedgerLine
from agent.prices import Price, PriceTable
from agent.spending import Bill, Day, day_at
from gateway.accounts import Statement
from gateway.cli.usage import DayLines, as_json, as_text
from gateway.commands.usage_text import MOST_PEOPLE, UsageReport, bill_text, people, usage_text
from gateway.intake.access import AccessRules, PlatformPolicy
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig

BERLIN = ZoneInfo("Europe/Berlin")
PRICES = PriceTable("2026-11-29", "a test", {"dear": Price(10.0, 50.0, 1.0, 12.5, 20.0)})
NOTHING = Statement(Bill(), 0, Bill(), 0.0)
EVERYBODY = PlatformPolicy(
    AccessRules(allow_from=frozenset({"111", "112"}), admins=frozenset({"111"}))
)


def line(owner: str, requests: int = 1, model: str = "dear", purpose: str = "turn") -> LedgerLine:
    return LedgerLine(owner, purpose, model, "", requests, 10_000, 500, 30_000, 1_000)


def report(**changes: object) -> UsageReport:
    fields = {
        "today": NOTHING,
        "week": NOTHING,
        "here": None,
        "budget": None,
        "everybody": None,
        "zone": BERLIN,
        "prices_as_of": PRICES.as_of,
    }
    return UsageReport(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_whole_answer() -> None:
    bill = Bill(12, 20_000, 3_100, 60_000, 4_200, usd=0.1234)
    week = Statement(
        Bill(40, 50_000, 9_000, 140_000, 10_000, usd=0.5, unpriced={"odd\nmodel": 4, "b": 1}),
        compressions=3,
        compression_bill=Bill(4, 30_000, 2_000, usd=0.02),
        cache_break_usd=0.011,
    )
    answer = usage_text(
        report(
            today=Statement(bill, 0, Bill(), 0.0),
            week=week,
            here=Statement(Bill(2, 900, 100, unpriced={"b": 2}), 0, Bill(), 0.0),
            budget="Budget: a line.",
        )
    )
    assert answer == (
        "Today (since midnight, Europe/Berlin): 12 requests, 84,200 tokens in (71 % from the "
        "cache), 3,100 out, about $0.12.\n"
        "Last 7 days: 40 requests, 200,000 tokens in (70 % from the cache), 9,000 out, about $0.50 "
        "without 5 of unknown price.\n"
        "This conversation, everybody in it: 2 requests, 900 tokens in, 100 out.\n"
        "\n"
        "Compressions in 7 days: 3, with 4 requests for summaries (about $0.020). Reading anew "
        "what they had changed cost about $0.011 more.\n"
        "\n"
        "Price not known, so tokens only: odd model (4 requests), b (1 request).\n"
        "\n"
        "Budget: a line.\n"
        "\n"
        "Money is worked out from list prices of 2026-11-29."
    )


def test_nothing_yet() -> None:
    assert usage_text(report()) == (
        "Today (since midnight, Europe/Berlin): nothing yet.\nLast 7 days: nothing yet."
    )
    assert bill_text(Bill()) == "nothing yet."


def test_many_models_without_a_price_are_not_all_named() -> None:
    bill = Bill(30, 1, 1, unpriced={f"m{n}": n for n in range(1, 8)})
    answer = usage_text(report(week=Statement(bill, 0, Bill(), 0.0)))
    assert "m7 (7 requests), m6 (6 requests)" in answer
    assert "and 2 more." in answer
    assert "$" not in answer


def test_the_ten_who_spent_most() -> None:
    lines = [line(f"u{n}", n) for n in range(1, 13)]
    lines += [line("u1", 1, purpose="summary"), line("", 1, model="odd")]
    everybody = people(lines, PRICES)
    assert everybody.whole.requests == sum(range(1, 13)) + 2
    assert everybody.bills[0][0] == "u1"  # two lines: money, not the number of requests
    answer = usage_text(report(everybody=everybody))
    listed = [each for each in answer.splitlines() if each.startswith("• ")]
    assert len(listed) == MOST_PEOPLE + 1
    assert listed[-1] == "• 3 more with 123,000 tokens in together"


def test_names_can_not_steer_anything() -> None:
    everybody = people([line("telegram:\u202e\n1")], PRICES)
    (listed,) = [x for x in usage_text(report(everybody=everybody)).splitlines() if "•" in x]
    assert listed.startswith("• telegram: 1: 1 request")


async def ask(rig: Rig, text: str, n: int, **where: object) -> str:
    before = len(rig.platform.texts())
    await rig.intake.receive(inbound(text, message_id=str(n), **where))
    await rig.settle()
    return rig.platform.texts()[before]


async def test_everybody_is_for_admins_who_are_alone(clock: FakeClock) -> None:
    platform = FakePlatform(now=clock.monotonic, limit=9_999)
    rig = Rig(clock, policy=EVERYBODY, platform=platform)
    await ask(rig, "hi", 1)
    await ask(rig, "hi", 2, sender_id="112", chat_id="112")
    admin = await ask(rig, "/usage", 3)
    assert "Everybody, last 7 days: 2 requests" in admin
    assert "• fake:112: 1 request" in admin
    other = await ask(rig, "/usage", 4, sender_id="112", chat_id="112")
    assert "Today (since midnight, Europe/Berlin): 1 request, 100 tokens in, 0 out." in other
    assert "111" not in other
    group = await ask(rig, "/usage", 5, chat_id="-5", chat_kind="group", sender_id="111")
    assert "Last 7 days: 1 request" in group
    assert "Everybody" not in group
    assert "112" not in group


async def test_usage_before_anything_was_said(clock: FakeClock) -> None:
    rig = Rig(clock, platform=FakePlatform(now=clock.monotonic, limit=9_999))
    assert (await ask(rig, "/usage", 1)).startswith(
        "Today (since midnight, Europe/Berlin): nothing"
    )


# --- the command line ---------------------------------------------------------------------------

TODAY = day_at(1_800_000_000, BERLIN)
YESTERDAY = Day("2027-01-14", 0.0, 1.0)


def test_tables_by_day_kind_and_person() -> None:
    days = [
        DayLines(TODAY, [line("u1", 2), line("u2", 1, "odd")]),
        DayLines(YESTERDAY, [line("u1", 1, purpose="summary")]),
        DayLines(Day("2027-01-13", 0.0, 1.0), []),
    ]
    text = as_text(days, PRICES)
    rows = [" ".join(each.split()) for each in text.splitlines()]
    assert "2027-01-15 3 82,000 73 % 1,000 0.1675+" in rows
    assert "2027-01-14 1 41,000 73 % 500 0.1675" in rows
    assert not any("2027-01-13" in row for row in rows)
    assert "odd turn 1 41,000 73 % 500 ?" in rows
    assert "dear summary 1 41,000 73 % 500 0.1675" in rows
    assert "u1 3 82,000 73 % 1,000 0.3350" in rows


def test_json_has_a_line_for_each_kind_and_null_for_an_unknown_price() -> None:
    days = [DayLines(TODAY, [line("u1"), line("u2", 1, "odd"), line("u3", 1, "offline")])]
    first, second, third = as_json(days, PRICES)
    assert first == {
        "day": "2027-01-15",
        "owner": "u1",
        "purpose": "turn",
        "model": "dear",
        "cache_miss": "",
        "requests": 1,
        "input_tokens": 10_000,
        "output_tokens": 500,
        "cache_read_tokens": 30_000,
        "cache_write_tokens": 1_000,
        "cache_write_1h_tokens": 0,
        "usd": first["usd"],
    }
    assert (round(first["usd"], 4), second["usd"], third["usd"]) == (0.1675, None, 0.0)


def test_an_empty_ledger_says_so() -> None:
    assert as_text([DayLines(TODAY, [])], PRICES) == "no model was asked in the last 1 day"
    assert as_json([DayLines(TODAY, [])], PRICES) == []
