"""What stands in the repository is what the program says: traces, page, picture; and it is good."""

from __future__ import annotations

import runpy
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from agent.prices import price_table
from agent.simulation.comparing import compare, question_of
from agent.simulation.outcome import Outcome
from agent.simulation.trace import BUNDLED, bundled, write_trace

ROOT = Path(__file__).parents[4]


@lru_cache(maxsize=1)
def outcomes() -> dict[str, dict[str, Outcome]]:
    """Of the bundled traces: by trace and setting."""
    found: dict[str, dict[str, Outcome]] = {}
    for name in BUNDLED:
        compared = compare(question_of(bundled(name)), price_table())
        found[name] = {outcome.name: outcome for outcome in compared}
    return found


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / name))


@pytest.mark.parametrize("name", BUNDLED)
def test_the_traces_are_what_the_script_makes(name: str) -> None:
    made = "".join(write_trace(script("make_traces.py")["make"](name)))
    kept = (ROOT / "agent" / "simulation" / "traces" / f"{name}.jsonl").read_text("utf-8")
    assert made == kept


def test_the_page_and_its_picture_are_what_the_program_says() -> None:
    made = script("simulation_page.py")
    hint = "run `python scripts/simulation_page.py`"
    assert made["page"]() == (ROOT / "docs" / "simulation.md").read_text("utf-8"), hint
    assert made["picture"]() == (ROOT / "docs" / "simulation.svg").read_text("utf-8"), hint


@pytest.mark.parametrize("name", BUNDLED)
def test_the_defaults_are_not_worse_than_the_reference(name: str) -> None:
    ours, theirs = outcomes()[name]["defaults"], outcomes()[name]["reference"]
    assert ours.usd is not None
    assert theirs.usd is not None
    assert ours.usd <= theirs.usd
    assert ours.felt_pauses <= theirs.felt_pauses
    assert ours.waited_seconds <= theirs.waited_seconds
    assert ours.overflows == theirs.overflows == 0


@pytest.mark.parametrize("name", BUNDLED)
def test_what_the_page_says_in_words_holds(name: str) -> None:
    by_name = outcomes()[name]
    thresholds = [o for n, o in by_name.items() if n.startswith("threshold")]
    thresholds.append(by_name["defaults"])
    costs = [o.usd or 0.0 for o in sorted(thresholds, key=lambda o: o.threshold_tokens)]
    assert costs == sorted(costs)
    usd = {n: o.usd or 0.0 for n, o in by_name.items()}
    assert usd["micro"] > usd["micro / 3 turns"] > usd["defaults"]
    assert usd["cache 1h"] > usd["defaults"]
    assert usd["background off"] >= usd["defaults"]
    assert by_name["background off"].felt_pauses > by_name["defaults"].felt_pauses
