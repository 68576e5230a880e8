"""Owns how far this machine's clock may be off: judged by the date of somebody's answer."""

from __future__ import annotations

from agent.clock import SystemClock
from gateway.doctor.finding import Said

MOST_SECONDS = 60.0


def say_skew(said: Said, server_time: float | None, now: float | None = None) -> None:
    """A clock that is off: reminders come at the wrong time, and certificates look expired."""
    if server_time is None:
        return
    off = (SystemClock().now() if now is None else now) - server_time
    if abs(off) > MOST_SECONDS:
        side = "ahead" if off > 0 else "behind"
        said.warning(
            f"this machine's clock is {abs(off):,.0f} seconds {side} of theirs",
            "set it: timedatectl set-ntp true",
        )
