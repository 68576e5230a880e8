"""Owns the check of the machine's clock: is it set by the network, and in which zone are we."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.config.environment import local_zone
from gateway.doctor.asked import facts_of
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.jobs.zone_names import name_of


def look(ground: Ground) -> Iterable[Finding]:
    """Ask systemd, where there is one."""
    said = Said("clock")
    say_zone(said, ground.config.timezone, name_of(local_zone(ground.env)))
    said.findings += judged(facts_of(ground.env, "timedatectl", "show"))
    return said.findings


def say_zone(said: Said, configured: str | None, system: str) -> None:
    """In which zone times are meant."""
    if configured:
        said.ok(f"times are in {configured} (timezone in config.yaml)")
    elif system == "UTC":
        said.note(
            "times are in UTC: the system names no other zone, and config.yaml none at all",
            "set timezone in config.yaml (`posthouse init` asks) if people live elsewhere",
        )
    else:
        said.ok(f"times are in {system} (the system's)")


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
