"""The dependency audit: silence is no approval, and an exemption has a reason and an end."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.audit import ALLOWED, MOST_ALLOWED_DAYS, Exemption, asked, exemptions, verdict

TODAY = date(2027, 1, 15)
CLEAN = {"name": "clean", "version": "1.0", "vulns": []}
SKIPPED = {"name": "unknown", "skip_reason": "not found"}
HOLED = {
    "name": "holed",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["GHSA-1"], "fix_versions": ["2.1"]}],
}


def report(*packages: Any) -> dict[str, Any]:
    return {"dependencies": list(packages)}


def test_nobody_could_be_asked() -> None:
    """pip-audit itself says "no known vulnerabilities found" then."""
    found = verdict(report(SKIPPED, SKIPPED), (), TODAY)
    assert not found.bad
    assert found.lines == ("audit: no data (none of 2 packages could be asked about)",)
    assert "no data" in verdict({}, (), TODAY).lines[0]


def test_what_was_asked_about_is_counted() -> None:
    found = verdict(report(CLEAN, SKIPPED), (), TODAY)
    assert not found.bad
    assert found.lines == ("audit: 1 packages looked up, 1 could not be asked about",)


@pytest.mark.parametrize("days", [None, -1, 0, 30])
@pytest.mark.parametrize("name", ["PYSEC-1", "GHSA-1"])
def test_a_vulnerability_is_bad_but_for_an_exemption_in_force(name: str, days: int | None) -> None:
    until = TODAY + timedelta(days or 0)
    allowed = [] if days is None else [Exemption(name, "not used", until)]
    found = verdict(report(HOLED, CLEAN), allowed, TODAY)
    assert found.bad == (days is None or days < 0)
    assert "holed 2.0: PYSEC-1" in found.lines[0]
    if days == -1:
        assert "ended on 2027-01-14" in found.lines[0]


@pytest.mark.parametrize(
    "text",
    [
        '[[allowed]]\nid = "X"\nuntil = 2027-02-01\n',
        '[[allowed]]\nid = "X"\nreason = " "\nuntil = 2027-02-01\n',
        '[[allowed]]\nid = "X"\nreason = "y"\nuntil = "soon"\n',
        f'[[allowed]]\nid = "X"\nreason = "y"\nuntil = {TODAY + timedelta(MOST_ALLOWED_DAYS + 1)}',
    ],
)
def test_an_exemption_has_a_reason_and_an_end(text: str) -> None:
    with pytest.raises(ValueError, match="X: "):
        exemptions(text, TODAY)


def test_the_file_itself() -> None:
    exemptions(ALLOWED.read_text(encoding="utf-8"), datetime.now(UTC).date())


def test_a_tool_that_is_not_there_or_breaks(tmp_path: Path) -> None:
    assert asked(str(tmp_path / "none")) is None
    assert asked("/bin/false") is None
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho '[1]'\n")
    broken.chmod(0o700)
    assert asked(str(broken)) is None
