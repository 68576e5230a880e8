"""Owns how a budget is told to people. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from agent.prices import money
from agent.spending import Standing


def refusal(standing: Standing, now: float, zone: tzinfo) -> str:
    """Nothing more today."""
    return (
        f"Today's budget of {limit(standing)} is used up, so I have not taken this to the model. "
        f"I start again {starts_again(standing, now, zone)}; please send it again then. Commands "
        "that need no model still work; /usage shows what it went to."
    )


def warning(standing: Standing, now: float, zone: tzinfo) -> str:
    """Not much left, or nothing."""
    used = f"{spent(standing)} of today's {limit(standing)}"
    again = starts_again(standing, now, zone)
    if standing.verdict == "over":
        return (
            f"That was the last answer for today: {used} is spent. I start again {again}; "
            "commands that need no model still work."
        )
    until = again.removeprefix("at ")
    return f"A word on money: {used} is spent. When it is used up I stop until {until}."


def budget_line(standing: Standing, now: float, zone: tzinfo) -> str:
    """For /status, /context and /usage."""
    return (
        f"Budget: {spent(standing)} of {limit(standing)} spent today; it starts anew "
        f"{starts_again(standing, now, zone)}."
    )


def limit(standing: Standing) -> str:
    """The day's limit."""
    return money(standing.limit_usd).removeprefix("about ")


def spent(standing: Standing) -> str:
    """What of it is gone."""
    return money(standing.spent_usd)


def starts_again(standing: Standing, now: float, zone: tzinfo) -> str:
    """When, by the clock there and from now on."""
    end = datetime.fromtimestamp(standing.day.end, UTC).astimezone(zone)
    left = max(0.0, standing.day.end - now)
    hours, minutes = round(left / 3600), max(1, round(left / 60))
    wait = f"{hours} hours" if hours > 1 else "an hour" if minutes > 45 else f"{minutes} min"
    return f"at {end:%H:%M} ({zone_name(zone)}), in about {wait}"


def zone_name(zone: tzinfo) -> str:
    """What the zone is called; a system's zone has no name."""
    name = getattr(zone, "key", None) or str(zone)
    return "this server's time" if name == "local" or name.startswith("zoneinfo") else str(name)
