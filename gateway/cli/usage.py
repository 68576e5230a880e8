"""Owns `posthouse usage`: what the requests of the last days took, from the store."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from zoneinfo import ZoneInfo

from agent.archive_ports import Archive
from agent.clock import SystemClock
from agent.counting import counted
from agent.ledger import LedgerLine, LedgerScope
from agent.prices import PriceTable, price_table
from agent.spending import FREE_MODELS, Bill, Day, bill_of, day_at
from gateway.cli import exits
from gateway.cli.output import nothing_yet, out, plain, table
from gateway.cli.settings import Settings
from gateway.commands.usage_text import people
from gateway.commands.wording import percent
from gateway.config.environment import environment, find_home, local_zone

MOST_DAYS = 366
MOST_PEOPLE = 10


@dataclass(frozen=True, slots=True)
class DayLines:
    """One day's entries."""

    day: Day
    lines: Sequence[LedgerLine]


def run(arguments: argparse.Namespace) -> int:
    """Print it, newest day first."""
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import archive  # noqa: PLC0415

    env = environment()
    home = find_home(env)
    settings = Settings(arguments.config, home, env)
    settings.tell(", so days are those of this system's time zone")
    config = settings.or_defaults()
    if not home.database.exists():
        return nothing_yet(home.path, [] if arguments.json else None)
    zone = ZoneInfo(config.timezone) if config.timezone else local_zone(env)
    now = SystemClock().now()
    days = [day_at(now, zone, days_before=n) for n in range(min(arguments.days, MOST_DAYS))]
    async with archive(home) as store:
        found = [DayLines(day, await _lines(store, day)) for day in days]
    if arguments.json:
        out(json.dumps(as_json(found, price_table()), ensure_ascii=False))
    else:
        out(as_text(found, price_table()))
    return exits.OK


async def _lines(store: Archive, day: Day) -> Sequence[LedgerLine]:
    return await store.ledger_lines(LedgerScope(day.start, day.end))


def as_json(days: Iterable[DayLines], prices: PriceTable) -> list[dict[str, Any]]:
    """One object for each day, owner, purpose, model and cause of a cache miss.

    ``usd`` is null where the price is not known.
    """
    return [
        {"day": each.day.date, **asdict(line), "usd": _usd(line, prices)}
        for each in days
        for line in each.lines
    ]


def _usd(line: LedgerLine, prices: PriceTable) -> float | None:
    known = line.model in FREE_MODELS or prices.find(line.model) is not None
    return bill_of([line], prices).usd if known else None


def as_text(days: Sequence[DayLines], prices: PriceTable) -> str:
    """Tables by day, by model and purpose, and by person."""
    lines = [line for each in days for line in each.lines]
    if not lines:
        return f"no model was asked in the last {counted(len(days), 'day')}"
    head = ("REQUESTS", "TOKENS IN", "CACHED", "TOKENS OUT", "USD")
    by_day = [(each.day.date, *_cells(bill_of(each.lines, prices))) for each in days if each.lines]
    kinds = sorted({(line.model, line.purpose) for line in lines})
    by_kind = [
        (
            plain(model, 40) or "(no name)",
            purpose,
            *_cells(
                bill_of((x for x in lines if (x.model, x.purpose) == (model, purpose)), prices)
            ),
        )
        for model, purpose in kinds
    ]
    everybody = people(lines, prices)
    by_owner = [
        (plain(owner, 40) or "(nobody)", *_cells(bill))
        for owner, bill in everybody.bills[:MOST_PEOPLE]
    ]
    blocks = [
        table(("DAY", *head), by_day),
        table(("MODEL", "PURPOSE", *head), by_kind),
        table(("USER", *head), by_owner),
    ]
    if len(everybody.bills) > MOST_PEOPLE:
        blocks.append(f"and {counted(len(everybody.bills) - MOST_PEOPLE, 'more user')}")
    note = f"USD by the list prices of {prices.as_of}; + where a model's price is not known"
    return "\n\n".join([*blocks, note])


def _cells(bill: Bill) -> tuple[str, str, str, str, str]:
    usd = f"{bill.usd:.4f}" if bill.priced else "?"
    return (
        f"{bill.requests:,}",
        f"{bill.prompt_tokens:,}",
        percent(bill.cache_read_tokens, bill.prompt_tokens),
        f"{bill.output_tokens:,}",
        usd + ("+" if bill.unpriced and bill.priced else ""),
    )
