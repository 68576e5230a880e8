"""Owns the form in which a prepared list is kept: what has no column of its own, as JSON."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from agent.messages import Draft, Entry, Keep
from agent.prepared import Prepared
from storage.codec import dump_json

log = logging.getLogger(__name__)

FORM = 1
"""Of the payload. Another version's is not read: a summary that can be had again is no loss."""


def dump_payload(prepared: Prepared) -> str:
    """All that has no column of its own."""
    return dump_json(
        {
            "form": FORM,
            "entries": [_plain(entry) for entry in prepared.entries],
            "tokens": prepared.tokens,
            "manifest": prepared.manifest,
            "cost": prepared.cost,
        }
    )


def load_payload(
    session_id: str, revision: int, covered_row_id: int, payload: str, created_at: float
) -> Prepared | None:
    """What was kept; None if it can not be read, which costs no more than a summary."""
    try:
        said = json.loads(payload)
        if said["form"] != FORM:
            return None
        return Prepared(
            session_id,
            revision,
            covered_row_id,
            entries=tuple(_entry(plain) for plain in said["entries"]),
            tokens=said["tokens"],
            manifest=said["manifest"],
            cost=said["cost"],
            created_at=created_at,
        )
    except (ValueError, KeyError, TypeError):
        log.warning("a prepared list can not be read", extra={"session_id": session_id})
        return None


def _plain(entry: Entry) -> Any:
    """A kept row is its id, as a rule; everything else is written out."""
    if isinstance(entry, Keep) and entry == Keep(entry.row_id):
        return entry.row_id
    return {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}


def _entry(plain: Any) -> Entry:
    if isinstance(plain, int):
        return Keep(plain)
    return Keep(**plain) if "row_id" in plain else Draft(**plain)
