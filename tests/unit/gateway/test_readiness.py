"""What "ready" means."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.monitoring.readiness import PATIENCE_SECONDS, PlatformFacts, Readiness, judge
from gateway.platforms.contract import PlatformState as State

LONG = PATIENCE_SECONDS + 1


def of(**platforms: PlatformFacts) -> Readiness:
    return judge(started=True, store_trouble=None, platforms=platforms, console="console")


WELL = PlatformFacts(State.RUNNING)


@pytest.mark.parametrize(
    ("facts", "ready", "state"),
    [
        (PlatformFacts(State.RUNNING), True, "ready"),
        (PlatformFacts(State.STARTING), True, "ready"),
        (PlatformFacts(State.DEGRADED, "slow", 500.0), True, "degraded"),
        (PlatformFacts(State.RETRYING, "no route", 5.0), True, "degraded"),
        (PlatformFacts(State.RETRYING, "no route", LONG), False, "not ready"),
        (PlatformFacts(State.FAILED_CONFIG, "refused"), False, "not ready"),
    ],
)
def test_of_one_platform(facts: PlatformFacts, ready: bool, state: str) -> None:
    found = of(telegram=facts)
    assert (found.ready, found.state) == (ready, state)
    assert bool(found.reasons) == (state != "ready")
    assert (facts.reason in "".join(found.reasons)) or not facts.reason
    # A console beside it serves nobody in the chats.
    assert of(telegram=facts, console=WELL) == found
    # Another one that works does.
    both = of(telegram=facts, discord=WELL)
    assert both.ready
    assert both.state == ("ready" if state == "ready" else "degraded")


def test_words() -> None:
    down = PlatformFacts(State.RETRYING, "no route to host", 125.4)
    assert of(telegram=down).reasons == ("telegram retrying for 125 s: no route to host",)


def test_a_console_alone_counts() -> None:
    assert of(console=WELL) == Readiness(True, "ready")


def test_whatever_the_platforms_say() -> None:
    for state, seconds in product(State, (0.0, LONG)):
        facts = {"telegram": PlatformFacts(state, "", seconds)}
        args = {"platforms": facts, "console": "console"}
        starting = judge(started=False, store_trouble="full", **args)  # type: ignore[arg-type]
        assert starting == Readiness(False, "starting")
        full = judge(started=True, store_trouble="the disk is full", **args)  # type: ignore[arg-type]
        assert not full.ready
        assert full.reasons == ("nothing can be stored: the disk is full",)
