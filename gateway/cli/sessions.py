"""Owns `posthouse sessions` and `posthouse lineage`: looking at the store while it is in use."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent.errors import PosthouseError
from agent.messages import Row, text_of
from agent.ports import Archive
from agent.sessions import SearchScope, SessionInfo
from gateway.cli import exits
from gateway.cli.output import out, plain, table, when
from gateway.config.environment import environment, find_home


def run(arguments: argparse.Namespace) -> int:
    """One of the actions, on a read-only connection."""
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring import archive  # noqa: PLC0415

    home = find_home(environment())
    if not home.database.exists():
        raise PosthouseError(f"nothing is stored yet in {home.path}; `posthouse run` begins it")
    async with archive(home) as store:
        match arguments.action:
            case "list":
                infos = await store.list_sessions(limit=arguments.limit)
                _print_infos(infos, arguments.json)
            case "show":
                await _show(store, arguments.id, arguments.json)
            case "search":
                await _search(store, arguments.query, arguments.limit, arguments.json)
            case _:
                sessions = await store.lineage(arguments.id)
                infos = await store.session_infos([s.id for s in sessions])
                _print_infos(infos, arguments.json, lineage=True)
    return exits.OK


def _print_infos(infos: Sequence[SessionInfo], as_json: bool, *, lineage: bool = False) -> None:
    if as_json:
        out(json.dumps([_chain_link(i) if lineage else _info(i) for i in infos]))
        return
    if not infos:
        out("nothing is stored yet")
        return
    rows = [
        (
            i.id,
            i.source,
            plain(i.title or "", 40),
            when(i.started_at),
            i.end_reason or ("live" if i.ended_at is None else "ended"),
            str(i.message_count),
            f"~{i.tokens}",
        )
        for i in infos
    ]
    out(table(("ID", "SOURCE", "TITLE", "STARTED", "END", "MESSAGES", "TOKENS"), rows))


def _chain_link(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "parent_session_id": info.parent_session_id,
        "link": info.link,
        "end_reason": info.end_reason,
        "message_count": info.message_count,
        "tokens": info.tokens,
    }


def _info(info: SessionInfo) -> dict[str, Any]:
    return {
        **_chain_link(info),
        "conversation_id": info.conversation_id,
        "source": info.source,
        "model": info.model,
        "title": info.title,
        "started_at": info.started_at,
        "ended_at": info.ended_at,
    }


async def _show(store: Archive, session_id: str, as_json: bool) -> None:
    rows = await store.active_rows(session_id)
    if as_json:
        out(json.dumps([_row(r) for r in rows], ensure_ascii=False))
        return
    for row in rows:
        label = row.kind or row.message["role"]
        calls = ", ".join(c["function"]["name"] for c in row.message.get("tool_calls") or ())
        text = plain(text_of(row.message["content"]))
        said = " ".join(part for part in (text, calls and f"→ {calls}") if part)
        out(f"[{row.id}] {when(row.created_at)} {label}: {said}")


def _row(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "session_id": row.session_id,
        "seq": row.seq,
        "role": row.message["role"],
        "content": row.message["content"],
        "wire_content": row.wire_content,
        "tool_calls": row.message.get("tool_calls"),
        "tool_call_id": row.message.get("tool_call_id"),
        "tool_name": row.message.get("name"),
        "kind": row.kind,
        "origin_id": row.origin_id,
        "created_at": row.created_at,
    }


async def _search(store: Archive, query: str, limit: int, as_json: bool) -> None:
    hits = await store.search(query, SearchScope(), limit=limit)
    if as_json:
        fields = ("message_id", "session_id", "role", "snippet", "score")
        out(json.dumps([{f: getattr(h, f) for f in fields} for h in hits], ensure_ascii=False))
        return
    if not hits:
        out("nothing found")
    for hit in hits:
        out(f"[{hit.message_id}] {hit.session_id} {hit.role}: {plain(hit.snippet)}")
