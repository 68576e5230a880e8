"""Owns who runs the plugins of this process: the home they see, and their manager."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Host:
    """Nothing set: a plugin's own test suite, without a daemon."""

    home: Path | None = None
    """The façade folder."""
    manager: Any = None

    @property
    def is_daemon(self) -> bool:
        """Is it more than a test suite?"""
        return self.home is not None


_lock = threading.Lock()
_host = Host()


def bind(host: Host) -> None:
    """From now on plugins run for this one."""
    global _host
    with _lock:
        _host = host


def current() -> Host:
    """Whom plugins run for."""
    with _lock:
        return _host


def hermes_home() -> Path:
    """``HERMES_HOME``, else the façade, else the folder that plugins know as the default."""
    named = os.environ.get("HERMES_HOME", "").strip()
    if named:
        return Path(named)
    return current().home or Path.home() / ".hermes"


def config_file() -> Path:
    """The copy of the configuration that plugins read and write.

    In the daemon it is the façade's, whatever a plugin made of the environment: never ours.
    """
    return (current().home or hermes_home()) / "config.yaml"
