"""Owns which calls work on all of the file, and how long each may take (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WORDS = {
    "storage.rewriting.rewrite": "writing the database file anew",
    "storage.rewriting.empty_log": "emptying the database's log",
    "storage.upkeep.mend": "making damaged indexes anew",
    "storage.search.index.rebuild": "making the search index anew",
    "storage.forgetting.erase": "erasing a person",
    "storage.retention.clear_silent": "deleting what was silent for long",
    "storage.exchange_in.take_in": "taking in an export",
}
"""By the name of what is called: some of them are only imported by who needs them."""
LEAST_SECONDS = 600.0
SLOWEST_BYTES_PER_SECOND = 500_000
"""What is slower with the whole file has failed. A card of a small computer writes ten times as
much, and what takes longest (VACUUM) reads and writes everything twice."""


def words_for(function: Callable[..., Any]) -> str:
    """What is done; "": a transaction like any other."""
    function = getattr(function, "func", function)  # of a partial
    where = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    return WORDS.get(".".join(where), "")


def bound_seconds(file_bytes: int) -> float:
    """How long it may take with a file of this size, before only a new process helps."""
    return LEAST_SECONDS + file_bytes / SLOWEST_BYTES_PER_SECOND
