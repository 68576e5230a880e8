"""Owns the check of the machine's clock: is it set by the network, and in which zone are we."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping

from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.setup.zone import guessed

SECONDS = 2.0


def look(ground: Ground) -> Iterable[Finding]:
    """Ask systemd, where there is one."""
    said = Said("clock")
    zone = ground.config.timezone or guessed(ground.env)
    source = "timezone in config.yaml" if ground.config.timezone else "the system's"
    said.ok(f"times are in {zone} ({source})")
    said.findings += judged(time_facts(ground.env))
    return said.findings


def judged(facts: Mapping[str, str]) -> list[Finding]:
    """What `timedatectl show` says; nothing where it is not there."""
    said = Said("clock")
    if facts.get("NTPSynchronized") == "yes":
        said.ok("the network sets it")
    elif facts.get("NTP") == "no":
        said.note("the network does not set it", "timedatectl set-ntp true")
    elif facts.get("NTPSynchronized") == "no":
        said.note("it is to be set by the network, and was not yet", "timedatectl timesync-status")
    return said.findings


def time_facts(env: Mapping[str, str]) -> dict[str, str]:
    """The lines of `timedatectl show`."""
    program = shutil.which("timedatectl", path=env.get("PATH"))
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, "show"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs}
