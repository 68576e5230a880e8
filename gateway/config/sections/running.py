"""Owns the sections of config.yaml about running for months: sessions, money, plugins, the log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gateway.config.sections.values import Section, upper


class Sessions(Section):
    """When a conversation starts anew by itself, and how long old ones are kept."""

    reset: Literal["none", "idle", "daily"] = "none"
    """When a conversation starts anew: never by itself, after a silence, or once a day."""
    idle_minutes: int = Field(1440, ge=1)
    """How long that silence is."""
    daily_hour: int = Field(4, ge=0, le=23)
    """At which hour of the day."""
    retention_days: int | None = Field(None, ge=1)
    """How long conversations are kept after their last message; null: for ever."""


class Backup(Section):
    """The backups that the daemon makes by itself, into the folder backups of the home."""

    enabled: bool = True
    """One each night; skipped with a warning where the disk has too little room."""
    hour: int = Field(3, ge=0, le=23)
    """At which hour of the day."""
    keep: int = Field(7, ge=1, le=365)
    """So many of the newest ones; those made by hand are never deleted."""


class Plugins(Section):
    """Which plugins are loaded, and what is handed to them."""

    enabled: list[str] = []
    """By name: `posthouse plugins list` says what there is."""
    disabled: list[str] = []
    """Never loaded, whatever else names them."""
    entries: dict[str, Any] = {}
    """What is set for each, by name: settings, allow_tool_override, llm, allow_from …"""


class Budget(Section):
    """What may be spent."""

    usd_per_user_day: float | None = Field(None, gt=0)
    """US dollars per person and day: warned at 80 %, refused once spent; null: no limit."""


class Logging(Section):
    """The log: on standard error, or in the journal."""

    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(upper)] = "INFO"
    """From which level on; in the terminal of a chat INFO and WARNING show errors only."""
    format: Literal["auto", "plain", "json", "journal"] = "auto"
    """auto: journal (with fields) under systemd, else plain."""
