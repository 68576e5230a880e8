"""Owns the telemetry of compactions: one line of JSON for each, for scripts that read the log.

The message of the line is a fixed beginning and a JSON object with its keys in order; nothing that
anybody said is in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any


def line(fields: Mapping[str, Any]) -> str:
    """The object as it stands in the log."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def write_micro(log: logging.Logger, fields: Mapping[str, Any]) -> None:
    """One pass of micro-compaction."""
    log.info("micro compaction telemetry: %s", line(fields))


def write_batch(log: logging.Logger, fields: Mapping[str, Any]) -> None:
    """One attempt of the batch compression."""
    log.info("context compression attempt telemetry: %s", line(fields))


def occupancy_pct(tokens: int, threshold_tokens: int) -> float | None:
    """How much of the threshold is used, in percent; None: there is none."""
    return round(100 * tokens / threshold_tokens, 1) if threshold_tokens > 0 else None
