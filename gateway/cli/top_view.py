"""Owns the picture of `posthouse top`: lines of a given width and height (pure).

It shows who is at work and how much, by platform and ids. Nobody's words are in it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from agent.counting import counted
from gateway.cli.output import plain, when
from gateway.cli.overview_text import size, span, state_of

NARROW = 72
"""Columns; below it only the most important ones are shown."""


def picture(answer: Mapping[str, Any], width: int, height: int | None) -> list[str]:
    """As many lines as fit; None: all of them."""
    head = _head(answer)
    rows = [*_lanes(answer, width), "", *_recent(answer, width)]
    lines = [*head, "", *rows]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… {counted(hidden, 'more line')}"]
    return [_fitted(line, width) for line in lines]


def _head(answer: Mapping[str, Any]) -> list[str]:
    platforms = ", ".join(
        f"{plain(name, 20)} {status['state']}" for name, status in answer["platforms"].items()
    )
    lanes, queues, loop = answer["lanes"], answer.get("queues"), answer.get("loop")
    memory, today, share = answer["memory"], answer.get("today"), answer.get("cache_share")
    lines = [
        f"posthouse {plain(answer['version'])}  {when(answer['now'])}"
        f"  up {span(answer['uptime_seconds'])}  {state_of(answer)}",
        f"platforms  {platforms or 'none'}",
        f"lanes      {lanes['running']} running, {lanes['waiting']} waiting"
        + (f" (oldest {span(lanes['oldest_waiting_seconds'])})" if lanes["waiting"] else ""),
    ]
    if queues is None:
        lines.append("stored     the store does not answer")
    else:
        lines.append(
            f"stored     inbox {queues['inbox']}{_old(queues['inbox_oldest_seconds'])}"
            f"  outbox {queues['outbox']}{_old(queues['outbox_oldest_seconds'])}"
            f"  in doubt {queues['outbox_in_doubt']}"
        )
    if today is not None:
        turns = counted(sum(today["turns"].values()), "turn")
        cached = "" if share is None else f"  cache {share:.0%}"
        lines.append(f"today      {turns}, {counted(today['compressions'], 'compression')}{cached}")
    if loop is not None:
        lines.append(
            f"loop       p99 {loop['p99_seconds'] * 1000:.0f} ms"
            f"  worst {loop['most_seconds'] * 1000:.0f} ms  stalls {loop['stalls']}"
        )
    resident = memory["resident_bytes"]
    if resident is not None:
        grown = memory["grown_bytes"]
        more = "" if grown is None else f"  grown {'-' if grown < 0 else '+'}{size(abs(grown))}"
        lines.append(f"memory     {size(resident)}{more}")
    return lines


def _old(seconds: float | None) -> str:
    return "" if seconds is None else f" ({span(seconds)})"


def _lanes(answer: Mapping[str, Any], width: int) -> list[str]:
    wide = width >= NARROW
    header = ["PLATFORM", "WHERE", "DOING", "FOR", "WAIT"]
    header += ["ASKED", "PROMPT", "OUT"] if wide else []
    rows = [_lane(row, wide) for row in answer["rows"]]
    return _table(header, rows) if rows else ["nobody is at work"]


def _lane(row: Mapping[str, Any], wide: bool) -> list[str]:
    waiting = f"{row['waiting']}" if row["waiting"] else ""
    if waiting and wide:
        waiting += f" ({span(row['oldest_seconds'])})"
    cells = [
        plain(str(row["platform"]), 12),
        _where(row),
        row["doing"] or "waits",
        span(row["seconds"]),
        waiting,
    ]
    if wide:
        cells += [f"{row['requests']}", f"{row['prompt_tokens']:,}", f"{row['output_tokens']:,}"]
    return cells


def _where(row: Mapping[str, Any]) -> str:
    place = [str(row.get(name)) for name in ("chat_id", "thread_id", "user_id") if row.get(name)]
    return plain("/".join(dict.fromkeys(place)), 40) or "?"


def _recent(answer: Mapping[str, Any], width: int) -> list[str]:
    wide = width >= NARROW
    header = ["ENDED", "PLATFORM", "OUTCOME", "TOOK"]
    header += ["ASKED", "TOOLS", "PROMPT", "OUT", "COMPR"] if wide else ["PROMPT"]
    rows = []
    for turn in answer["recent"]:
        cells = [
            when(turn["ended_at"])[11:],
            plain(turn["platform"], 12),
            turn["outcome"],
            f"{turn['seconds']:.1f} s",
        ]
        prompt = f"{turn['prompt_tokens']:,}"
        if wide:
            cells += [f"{turn['requests']}", f"{turn['tool_calls']}", prompt]
            cells += [f"{turn['output_tokens']:,}", f"{turn['compactions']}"]
        else:
            cells.append(prompt)
        rows.append(cells)
    return _table(header, rows) if rows else ["no turn has ended yet"]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def _fitted(line: str, width: int) -> str:
    if sum(map(_columns, line)) <= width:
        return line
    used, kept = 0, []
    for character in line:
        used += _columns(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
