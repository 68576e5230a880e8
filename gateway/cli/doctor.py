"""Owns `posthouse doctor`: looks at everything, changes nothing, says what to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from agent.counting import counted
from gateway import __version__
from gateway.cli import exits
from gateway.cli.output import out, plain
from gateway.config.environment import environment
from gateway.doctor.areas import all_areas
from gateway.doctor.checkup import examine
from gateway.doctor.finding import Finding
from gateway.doctor.ground import survey

_MARKS = {"ok": "ok", "note": "--", "warning": "!", "problem": "!!"}


def run(arguments: argparse.Namespace) -> int:
    """Exit 0: no problem; 1: at least one."""
    ground = survey(environment(), arguments.config, offline=arguments.offline, as_service=True)
    findings = examine(all_areas(ground), ground.secrets.values())
    problems = [finding for finding in findings if finding.level == "problem"]
    if arguments.json:
        home = {"home": str(ground.home.path), "reason": ground.home.reason}
        told = [asdict(finding) for finding in findings]
        out(json.dumps({"ok": not problems, "version": __version__, **home, "findings": told}))
    else:
        out(in_words(findings))
    return exits.FAILED if problems else exits.OK


def in_words(findings: Sequence[Finding]) -> str:
    """Area by area, each remedy below what it heals, and at the end what it comes to."""
    lines: list[str] = []
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            lines.append(area)
        lines.append(f"  {_MARKS[finding.level]:>2}  {plain(finding.text)}")
        if finding.remedy:
            lines.append(f"      → {plain(finding.remedy)}")
    return "\n".join([*lines, "", verdict(findings)])


def verdict(findings: Sequence[Finding]) -> str:
    """The last line."""
    problems, warnings = (
        sum(finding.level == level for finding in findings) for level in ("problem", "warning")
    )
    if problems:
        return f"{counted(problems, 'problem')} (!!), {counted(warnings, 'warning')} (!)"
    return f"no problem, {counted(warnings, 'warning')} (!)" if warnings else "all is well"
