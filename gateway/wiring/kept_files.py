"""Owns where the files of a home lie."""

from __future__ import annotations

from agent.clock import SystemClock
from agent.llm.background import in_daemon_thread
from gateway.config.environment import Home
from storage.attachments import FolderAttachments
from storage.store import SqlStore


def kept_files(home: Home, store: SqlStore) -> FolderAttachments:
    """Beside its store."""
    return FolderAttachments(home.attachments, store, SystemClock(), in_daemon_thread)
