"""Owns how an overview reads in a terminal: sizes, times, one line for each subject (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from agent.counting import counted
from gateway.cli.output import plain, when
from gateway.monitoring.provider import told

_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def size(count: float) -> str:
    """Bytes, for eyes."""
    for unit, name in _SIZES:
        if abs(count) >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def span(seconds: float | None) -> str:
    """How long: two units at the most."""
    if seconds is None:
        return "?"
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def lines(answer: Mapping[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Subject and words, of whatever is in the answer: an older daemon says less."""
    for subject, tell in _SUBJECTS:
        found = answer.get(subject)
        if found is not None and (words := tell(found, now)):
            yield _NAMES.get(subject, subject), words


def state_of(answer: Mapping[str, Any]) -> str:
    """In a few words, with the reasons."""
    state = answer.get("state") or ("ready" if answer.get("ready") else "starting")
    reasons = [plain(str(reason), 200) for reason in answer.get("reasons") or ()]
    return f"{state}: {'; '.join(reasons)}" if reasons else str(state)


def _lanes(found: Mapping[str, Any], now: float) -> str:
    words = f"{counted(found['running'], 'conversation')} at work"
    if found["running"]:
        words += f" (longest for {span(found['longest_running_seconds'])})"
    words += f", {counted(found['waiting'], 'message')} waiting"
    if found["waiting"]:
        words += f" (oldest for {span(found['oldest_waiting_seconds'])})"
    return words


def _queues(found: Mapping[str, Any], now: float) -> str:
    words = f"{counted(found['inbox'], 'message')} not begun"
    if found["inbox"]:
        words += f" (oldest for {span(found['inbox_oldest_seconds'])})"
    words += f", {counted(found['outbox'], 'answer')} owed"
    if found["outbox"]:
        words += f" (oldest for {span(found['outbox_oldest_seconds'])})"
    if found["outbox_in_doubt"]:
        words += f", {found['outbox_in_doubt']:,} of them in doubt"
    if found["quarantined"]:
        words += f", {counted(found['quarantined'], 'update')} unreadable"
    if refusing := found.get("refusing"):
        chats = counted(found["refusing_chats"], "chat takes", "chats take")
        words += f"; {chats} no answers: {', '.join(_refusing(each, now) for each in refusing)}"
        words += ", …" * (found["refusing_chats"] > len(refusing))
    return words


def _refusing(chat: Mapping[str, Any], now: float) -> str:
    where = plain(f"{chat['platform']} {chat['chat_id']}", 80)
    lost = f"{counted(chat['answers'], 'answer')} given up since {span(now - chat['since'])}"
    return f"{where} ({lost}: {plain(str(chat['reason']), 80)})"


def _today(found: Mapping[str, Any], now: float) -> str:
    turns = found["turns"]
    kinds = ", ".join(f"{number:,} {state}" for state, number in sorted(turns.items()))
    words = counted(sum(turns.values()), "turn") + (f" ({kinds})" if kinds else "")
    return f"{words}, {counted(found['compressions'], 'compression')}"


def _compressions(found: Mapping[str, Any], now: float) -> str:
    last, at = found.get("last"), found.get("last_at")
    words = f"{found['since_start']:,} since the start"
    if last is not None:
        words += f"; the last one {last['outcome']}"
        if last["outcome"] == "compressed":
            words += f" ({last['tokens_before']:,} to {last['tokens_after']:,} tokens)"
        words += f" {span(now - last['at'])} ago"
    elif at is not None:
        words += f"; the last one {span(now - at)} ago"
    if found.get("cooling_down"):
        words += f"; {counted(found['cooling_down'], 'conversation')} cooling down after a failure"
    return words


def _provider(found: Mapping[str, Any], now: float) -> str:
    return plain("; ".join(f"{trouble}: {remedy}" for trouble, remedy in told(found, now)))


def _jobs(found: Mapping[str, Any], now: float) -> str:
    words = f"{found['active']:,} active"
    if found["paused"]:
        words += f", {found['paused']:,} paused"
    if found["next_at"] is not None:
        words += f", the next one in {span(found['next_at'] - now)}"
    if found["failed"]:
        words += f"; the last run of {found['failed']:,} failed (`posthouse jobs`)"
    return words


def _memory(found: Mapping[str, Any], now: float) -> str:
    if found["resident_bytes"] is None:
        return ""
    grown = found["grown_bytes"]
    now_bytes = size(found["resident_bytes"])
    if grown is None:
        return now_bytes
    return f"{now_bytes} ({'+' if grown >= 0 else '-'}{size(abs(grown))} since it was warm)"


def _loop(found: Mapping[str, Any], now: float) -> str:
    usual, worst = found["p99_seconds"] * 1000, found["most_seconds"] * 1000
    words = "on time" if usual < 0.5 else f"hardly ever more than {usual:.0f} ms late"
    words += f" (at worst {worst:.0f} ms)"
    if found["stalls"]:
        words += f"; it stood still {counted(found['stalls'], 'time')}, see the log"
    return words


def _database(found: Mapping[str, Any], now: float) -> str:
    return f"{size(found['bytes'])}, its log {size(found['wal_bytes'])}"


def _backups(found: Mapping[str, Any], now: float) -> str:
    if not found["count"]:
        return "none yet (`posthouse backup`)"
    newest = f"{span(now - found['newest_at'])} old, {size(found['newest_bytes'])}"
    return f"{found['count']:,}, the newest {newest}"


def _workspaces(found: Mapping[str, Any], now: float) -> str:
    if not found["count"]:
        return ""
    entries = counted(found["entries"], "entry", "entries")
    return f"{found['count']:,}, {size(found['bytes'])} in {entries}"


def _runs(found: Mapping[str, Any], now: float) -> str:
    words = f"{counted(found['starts_24h'], 'start')} in 24 hours"
    if found["cut_off"]:
        at = when(found["last_cut_off_at"])
        words += f"; {counted(found['cut_off'], 'run')} cut off, the last one began at {at}"
    return words


def _crashes(found: Mapping[str, Any], now: float) -> str:
    newest = found["newest"]
    if newest is None:
        return ""
    file = shlex.quote(plain(newest["file"]))
    words = f"{counted(found['count'], 'report')}, the newest of {when(newest['at'])}"
    return f"{words}: {plain(newest['what'], 120)} (read it: less {file})"


_NAMES = {
    "uptime_seconds": "up for",
    "lanes": "at work",
    "queues": "stored",
    "cache_share": "cache share",
    "loop": "event loop",
}
_SUBJECTS: tuple[tuple[str, Any], ...] = (
    ("uptime_seconds", lambda found, now: span(found)),
    ("lanes", _lanes),
    ("queues", _queues),
    ("today", _today),
    ("compressions", _compressions),
    ("cache_share", lambda found, now: f"{found:.0%} of what turns read came from it"),
    ("provider", _provider),
    ("jobs", _jobs),
    ("memory", _memory),
    ("loop", _loop),
    ("database", _database),
    ("backups", _backups),
    ("workspaces", _workspaces),
    ("runs", _runs),
    ("crashes", _crashes),
)
