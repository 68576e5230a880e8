"""Owns the check of the running daemon: whether there is one, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway import __version__
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground


def look(ground: Ground) -> Iterable[Finding]:
    """From its control socket."""
    said = Said("gateway")
    if ground.status_problem:
        said.problem(
            ground.status_problem,
            "ask as its user or as root; if it hangs, restart it: its log says where it stood",
        )
    elif ground.status is None:
        said.note(
            "it does not run", "`posthouse run`, or as a service: `posthouse service install`"
        )
    else:
        _state(said, ground.status)
    return said.findings


def _state(said: Said, status: Mapping[str, Any]) -> None:
    if status.get("ready"):
        said.ok("it runs, and is ready")
    else:
        said.warning("it runs, and is not ready yet", "wait a minute; then see its log")
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
