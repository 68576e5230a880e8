"""Owns small facts on disk: one JSON object, written whole or not at all."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class RememberedFacts:
    """What was learned and is worth a file. Losing it costs a question, so nothing here fails."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, Any]:
        """All of them; nothing if there is no file, or none that can be read."""
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            log.warning(
                "remembered facts not readable",
                extra={"file": self._file.name, "reason": str(exc)},
            )
            return {}
        return data if isinstance(data, dict) else {}

    def update(self, changes: Mapping[str, Any]) -> None:
        """Write these beside what is there; None takes one away."""
        known = self.read()
        facts = {k: v for k, v in {**known, **changes}.items() if v is not None}
        if facts == known:
            return
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as stream:
                json.dump(facts, stream, indent=1, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
        except OSError as exc:  # only a memory: it is learned again
            log.warning("facts not remembered", extra={"file": self._file.name, "reason": str(exc)})
