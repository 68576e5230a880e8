"""Owns what the process stands in, beside its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.media.transcription import Transcriber
from gateway.config.environment import Home, Secrets
from gateway.config.reading import Reading, Source
from gateway.crashes.shelf import CrashShelf
from gateway.platforms.console.adapter import Terminal


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process stands in, beside its configuration."""

    home: Home
    secrets: Secrets
    env: Mapping[str, str]
    console: Terminal | None = None
    """The standard streams, if they are a console."""
    only_console: bool = False
    """``chat``: no other platform."""
    plugin_sections: Mapping[str, Any] = field(default_factory=dict)
    """Sections of config.yaml that are named after plugins, as they stand."""
    transcriber: Transcriber | None = None
    """Hears voice messages; None: they are files like others. For plugins."""
    crashes: CrashShelf | None = None
    """Where reports of crashes are put; None: nowhere."""
    source: Source | None = None
    """Where the configuration comes from, to be read again; None: from nowhere."""
    reading: Reading | None = None
    """What all of it said at the start."""
    set_up_log: Callable[[Reading], None] | None = None
    """The log, as a changed configuration has it."""
