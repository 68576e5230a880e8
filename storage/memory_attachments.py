"""Owns kept files in memory: the twin of the folder, for tests and for plugin authors."""

from __future__ import annotations

from dataclasses import replace

from agent.attachments import StoredFile
from agent.ports import Clock
from storage.attachments import name_of
from storage.codec import clean


class MemoryAttachments:
    """`agent.attachments.Attachments` that are gone when the process is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[str, dict[str, StoredFile]] = {}
        """Name → owner → what is known, the oldest first."""
        self._data: dict[str, bytes] = {}

    async def keep(self, data: bytes, *, owner: str, file_name: str, media_type: str) -> StoredFile:
        """As the port says."""
        name = name_of(data, media_type)
        self._data[name] = data
        owners = self._files.setdefault(name, {})
        fresh = StoredFile(name, owner, "", clean(media_type), len(data), self._clock.now())
        owners[owner] = replace(owners.get(owner, fresh), file_name=clean(file_name))
        return owners[owner]

    async def find(self, name: str, *, owner: str | None = None) -> StoredFile | None:
        """As the port says."""
        owners = self._files.get(name, {})
        return next(iter(owners.values()), None) if owner is None else owners.get(owner)

    async def read(self, name: str) -> bytes:
        """As the port says."""
        if name not in self._data:
            raise LookupError(f"there is no file {name}")
        return self._data[name]
