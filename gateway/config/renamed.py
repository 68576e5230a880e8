"""Owns the other names of keys: SPEC's aliases, Hermes Agent's, and what ours were called before.

A key that gets another name stays in the table with the version in which that happened; whoever
upgrades is told the new name, and nothing breaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.written import Path, Written

HERMES = "Hermes Agent"


@dataclass(frozen=True, slots=True)
class Renamed:
    """One other name."""

    old: str
    new: tuple[str, ...]
    """Usually one."""
    since: str
    """The version of ours that renamed it, or whose name it is."""
    alias: bool = False
    """As good as ours: nothing is said of it."""
    keep: bool = False
    """It has a meaning of its own beside."""


RENAMED = (
    Renamed("prompt_caching.cache_ttl", ("model.cache_ttl",), HERMES, alias=True),
    Renamed(
        "auxiliary.compression.model",
        ("compression.summary_model",),
        HERMES,
        alias=True,
        keep=True,
    ),
    Renamed("model.default", ("model.name",), HERMES),
    Renamed("model.model", ("model.name",), HERMES),
    Renamed("agent.max_turns", ("agent.max_iterations",), HERMES),
    Renamed("agent.restart_drain_timeout", ("gateway.drain_seconds",), HERMES),
    Renamed("session_reset.mode", ("sessions.reset",), HERMES),
    Renamed("session_reset.idle_minutes", ("sessions.idle_minutes",), HERMES),
    Renamed("session_reset.at_hour", ("sessions.daily_hour",), HERMES),
    Renamed("display.busy_input_mode", ("gateway.busy_mode",), HERMES),
    Renamed("streaming.enabled", ("gateway.streaming",), HERMES),
    Renamed(
        "group_sessions_per_user",
        ("telegram.group_sessions_per_user", "discord.group_sessions_per_user"),
        HERMES,
    ),
    Renamed("mcp_servers", ("agent.tools.mcp",), HERMES),
)

# fmt: off
_ELSEWHERE = frozenset(
    {
        "_config_version", "approvals", "attachments", "browser", "checkpoints",
        "custom_providers", "database", "delegation", "display", "fallback_model",
        "fallback_providers", "human_delay", "platform_toolsets", "privacy", "providers",
        "quick_commands", "runtime", "security", "session_reset", "skills",
        "smart_model_routing", "streaming", "stt", "telemetry", "terminal", "toolsets", "tts",
        "updates", "voice",
    }
)
# fmt: on
"""Sections of Hermes Agent's that have nothing to say here."""


def is_of_hermes(name: str) -> bool:
    """Is this a section of that program, and none of ours?"""
    return name in _ELSEWHERE


def to_new_names(written: Written) -> tuple[list[str], list[str]]:
    """Move what has an old name; gives back notes, and problems: one for each."""
    notes: list[str] = []
    problems: list[str] = []
    for entry in RENAMED:
        old: Path = tuple(entry.old.split("."))
        if not written.has(old) or (entry.alias and written.get(old) is None):
            continue
        place = written.place(old)
        names = " and ".join(entry.new)
        if any(_differs(written, old, tuple(new.split("."))) for new in entry.new):
            problems.append(
                f"{place}: {entry.old}: is another name of {names}, and both are set, differently; "
                "keep one of them"
            )
            written.take(old)
            continue
        if not entry.alias:
            whose = f"{entry.since}'s name of" if entry.since == HERMES else "now called"
            notes.append(f"{place}: {entry.old} is {whose} {names}")
        value = written.get(old)
        for new in entry.new:
            path: Path = tuple(new.split("."))
            if written.has(path) and not _wins(written, old, path):
                continue
            if written.put(path, value) is None:
                written.move_places(old, path, keep=True)
                written.called[path] = entry.old
        if not entry.keep:
            written.take(old)
            for places in (written.keys, written.values):
                for gone in [p for p in places if p[: len(old)] == old]:
                    del places[gone]
    return notes, problems


def _differs(written: Written, old: Path, new: Path) -> bool:
    """Both are set in the same place, and not to the same."""
    if not written.has(new) or written.get(new) == written.get(old):
        return False
    return _in_variable(written, old) == _in_variable(written, new)


def _wins(written: Written, old: Path, new: Path) -> bool:
    """The environment goes before the file, under whatever name."""
    return _in_variable(written, old) and not _in_variable(written, new)


def _in_variable(written: Written, path: Path) -> bool:
    place = written.place(path)
    return place is not None and place.is_variable
