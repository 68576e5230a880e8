"""What a run went through, read off the store and the recorded requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.acceptance.harness import Database, World
from tests.acceptance.talk import Talk
from tests.fakes.anthropic_server import MessageRequest, common_prefix

TARGET_RATIO = 0.20
THRESHOLD_RATIO = 0.50


@dataclass(frozen=True)
class Split:
    """One compression, by the lists on both sides of it."""

    parent: list[dict[str, Any]]
    child: list[dict[str, Any]]
    manifest: dict[str, Any]

    @property
    def kept(self) -> list[int]:
        """The originals behind the copies that follow the summary, in the child's order."""
        at = [i for i, row in enumerate(self.child) if row["kind"] == "summary"]
        behind = self.child[at[-1] + 1 :] if at else self.child
        return [row["origin_id"] for row in behind if row["origin_id"] is not None]

    @property
    def tail_start(self) -> int:
        """Where in the parent the run of rows begins that was carried over to its end."""
        kept = set(self.kept)
        start = len(self.parent)
        while start > 0 and root(self.parent[start - 1]) in kept:
            start -= 1
        return start


def root(row: dict[str, Any]) -> int:
    """The original behind a row."""
    return int(row["id"] if row["origin_id"] is None else row["origin_id"])


def splits(database: Database) -> list[Split]:
    """Every compression, oldest first."""
    children = database.rows(
        "SELECT id, parent_session_id, manifest FROM sessions"
        " WHERE link = 'continuation' ORDER BY started_at, id"
    )
    return [
        Split(
            database.active(child["parent_session_id"]),
            database.active(child["id"]),
            json.loads(child["manifest"] or "{}"),
        )
        for child in children
    ]


def pruned_rows(database: Database) -> int:
    """Tool results that stand in a child in a shorter form."""
    return int(
        database.one(
            "SELECT count(*) FROM messages"
            " WHERE role = 'tool' AND kind = 'stub' AND origin_id IS NOT NULL"
        )
    )


def cuts_moved_by_a_tool_group(database: Database, window: int) -> int:
    """Cuts that would have gone through a tool group, had they been made by tokens alone."""
    budget = int(window * THRESHOLD_RATIO * TARGET_RATIO)
    moved = 0
    for split in splits(database):
        by_tokens, spent = len(split.parent), 0
        while by_tokens > 0 and spent + split.parent[by_tokens - 1]["tokens"] <= budget:
            by_tokens -= 1
            spent += split.parent[by_tokens]["tokens"]
        inside = by_tokens < len(split.parent) and split.parent[by_tokens]["role"] == "tool"
        if inside and split.tail_start != by_tokens:
            moved += 1
    return moved


def compressed_in_the_middle(database: Database) -> int:
    """Splits inside one long turn: its message stays, rows behind it go, and its end stays."""
    found = 0
    for split in splits(database):
        users = [root(row) for row in split.parent if row["role"] == "user" and not row["kind"]]
        if not users or users[-1] not in split.kept:
            continue
        later = [root(row) for row in split.parent if root(row) > users[-1]]
        gone = [row_id for row_id in later if row_id not in split.kept]
        if gone and any(row_id in split.kept for row_id in later):
            found += 1
    return found


def summaries_updated(world: World) -> int:
    """Summary requests that brought the summary before them along."""
    database = world.database()
    bodies = [
        " ".join(str(row["content"]).split())
        for row in database.rows("SELECT content FROM messages WHERE kind = 'summary'")
    ]
    # A line that only the model's own summaries have.
    marks = [
        body.partition("## Progress ")[2].partition("## ")[0].strip()
        for body in bodies
        if "## Progress " in body
    ]
    asked = [
        " ".join(json.dumps(r.messages, ensure_ascii=False).replace("\\n", " ").split())
        for r in world.anthropic.summary_requests
    ]
    return sum(any(mark and mark in text for mark in marks) for text in asked)


def broken_prefixes(world: World, talk: Talk) -> dict[str, int]:
    """How often, in each chat, a request did not begin with all of the one before it."""
    last: dict[str, dict[str, Any]] = {}
    broken = dict.fromkeys(talk.chats, 0)
    for record in world.anthropic.main_requests:
        body = record.body or {}
        said = talk.asked(MessageRequest(record.number, body, {}))
        if record.verdict != "ok" or said is None:
            continue
        if said.chat in last:
            shared, before, _ = common_prefix(last[said.chat], body)
            broken[said.chat] += shared < before
        last[said.chat] = body
    return broken


def fallback_summaries(database: Database) -> int:
    """Compressions without a model, made because the history was proven not to fit."""
    return sum(split.manifest.get("mode") == "deterministic" for split in splits(database))
