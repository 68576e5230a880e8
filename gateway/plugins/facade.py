"""Owns the home that plugins see: a copy of the configuration, a list of sessions, a folder.

Plugins rewrite configurations and open the host's database. They get copies of both: a second
SQLite library in one process would cancel the locks of the live store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.archive_ports import Archive
from agent.daemon_threads import DaemonThreads
from agent.errors import PosthouseError
from agent.ports import Clock
from agent.redact import redact_sensitive_text

log = logging.getLogger(__name__)

AT_FIRST, NEWEST, MOST = 500, 50, 5000
"""So many of the newest sessions; a plugin looks for those of the conversation that it is in."""
FRESH_SECONDS = 30.0

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Za-z][a-z0-9]*")
_SECRET = {
    *("key", "keys", "apikey", "token", "secret", "secrets", "password", "passwd", "passphrase"),
    *("credential", "credentials", "auth", "authorization", "cookie"),
}
_TABLE = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    parent_session_id TEXT,
    model_config TEXT,
    started_at REAL,
    ended_at REAL
);
CREATE INDEX sessions_by_parent ON sessions (parent_session_id);
"""


@dataclass(frozen=True, slots=True)
class SessionFact:
    """A row of the list of sessions."""

    id: str
    parent_session_id: str | None
    model_config: str
    started_at: float
    ended_at: float | None


class Facade:
    """The folder ``hermes`` in our home. It stays: plugins keep their own files in it."""

    def __init__(self, folder: Path, plugins: Path) -> None:
        self.folder = folder
        self._plugins = plugins
        self._threads = DaemonThreads(1, name="facade")
        self._known: dict[str, SessionFact] = {}

    def prepare(self, configuration: Mapping[str, Any], secrets: Collection[str]) -> list[str]:
        """Make it, with a fresh copy of the configuration. Blocking; gives what did not work.

        Raises:
            OSError: the folder can not be made or written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = yaml.safe_dump(
            without_secrets(configuration, secrets), sort_keys=False, allow_unicode=True
        )
        self._replace("config.yaml", f"# A copy, written anew with each start.\n{text}".encode())
        if not (self.folder / "state.db").exists():
            self._write_sessions(())
        return self._link()

    def _link(self) -> list[str]:
        link = self.folder / "plugins"
        if link.is_symlink():
            if os.readlink(link) != f"../{self._plugins.name}":
                link.unlink()
        elif link.exists():
            return [f"{link} is in the way of the link to {self._plugins}; it is left alone"]
        if not link.is_symlink():
            link.symlink_to(f"../{self._plugins.name}")
        return []

    async def refresh(self, archive: Archive) -> None:
        """Bring the list of sessions up to date; where that fails, the old one stays.

        A line of a listing costs the store a sum over the session's messages, so only the newest
        are asked for again, and whoever they go on from.
        """
        try:
            newest = await archive.list_sessions(limit=NEWEST if self._known else AT_FIRST)
            parents = {i.parent_session_id for i in newest} - {None, *(i.id for i in newest)}
            infos = [*await archive.session_infos(sorted(p for p in parents if p)), *newest]
        except PosthouseError:
            log.warning("the list of sessions for plugins could not be read", exc_info=True)
            return
        known = self._known | {
            i.id: SessionFact(
                i.id,
                i.parent_session_id,
                json.dumps({"model": i.model}),
                i.started_at,
                i.ended_at,
            )
            for i in infos
        }
        if known == self._known:
            return
        if len(known) > MOST:
            by_age = sorted(known.values(), key=lambda fact: fact.started_at)
            known = {fact.id: fact for fact in by_age[-MOST:]}
        future = self._threads.submit(lambda: self._write_sessions(list(known.values())))
        try:
            await asyncio.wrap_future(future)
        except (OSError, sqlite3.Error):
            log.warning("the list of sessions for plugins was not written", exc_info=True)
        else:
            self._known = known

    async def keep_fresh(self, archive: Archive, clock: Clock) -> None:
        """Do it again and again."""
        while True:
            await self.refresh(archive)
            await clock.sleep(FRESH_SECONDS)

    def _write_sessions(self, facts: Sequence[SessionFact]) -> None:
        """All at once: whoever has the old file open goes on reading the old list."""
        new = self.folder / ".state.db.new"
        new.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(new)) as database:
            database.executescript(f"PRAGMA journal_mode=OFF;PRAGMA synchronous=OFF;{_TABLE}")
            database.executemany(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?)",
                [
                    (f.id, f.parent_session_id, f.model_config, f.started_at, f.ended_at)
                    for f in facts
                ],
            )
            database.commit()
        new.chmod(0o400)
        new.replace(self.folder / "state.db")

    def _replace(self, name: str, data: bytes) -> None:
        new = self.folder / f".{name}.new"
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        new.replace(self.folder / name)


def without_secrets(value: Any, secrets: Collection[str], name: str = "") -> Any:
    """A configuration in which nothing stands that is a secret by its name or its value. Pure."""
    if isinstance(value, Mapping):
        return {
            str(key): without_secrets(item, secrets, str(key))
            for key, item in value.items()
            if not (is_secret_name(str(key)) and not isinstance(item, Mapping | bool | None))
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, secrets, name) for item in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "[REDACTED]")
        return redact_sensitive_text(value)
    return value


def is_secret_name(name: str) -> bool:
    """Is what is called so a secret? ``max_tokens`` is none, ``apiKey`` is one."""
    return any(word.lower() in _SECRET for word in _WORDS.findall(name))
