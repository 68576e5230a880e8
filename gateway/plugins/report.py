"""Owns what people are told of plugins: rows of a list, all there is about one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.plugins.discovery import Found, Role
from gateway.plugins.hook_names import methods_never_called, never_called
from gateway.plugins.manager import PluginRecord, PluginState
from gateway.plugins.names import BUILT_IN_ENGINE
from gateway.plugins.settings import PluginSettings

Row = dict[str, Any]


def row(record: PluginRecord) -> Row:
    """All there is about one plugin, for lists, for ``--json`` and over the control socket."""
    about = record.found.manifest
    given = record.collected
    return {
        "name": record.key,
        "version": about.version,
        "description": about.description,
        "author": about.author,
        "source": record.found.source.value,
        "where": record.found.where,
        "selected_by": record.found.role.value,
        "state": record.state.value,
        "reason": record.reason,
        "seconds": round(record.seconds, 3),
        "gives": given.gives() if given is not None else [],
        "remarks": list(record.remarks),
        "without_effect": list(given.without_effect) if given is not None else [],
        "never_called": never_called(name for name, _ in given.hooks) if given is not None else [],
        "methods_never_called": (
            methods_never_called(given.engine, given.memory_provider) if given is not None else []
        ),
        "trace": list(record.trace),
    }


def rows(records: Iterable[PluginRecord]) -> list[Row]:
    """In the order of the records."""
    return [row(record) for record in records]


def summary(records: Sequence[PluginRecord], off: str) -> str:
    """One line for ``posthouse status``."""
    if off:
        return "off"
    loaded = [r.key for r in records if r.state is PluginState.LOADED]
    failed = [r.key for r in records if r.state in (PluginState.FAILED, PluginState.LATE)]
    parts = [f"{len(loaded)} loaded ({', '.join(loaded)})" if loaded else "none loaded"]
    if failed:
        parts.append(f"{len(failed)} failed ({', '.join(failed)}): `posthouse plugins list`")
    return "; ".join(parts)


def nobody_is_called_so(records: Sequence[PluginRecord], settings: PluginSettings) -> list[str]:
    """A line for each name in the configuration that no plugin has."""
    known = {name for record in records for name in record.found.names}
    lines: list[str] = []
    for key, names in (
        ("plugins.enabled", settings.enabled),
        ("plugins.disabled", settings.disabled),
    ):
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                lines.append(f"{key} names {name!r}, but there is no such plugin{hint}")
    lines += [
        f"plugins.enabled names {r.key}, which is selected by {r.reason} instead"
        for r in records
        if r.state is PluginState.NOT_ENABLED
        and r.found.role is not Role.GENERAL
        and set(r.found.names) & set(settings.enabled)
    ]
    return lines


def not_selectable(records: Sequence[PluginRecord], settings: PluginSettings) -> list[str]:
    """A line for each of engine and provider that can not come of what is there.

    What a general plugin will offer is not known before it is loaded; while one is enabled, only
    names that look mistyped are reported.
    """
    lines: list[str] = []
    may_offer = [
        r.found
        for r in records
        if r.state is PluginState.NOT_ENABLED
        and r.found.role is Role.GENERAL
        and settings.is_selected(r.found)
    ]
    for role, name in ((Role.ENGINE, settings.engine), (Role.MEMORY, settings.provider)):
        if not name or (role is Role.ENGINE and name == BUILT_IN_ENGINE):
            continue
        mine = [r for r in records if r.found.role is role and settings.is_selected(r.found)]
        if any(r.state is PluginState.DISABLED for r in mine):
            lines.append(f"{role} names {name!r}, but plugins.disabled names it as well")
        if mine:
            continue  # it is there; where it is broken, its record says so
        known = {_name_to_select(r.found) for r in records if r.found.role is role}
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
        if may_offer and (not near or any(name in found.names for found in may_offer)):
            continue
        there = f"; did you mean {near[0]}?" if near else f" (there are: {_listed(known)})"
        lines.append(f"{role} names {name!r}, but no plugin offers it by this name{there}")
    return lines


def _name_to_select(found: Found) -> str:
    return found.key.rsplit("/", 1)[-1] if found.role is Role.ENGINE else found.names_of_provider[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def in_words(about: Row) -> str:
    """All there is about one plugin, for a terminal; not yet made safe for one."""
    name = f"{about['name']} {about['version']}".strip()
    lines = [f"{name}: {about['state']}" + (f" ({about['reason']})" if about["reason"] else "")]
    if about["description"]:
        lines.append(f"  {about['description']}")
    lines.append(f"  from: {about['source']}, {about['where']}")
    lines.append(f"  selected by: {about['selected_by']}")
    if about["gives"]:
        lines.append(f"  gives: {', '.join(about['gives'])}")
    if about["seconds"]:
        lines.append(f"  took: {about['seconds']:.2f} s to load")
    lines += [f"  note: {line}" for line in about["remarks"]]
    if about["without_effect"]:
        lines.append(f"  without effect here: {', '.join(about['without_effect'])}")
    if about.get("never_called"):
        lines.append(f"  hooks that are never called here: {', '.join(about['never_called'])}")
    if about.get("methods_never_called"):
        lines.append(f"  methods never called here: {', '.join(about['methods_never_called'])}")
    if about["trace"]:
        lines += ["  the end of what it raised:", *(f"    {line}" for line in about["trace"])]
    return "\n".join(lines)
