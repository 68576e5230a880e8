"""Owns one examination: all areas at once, each with its deadline, no secret in its words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from gateway.doctor.finding import Area, Finding
from gateway.logs import Redactor
from gateway.probing.patience import Started


def examine(areas: Sequence[Area], secrets: Iterable[str]) -> list[Finding]:
    """What the areas find, in their order; one that hangs or breaks is a finding of its own."""
    begun = time.monotonic()
    running = [(area, Started(partial(_look, area))) for area in areas]
    hide = Redactor(secrets)
    return [
        replace(finding, text=hide(finding.text), remedy=hide(finding.remedy))
        for area, work in running
        for finding in _findings(area, work, begun + area.seconds - time.monotonic())
    ]


def _look(area: Area) -> list[Finding]:
    return list(area.look())


def _findings(area: Area, work: Started[list[Finding]], seconds: float) -> list[Finding]:
    try:
        return work.wait(max(0.0, seconds))
    except TimeoutError:
        text = f"no answer within {area.seconds:g} seconds"
        return [Finding(area.name, "warning", text, "look again later; the others do not wait")]
    except Exception as exc:  # noqa: BLE001 - the supervised border: one check ends no other
        text = f"the check itself failed: {type(exc).__name__}: {exc}"
        return [Finding(area.name, "problem", text, "please report this, with the line above")]
