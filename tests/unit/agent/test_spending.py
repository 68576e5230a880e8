"""What the ledger's lines cost, where days begin, and what a budget allows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.ledger import LedgerLine
from agent.prices import Price, PriceTable
from agent.spending import Bill, Day, Standing, bill_of, cache_break_usd, day_at

DEAR = Price(10.0, 50.0, 1.0, 12.5, 20.0)
CHEAP = Price(1.0, 5.0, 0.1, 1.25, 2.0)
PRICES = PriceTable("2026-11-29", "a test", {"dear": DEAR, "cheap": CHEAP})
LINE = LedgerLine("o", "turn", "dear", "", 1, 1_000_000, 100_000, 1_000_000, 1_000_000, 400_000)
ZONES = sorted(available_timezones())


def test_each_line_costs_what_its_own_model_costs() -> None:
    # 10 in + 5 out + 1 read + 0.6 x 12.5 + 0.4 x 20 written
    assert bill_of([LINE], PRICES).usd == pytest.approx(31.5)
    lines = [LINE, replace(LINE, purpose="summary", model="cheap")]
    bill = bill_of(lines, PRICES)
    assert bill.usd == pytest.approx(31.5 + 3.15)
    assert (bill.requests, bill.prompt_tokens, bill.output_tokens) == (2, 6_000_000, 200_000)
    assert bill.unpriced == {}


def test_an_unknown_price_is_counted_and_named() -> None:
    lines = [LINE, replace(LINE, model="odd", requests=3), replace(LINE, model="", requests=2)]
    bill = bill_of(lines, PRICES)
    assert bill.usd == pytest.approx(31.5)
    assert bill.unpriced == {"odd": 3, "": 2}
    assert bill.requests == 6
    assert bill.priced
    assert not bill_of(lines[1:], PRICES).priced
    assert not bill_of([], PRICES).priced


def test_the_built_in_model_is_free_not_unknown() -> None:
    bill = bill_of([replace(LINE, model="offline")], PRICES)
    assert (bill.usd, bill.unpriced, bill.priced) == (0.0, {}, True)


def test_what_a_compression_breaks_is_written_instead_of_read() -> None:
    broken = replace(LINE, cache_miss="revision")
    # 0.6 x 12.5 + 0.4 x 20 written, for which 1 would have been read
    assert cache_break_usd([broken], PRICES) == pytest.approx(14.5)
    others = [LINE, replace(LINE, cache_miss="expired"), replace(broken, model="odd")]
    assert cache_break_usd(others, PRICES) == 0.0


# --- days ---------------------------------------------------------------------------------------


@given(
    now=st.floats(0, 4_000_000_000),
    name=st.sampled_from(ZONES),
    before=st.integers(0, 40),
)
def test_days_hold_their_moment_and_follow_each_other(now: float, name: str, before: int) -> None:
    zone = ZoneInfo(name)
    today = day_at(now, zone)
    assert today.start <= now < today.end
    assert (
        datetime.fromtimestamp(today.start, UTC).astimezone(zone).date().isoformat() == today.date
    )
    day = day_at(now, zone, days_before=before)
    later = day_at(now, zone, days_before=before - 1) if before else None
    assert later is None or later.start == day.end
    assert 0 < day.end - day.start <= 50 * 3600  # where the date line was moved, a day is missing


@pytest.mark.parametrize(
    ("zone", "date", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("Europe/Berlin", "2026-06-01", 24),
        ("America/Havana", "2026-03-08", 23),  # there is no midnight on that day
        ("America/Havana", "2026-11-01", 25),  # there are two
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("UTC", "2026-03-29", 24),
    ],
)
def test_days_when_the_clocks_change(zone: str, date: str, hours: float) -> None:
    tz = ZoneInfo(zone)
    noon = datetime.fromisoformat(f"{date}T12:00").replace(tzinfo=tz)
    day = day_at(noon.timestamp(), tz)
    assert day.date == date
    assert day.end - day.start == hours * 3600
    tomorrow = day_at(day.end, tz)
    assert tomorrow.date == (noon.date() + timedelta(days=1)).isoformat()
    assert day_at(day.end - 0.001, tz).date == date


# --- the budget ---------------------------------------------------------------------------------

DAY = Day("2026-11-30", 0.0, 86_400.0)


@pytest.mark.parametrize(
    ("spent", "verdict"),
    [
        (0.0, "free"),
        (0.79, "free"),
        (0.8, "warned"),
        (0.999, "warned"),
        (1.0, "over"),
        (9.0, "over"),
    ],
)
def test_what_a_budget_allows(spent: float, verdict: str) -> None:
    assert Standing(spent, 1.0, DAY).verdict == verdict


def test_another_day_and_another_limit_are_told_anew() -> None:
    marks = {
        Standing(spent, limit, day).mark
        for spent in (0.8, 0.9)
        for limit in (1.0, 2.0)
        for day in (DAY, replace(DAY, date="2026-12-01"))
    }
    assert len(marks) == 4


def test_an_empty_bill() -> None:
    assert bill_of([], PRICES) == Bill()
