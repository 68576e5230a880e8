"""Owns how sessions are listed: a table that fits the terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agent.forgetting import TOMBSTONE
from agent.sessions import SessionInfo
from gateway.cli.output import plain, table, when

_HEADER = ("ID", "SOURCE", "TITLE", "STARTED", "END", "MESSAGES", "TOKENS")
_TITLE_CELLS = 40
_SHORT_ID_CELLS = 12
"""Commands take an id that is cut short, where no other begins so."""


def _opening(openings: Mapping[str, str], conversation_id: str) -> str:
    """How a conversation began; of one that was erased there is nothing to say."""
    words = openings.get(conversation_id, "")
    return "" if words.startswith(TOMBSTONE) else words


def as_table(
    infos: Sequence[SessionInfo],
    openings: Mapping[str, str] = MappingProxyType({}),
    *,
    width: int | None = None,
) -> str:
    """One line for each.

    Args:
        infos: In the order in which they are shown.
        openings: How conversations began: what stands for a title where there is none.
        width: Columns of the terminal; None: none, so everything is shown whole.
    """
    infos = [
        replace(info, title=info.title or _opening(openings, info.conversation_id))
        for info in infos
    ]
    whole = _table(infos)
    if width is None or _cells(whole) <= width:
        return whole
    narrow = _table(infos, narrow=True)
    if _cells(narrow) <= width:
        return narrow
    short = _table(infos, narrow=True, id_cells=_SHORT_ID_CELLS)
    longest = max((len(_title(info, _TITLE_CELLS)) for info in infos), default=0)
    spare = max(len("TITLE"), longest - max(0, _cells(short) - width))
    return _table(infos, narrow=True, id_cells=_SHORT_ID_CELLS, title_cells=spare)


def comes_from(infos: Sequence[SessionInfo]) -> str | None:
    """Of a lineage that began as a part of another: which one."""
    root = infos[0] if infos else None
    if root is None or root.parent_session_id is None:
        return None
    parent = root.parent_session_id
    return f"{root.link or 'child'} of {parent} (posthouse lineage {parent})"


def _table(
    infos: Sequence[SessionInfo],
    *,
    narrow: bool = False,
    id_cells: int | None = None,
    title_cells: int = _TITLE_CELLS,
) -> str:
    """``narrow``: without the source, and times to the minute."""
    rows = [
        (
            info.id[:id_cells],
            info.source,
            _title(info, title_cells),
            when(info.started_at)[: 16 if narrow else None],
            info.end_reason or ("live" if info.ended_at is None else "ended"),
            str(info.message_count),
            f"~{info.tokens}",
        )
        for info in infos
    ]
    if not narrow:
        return table(_HEADER, rows)
    return table((_HEADER[0], *_HEADER[2:]), [(row[0], *row[2:]) for row in rows])


def _title(info: SessionInfo, cells: int) -> str:
    return plain(info.title or "", cells)


def _cells(text: str) -> int:
    return max(map(len, text.splitlines()))
