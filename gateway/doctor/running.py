"""Owns the check of the running daemon: whether there is one, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.clock import SystemClock
from gateway import __version__
from gateway.crashes.runs import cut_off, runs
from gateway.crashes.shelf import kept
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.monitoring.provider import told

RECENT_SECONDS = 7 * 86_400
SOME_CUT_OFF = 2
"""Once or twice may have been a person."""


def look(ground: Ground) -> Iterable[Finding]:
    """From its control socket."""
    said = Said("gateway")
    if ground.status_problem:
        said.problem(
            ground.status_problem,
            "ask as its user or as root; if it hangs, restart it: its log says where it stood",
        )
    elif ground.status is None and ground.home.is_services:
        said.warning("it does not run", "sudo systemctl start posthouse")
    elif ground.status is None:
        said.note(
            "it does not run", "`posthouse run`, or as a service: `posthouse service install`"
        )
    else:
        _state(said, ground.status)
    _crashes(said, ground)
    return said.findings


def _crashes(said: Said, ground: Ground) -> None:
    now = SystemClock().now()
    recent = [crash for crash in kept(ground.home.path) if now - crash.at < RECENT_SECONDS]
    if recent:
        number = "a crash" if len(recent) == 1 else f"{len(recent)} crashes"
        said.warning(
            f"{number} in the last 7 days, the newest: {recent[0].what}",
            f"read {recent[0].path}; it has no text of people in it, so it can be sent to us",
        )
    lives = [
        run for run in cut_off(runs(ground.home.path)) if now - run.started_at < RECENT_SECONDS
    ]
    if len(lives) > SOME_CUT_OFF:
        said.warning(
            f"{len(lives)} starts of the last 7 days ended without a word: killed, or out of "
            "memory or power",
            "journalctl -k --grep 'Out of memory'; then: posthouse service logs",
        )


def _state(said: Said, status: Mapping[str, Any]) -> None:
    if status.get("ready"):
        said.ok("it runs, and is ready")
    else:
        why = "; ".join(map(str, status.get("reasons") or ["it still starts"]))
        said.warning(f"it runs, and is not ready: {why}", "wait a minute; then see its log")
    for remark in str(status.get("details", {}).get("remarks", "")).splitlines():
        said.note(f"it says of itself: {remark}", "it names its key of the configuration, or why")
    for trouble, remedy in told(status.get("provider") or {}, SystemClock().now()):
        said.problem(trouble, remedy)
    version = str(status.get("version", ""))
    if version != __version__:
        said.warning(
            f"it is version {version}, and this command is {__version__}", "restart the gateway"
        )
    for name, platform in status.get("platforms", {}).items():
        state, reason = str(platform.get("state")), str(platform.get("reason") or "")
        text = f"{name}: {state}{f' ({reason})' if reason else ''}"
        match state:
            case "running":
                said.ok(text)
            case "failed-config" | "failed":
                said.problem(text, "the lines about it here say why; then restart the gateway")
            case _:
                said.warning(text, "it tries again by itself; see its log if it stays so")
    trouble = status.get("details", {}).get("STORE TAKES NOTHING")
    if trouble:
        said.problem(
            f"the store takes nothing: {trouble}", "see the lines on home and database here"
        )
