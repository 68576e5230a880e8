"""Owns talking to the service manager: ready, status, watchdog, stopping."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from gateway.logs import redacted

log = logging.getLogger(__name__)


class ServiceManager:
    """systemd's notification socket; without one every call does nothing."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(env)
        """How often the manager wants to hear from us; None: it does not."""

    def ready(self, status: str) -> None:
        """Start-up is over."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``, which everybody here may ask."""
        self._send(f"STATUS={_one_line(text)}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_seconds is not None:
            self._send("WATCHDOG=1")

    def stopping(self, extend_seconds: float) -> None:
        """Shutting down, which may take this long."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(extend_seconds * 1_000_000)}")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):  # the abstract namespace
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto(text.encode(), address)
        except OSError as exc:
            log.warning("service manager not reachable", extra={"reason": str(exc)})


def _one_line(text: str) -> str:
    """A line end would begin another assignment, as if we had said that as well."""
    return " ".join(redacted(text).split())


def _watchdog_seconds(env: Mapping[str, str]) -> float | None:
    raw, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not raw.isdecimal() or (pid.isdecimal() and int(pid) != os.getpid()):
        return None
    return int(raw) / 1_000_000
