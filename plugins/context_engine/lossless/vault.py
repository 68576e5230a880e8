"""Owns what the engine keeps on disk of each conversation: originals and nodes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from plugins.context_engine.lossless.database import Database
from plugins.context_engine.lossless.forgetting import must_be_there, text_in_index
from plugins.context_engine.lossless.nodes import Node, Source
from plugins.context_engine.lossless.reading import public, sameness, stored_form
from plugins.context_engine.lossless.records import Original, Seen, scope_word

_NODE = "id, key, depth, body, content, tokens, source_tokens, messages, first_at, last_at, mode"
_BELOW = """
WITH RECURSIVE below (kind, ref) AS (
    SELECT 'node', value FROM json_each(:nodes)
    UNION
    SELECT s.kind, s.ref FROM below b JOIN sources s
        ON s.conversation = :conversation AND s.node = b.ref WHERE b.kind = 'node'
)
"""


class Vault:
    """Originals and nodes. Every method raises `LosslessError` where the file can not be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- messages ------------------------------------------------------------------------------

    def keep(self, conversation: int, seen: Sequence[Seen], at: float) -> dict[str, str]:
        """Keep messages that are not kept yet; those that were taken back count again.

        Gives the digests of those that are kept already with more than the list has of them, and
        under which one: hosts leave thinking out when they copy a message.
        """
        new = self._not_kept(conversation, seen) if seen else {}
        if not new:
            return {}
        fuller = self._fuller(conversation, list(new.values()))
        with self._database.writing() as database:
            must_be_there(database, conversation)
            for one in new.values():
                if one.digest in fuller:
                    self._count_again(database, conversation, fuller[one.digest])
                else:
                    self._keep(database, conversation, one, at)
        return fuller

    def _not_kept(self, conversation: int, seen: Sequence[Seen]) -> dict[str, Seen]:
        with self._database.reading() as database:
            known = {
                row[0]
                for row in database.execute(
                    "SELECT digest FROM messages WHERE conversation = :c AND active"
                    " AND digest IN (SELECT value FROM json_each(:d))",
                    {"c": conversation, "d": _json([one.digest for one in seen])},
                )
            }
        return {one.digest: one for one in seen if one.digest not in known}

    def _fuller(self, conversation: int, seen: Sequence[Seen]) -> dict[str, str]:
        with self._database.reading() as database:
            rows = database.execute(
                "SELECT same, digest, stored FROM messages WHERE conversation = :c"
                " AND same IN (SELECT value FROM json_each(:s)) ORDER BY id DESC",
                {"c": conversation, "s": _json([sameness(one.message) for one in seen])},
            ).fetchall()
        if not rows:
            return {}
        kept: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for same, digest, stored in rows:
            kept.setdefault(same, []).append((digest, _loads(stored)))
        fuller = {}
        for one in seen:
            said = public(one.message).items()
            for digest, whole in kept.get(sameness(one.message), ()):
                if digest != one.digest and all(
                    key in whole and whole[key] == v for key, v in said
                ):
                    fuller[one.digest] = digest
        return fuller

    @staticmethod
    def _count_again(database: sqlite3.Connection, conversation: int, digest: str) -> None:
        database.execute(
            "UPDATE messages SET active = 1 WHERE conversation = ? AND digest = ? AND NOT active",
            (conversation, digest),
        )

    @staticmethod
    def _keep(database: sqlite3.Connection, conversation: int, one: Seen, at: float) -> None:
        said = database.execute(
            "INSERT INTO messages (conversation, digest, same, role, stored, tokens, seen_at,"
            " own) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                conversation,
                one.digest,
                sameness(one.message),
                str(one.message.get("role")),
                stored_form(one.message),
                one.tokens,
                at,
                one.own,
            ),
        )
        if said.rowcount == 1:
            text = text_in_index(conversation, stored_form(one.message), one.own)
            database.execute(
                "INSERT INTO words (rowid, said) VALUES (?, ?)", (said.lastrowid, text)
            )
        else:
            Vault._count_again(database, conversation, one.digest)

    def take_back(self, conversation: int, same: Collection[str]) -> None:
        """What says this (`sameness`) was taken back: nobody finds it any more."""
        with self._database.writing() as database:
            database.execute(
                "UPDATE messages SET active = 0 WHERE conversation = :c"
                " AND same IN (SELECT value FROM json_each(:d)) AND NOT EXISTS ("
                " SELECT 1 FROM sources s WHERE s.conversation = :c AND s.ref = messages.digest)",
                {"c": conversation, "d": _json(list(same))},
            )

    def seen_at(self, conversation: int, digests: Sequence[str]) -> dict[str, float]:
        """When messages were first seen."""
        with self._database.reading() as database:
            rows = database.execute(
                "SELECT digest, seen_at FROM messages WHERE conversation = :c"
                " AND digest IN (SELECT value FROM json_each(:d))",
                {"c": conversation, "d": _json(list(digests))},
            ).fetchall()
        return dict(rows)

    def original(self, conversation: int, *, number: int = 0, digest: str = "") -> Original | None:
        """A message by its number or by its digest."""
        with self._database.reading() as database:
            row = database.execute(
                "SELECT id, digest, role, stored, tokens, seen_at FROM messages"
                " WHERE conversation = ? AND (id = ? OR digest = ?)",
                (conversation, number, digest),
            ).fetchone()
        return None if row is None else Original(*row)

    def search(
        self,
        conversation: int,
        question: str,
        limit: int,
        *,
        role: str = "",
        without: Collection[str] = (),
    ) -> list[tuple[Original, str]]:
        """The likeliest hits, each with the node right above it ("": none yet).

        ``without``: digests of messages that are no answer.
        """
        with self._database.reading() as database:
            rows = database.execute(
                "SELECT m.id, m.digest, m.role, m.stored, m.tokens, m.seen_at, coalesce(("
                " SELECT s.node FROM sources s WHERE s.conversation = m.conversation"
                " AND s.ref = m.digest LIMIT 1), ''), m.same"
                " FROM words JOIN messages m ON m.id = words.rowid"
                " WHERE words MATCH ? AND m.conversation = ? AND m.active"
                " AND (? = '' OR m.role = ?)"
                " AND m.digest NOT IN (SELECT value FROM json_each(?))"
                " ORDER BY words.rank, m.id DESC LIMIT ?",
                (
                    f"{scope_word(conversation)} AND ({question})",
                    conversation,
                    role,
                    role,
                    _json(list(without)),
                    limit,
                ),
            ).fetchall()
        hits: dict[str, tuple[Original, str]] = {}
        for row in rows:
            hits.setdefault(row[7], (Original(*row[:6]), row[6]))
        return list(hits.values())

    # --- nodes ---------------------------------------------------------------------------------

    def add(self, conversation: int, node: Node, at: float) -> None:
        """Keep a node; one that is kept already stays."""
        with self._database.writing() as database:
            must_be_there(database, conversation)
            self._add(database, conversation, node, at)

    @staticmethod
    def _add(database: sqlite3.Connection, conversation: int, node: Node, at: float) -> None:
        values = (
            *(conversation, node.id, node.key, node.depth, node.body, node.content, node.tokens),
            *(node.source_tokens, node.messages, node.first_at, node.last_at, node.mode, at),
        )
        added = database.execute(
            f"INSERT INTO nodes (conversation, {_NODE}, made_at)"
            f" VALUES ({', '.join('?' * 13)}) ON CONFLICT DO NOTHING",
            values,
        )
        if added.rowcount == 1:
            database.executemany(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?)",
                [
                    (conversation, node.id, place, source.kind, source.ref)
                    for place, source in enumerate(node.sources)
                ],
            )

    def node(self, conversation: int, node_id: str) -> Node | None:
        """A node of this conversation by its id."""
        return self._one(conversation, "id = ?", node_id)

    def made_from(self, conversation: int, key: str) -> Node | None:
        """A node that a model made from the same sources, if there is one."""
        return self._one(conversation, "key = ? AND mode <> 'cut'", key)

    def _one(self, conversation: int, condition: str, value: str) -> Node | None:
        with self._database.reading() as database:
            row = database.execute(
                f"SELECT {_NODE} FROM nodes WHERE conversation = ? AND {condition}"
                " ORDER BY made_at LIMIT 1",
                (conversation, value),
            ).fetchone()
            return None if row is None else self._read(database, conversation, row)

    @staticmethod
    def _read(database: sqlite3.Connection, conversation: int, row: tuple[Any, ...]) -> Node:
        found = database.execute(
            "SELECT kind, ref FROM sources WHERE conversation = ? AND node = ? ORDER BY place",
            (conversation, row[0]),
        ).fetchall()
        return Node(*(*row, tuple(Source(kind, ref) for kind, ref in found)))

    def figures(self, conversation: int) -> tuple[int, int]:
        """(originals, nodes) of a conversation."""
        with self._database.reading() as database:
            row = database.execute(
                "SELECT (SELECT count(*) FROM messages WHERE conversation = ?),"
                " (SELECT count(*) FROM nodes WHERE conversation = ?)",
                (conversation, conversation),
            ).fetchone()
        return int(row[0]), int(row[1])

    def adopt(self, conversation: int, other: int, roots: Collection[str], at: float) -> None:
        """Copy nodes of another conversation with all that lies below them into this one."""
        scope = {"conversation": other, "nodes": _json(list(roots))}
        with self._database.writing() as database:
            must_be_there(database, conversation)
            below = database.execute(f"{_BELOW} SELECT kind, ref FROM below", scope).fetchall()
            for kind, ref in below:
                if kind == "node":
                    row = database.execute(
                        f"SELECT {_NODE} FROM nodes WHERE conversation = ? AND id = ?",
                        (other, ref),
                    ).fetchone()
                    self._add(database, conversation, self._read(database, other, row), at)
                    continue
                row = database.execute(
                    "SELECT stored, tokens, seen_at, own FROM messages"
                    " WHERE conversation = ? AND digest = ?",
                    (other, ref),
                ).fetchone()
                self._keep(
                    database, conversation, Seen(_loads(row[0]), ref, row[1], bool(row[3])), row[2]
                )


def _json(values: Sequence[str]) -> str:
    return json.dumps(values)


def _loads(stored: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(stored)
    return message
