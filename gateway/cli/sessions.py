"""Owns `posthouse sessions` and `posthouse lineage`: looking at the store while it is in use."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent.archive_ports import Archive
from agent.compaction.plan.report import last_compression
from agent.composition import fill
from agent.errors import PosthouseError, SessionNotFound
from agent.ledger import LedgerScope
from agent.llm.background import in_daemon_thread
from agent.prices import price_table
from agent.sessions import LoadedSession, SearchScope, SessionInfo
from agent.spending import bill_of
from gateway.cli import exits, session_table, session_view
from gateway.cli.output import NOTHING_YET, nothing_yet, out, plain, terminal_width
from gateway.cli.session_view import SessionView
from gateway.cli.settings import Settings
from gateway.config.environment import environment, find_home
from gateway.windows.book import remembered_image_tokens
from gateway.windows.rules import triggers_of_model

_BY_DEFAULTS = ", so the thresholds shown are those of the defaults"
MOST_NAMED = 5
"""Sessions that are named when a short id fits several."""


def run(arguments: argparse.Namespace) -> int:
    """One of the actions, on a read-only connection."""
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import archive  # noqa: PLC0415

    env = environment()
    home = find_home(env)
    settings = Settings(None, home, env)
    if not home.database.exists():
        if arguments.action in ("list", "search"):
            return nothing_yet(home.path, [] if arguments.json else None)
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    settings.tell(_BY_DEFAULTS if arguments.action == "show" else "")
    async with archive(home) as store:
        match arguments.action:
            case "list":
                infos = await store.list_sessions(limit=arguments.limit)
                _print_infos(infos, await _openings(store, infos), arguments.json)
            case "show":
                session_id = await find_session(store, arguments.id)
                await _show(store, session_id, settings, arguments.json)
            case "search":
                await _search(store, arguments.query, arguments.limit, arguments.json)
                if store.index_damage is not None:
                    await in_daemon_thread(lambda: _say_of_index(settings), "tell of the index")
            case _:
                sessions = await store.lineage(await find_session(store, arguments.id))
                infos = await store.session_infos([s.id for s in sessions])
                _print_infos(infos, await _openings(store, infos), arguments.json, lineage=True)
    return exits.OK


async def _openings(store: Archive, infos: Sequence[SessionInfo]) -> Mapping[str, str]:
    """For those without a title, by conversation."""
    return await store.openings([info.conversation_id for info in infos if not info.title])


def _print_infos(
    infos: Sequence[SessionInfo],
    openings: Mapping[str, str],
    as_json: bool,
    *,
    lineage: bool = False,
) -> None:
    if as_json:
        out(json.dumps([_chain_link(i) if lineage else _info(i) for i in infos]))
        return
    if not infos:
        out("nothing is stored yet")
        return
    origin = session_table.comes_from(infos) if lineage else None
    if origin is not None:
        out(origin)
    out(session_table.as_table(infos, openings, width=terminal_width()))


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


async def find_session(store: Archive, ident: str) -> str:
    """The id that is meant: whole, or the beginning of one session's id and no other's.

    Raises:
        SessionNotFound: no id begins so.
        PosthouseError: several do.
    """
    found = await store.session_ids(ident, limit=MOST_NAMED + 1) if ident else []
    if ident in found or len(found) == 1:
        return ident if ident in found else found[0]
    if not found:
        raise SessionNotFound(ident)
    named = ", ".join(found[:MOST_NAMED])
    more = ", …" if len(found) > MOST_NAMED else ""
    raise PosthouseError(
        f"several sessions begin with {ident[:80]!r}: {named}{more}; please type more of it"
    )


async def _show(store: Archive, session_id: str, settings: Settings, as_json: bool) -> None:
    view = await _view(store, session_id, settings)
    if as_json:
        out(json.dumps(session_view.as_json(view), ensure_ascii=False))
        return
    for line in session_view.as_text(view, width=terminal_width(), blocks=_shows_blocks()):
        out(line)


async def _view(store: Archive, session_id: str, settings: Settings) -> SessionView:
    lineage = await store.lineage(session_id)
    session = next(session for session in lineage if session.id == session_id)
    rows = tuple(await store.active_rows(session_id))
    home, model = settings.home, session.prefix.model
    return SessionView(
        session=session,
        rows=rows,
        filling=fill(
            LoadedSession(session, rows),
            triggers_of_model(settings.or_defaults(), home, model),
            image_tokens=remembered_image_tokens(home.image_tokens).of(model),
        ),
        last=last_compression(lineage, session_id),
        manifest=session.manifest,
        usage=await store.usage_totals(session.conversation_id),
        prices=price_table(),
        bill=bill_of(
            await store.ledger_lines(LedgerScope(conversation_id=session.conversation_id)),
            price_table(),
        ),
    )


def _shows_blocks() -> bool:
    encoding = sys.stdout.encoding if sys.stdout is not None else None
    try:
        "▰▱│".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _say_of_index(settings: Settings) -> None:
    knows = settings.tell_of_index()
    what = "the gateway knows, and makes it anew" if knows else "the next start makes it anew"
    sys.stderr.write(
        f"the search index is damaged, so every message was read; {what}. No message is lost\n"
    )


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
