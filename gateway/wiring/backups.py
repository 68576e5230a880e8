"""Owns what backups are made with: the copying of databases is the store's."""

from __future__ import annotations

from gateway.backups.nouns import StoreTools
from storage.copies import copy_database, facts_of, is_spare, prepare, would_come_back


def store_tools() -> StoreTools:
    """Works beside a running daemon and without one."""
    return StoreTools(
        copy=copy_database,
        facts=facts_of,
        prepare=prepare,
        would_come_back=would_come_back,
        is_spare=is_spare,
    )
