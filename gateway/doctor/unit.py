"""Owns the check of the service: installed, this version's, enabled, its limits, its fate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.doctor.asked import facts_of
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.service.installed import has_systemd, this_layout
from gateway.service.installed import look as look_at_units
from gateway.service.unit import SERVICE, Layout

SPARE_SECONDS = 30.0
"""A stop must never end in SIGKILL: what `TimeoutStopSec` has above the time for draining."""
MANY_RESTARTS = 3
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([\d.]+)\s*(us|ms|s|min|h|d|w)\b")
_ASKED = (
    "ActiveState", "UnitFileState", "NRestarts", "TimeoutStopUSec", "WatchdogUSec", "Result",
    "ExecMainStatus", "NeedDaemonReload",
)  # fmt: skip
_ENDS = {
    "73": ("another instance holds its home", "end that one: posthouse status"),
    "78": ("the configuration or the database needs a person", "the problems named here"),
}


def look(ground: Ground) -> Iterable[Finding]:
    """Files of units, and what systemd says of ours."""
    said = Said("service")
    layout = this_layout()
    installed = look_at_units(layout)
    if installed.service is None:
        if has_systemd():
            said.note("it is not installed as a service", "sudo posthouse service install")
        return said.findings
    said.findings += judged_files(installed.program, installed.outdated, layout)
    if has_systemd():
        known = facts_of(ground.env, "systemctl", "show", SERVICE, f"--property={','.join(_ASKED)}")
        said.findings += judged(known, ground.config.gateway.drain_seconds)
    return said.findings


def judged_files(program: object, outdated: tuple[str, ...], layout: Layout) -> list[Finding]:
    """Is what is installed this program's?"""
    said = Said("service")
    again = f"sudo {layout.program} service install"
    if str(program) != str(layout.program):
        said.warning(f"the service starts {program}; this is {layout.program}", again)
    elif outdated:
        said.warning(f"not as this version ships it: {', '.join(outdated)}", again)
    else:
        said.ok(f"installed, and starts {program}")
    return said.findings


def judged(known: Mapping[str, str], drain_seconds: float) -> list[Finding]:
    """What `systemctl show` says."""
    said = Said("service")
    if known.get("NeedDaemonReload") == "yes":
        said.warning("its unit file was changed and not read", "sudo systemctl daemon-reload")
    if known.get("UnitFileState") not in ("enabled", "enabled-runtime", None):
        said.warning("it does not start with the machine", f"sudo systemctl enable {SERVICE}")
    if known.get("ActiveState") == "failed":
        status = known.get("ExecMainStatus", "")
        why, remedy = _ENDS.get(status, (f"exit status {status}, {known.get('Result', '')}", ""))
        log = "posthouse service logs"
        said.problem(f"it has failed: {why}", f"{remedy}; then: {log}" if remedy else log)
    restarts = int(known.get("NRestarts") or 0)
    if restarts > MANY_RESTARTS:
        said.warning(f"systemd has started it anew {restarts} times", "posthouse service logs")
    stop = seconds_of(known.get("TimeoutStopUSec", ""))
    if stop is not None and stop < drain_seconds + SPARE_SECONDS:
        said.warning(
            f"TimeoutStopSec is {stop:g} s, and gateway.drain_seconds {drain_seconds:g}: a stop "
            "may be cut off",
            f"sudo systemctl edit {SERVICE}: [Service] TimeoutStopSec="
            f"{drain_seconds + SPARE_SECONDS:g}",
        )
    if seconds_of(known.get("WatchdogUSec", "")) == 0:
        said.note("its watchdog is off: a gateway that hangs is not started anew")
    return said.findings


def seconds_of(text: str) -> float | None:
    """``1min 30s``, as systemctl writes it; None: for ever, or not known."""
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    return sum(float(n) * _UNITS[unit] for n, unit in parts) if parts else None
