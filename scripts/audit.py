"""Owns the dependency audit: are there known vulnerabilities in what constraints.txt pins?

``python -m scripts.audit``: exit 0 also where nobody can be asked (then that is said), 1 for a
vulnerability that `audit_allowed.toml` does not name with a reason and a date.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("audit_allowed.toml")
DEADLINE_SECONDS = 180
MOST_ALLOWED_DAYS = 180
"""An exception is looked at again twice a year."""


@dataclass(frozen=True, slots=True)
class Exemption:
    """A vulnerability that does not concern us, and until when that is believed."""

    id: str
    reason: str
    until: date


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said, and whether it is bad."""

    lines: tuple[str, ...]
    bad: bool = False


def verdict(report: Mapping[str, Any], allowed: Iterable[Exemption], today: date) -> Verdict:
    """Of pip-audit's report. Where it knows nothing of a package it says so, and is content."""
    packages = list(report.get("dependencies", ()))
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        return Verdict((f"audit: no data (none of {len(packages)} packages could be asked about)",))
    exemptions = {each.id: each for each in allowed}
    lines: list[str] = []
    bad = False
    for package in known:
        for found in package.get("vulns", ()):
            ids = [found["id"], *found.get("aliases", ())]
            named = f"{package['name']} {package['version']}: {found['id']}"
            exemption = next((exemptions[i] for i in ids if i in exemptions), None)
            if exemption is not None and exemption.until >= today:
                lines.append(f"audit: {named} allowed until {exemption.until}: {exemption.reason}")
                continue
            fixed = ", ".join(found.get("fix_versions", ())) or "no version yet"
            over = "" if exemption is None else f"; its exemption ended on {exemption.until}"
            lines.append(f"audit: {named}, fixed in {fixed}{over}")
            bad = True
    missing = len(packages) - len(known)
    rest = f", {missing} could not be asked about" if missing else ""
    lines.append(f"audit: {len(known)} packages looked up{rest}")
    return Verdict(tuple(lines), bad)


def exemptions(text: str, today: date) -> list[Exemption]:
    """Of the file's text.

    Raises:
        ValueError: one is without a reason, or for too long.
    """
    found = []
    for each in tomllib.loads(text).get("allowed", ()):
        made = Exemption(str(each["id"]), str(each.get("reason", "")).strip(), each["until"])
        if not made.reason or not isinstance(made.until, date):
            raise ValueError(f"{made.id}: a reason and a date are wanted")
        if (made.until - today).days > MOST_ALLOWED_DAYS:
            raise ValueError(f"{made.id}: at most {MOST_ALLOWED_DAYS} days ahead")
        found.append(made)
    return found


def asked(pip_audit: str) -> Mapping[str, Any] | None:
    """What pip-audit says; None: it could not ask anybody."""
    command = [pip_audit, "-r", "constraints.txt", "--no-deps", "--disable-pip", "-f", "json"]
    try:
        done = subprocess.run(
            [*command, "--progress-spinner", "off"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        report = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return report if isinstance(report, dict) else None


def main(pip_audit: str) -> int:
    """Ask, say, give the exit code."""
    today = datetime.now(UTC).date()  # noqa: TID251 - not part of the product
    allowed = exemptions(ALLOWED.read_text(encoding="utf-8"), today)
    report = asked(pip_audit)
    found = (
        Verdict(("audit: no data (pip-audit could not ask)",))
        if report is None
        else verdict(report, allowed, today)
    )
    print("\n".join(found.lines))  # noqa: T201
    return 1 if found.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "pip-audit"))
