"""Owns what is put back: which backup somebody means, and whether it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.errors import DatabaseTooNew, PosthouseError, StoreError
from gateway.backups.making import DATABASE
from gateway.backups.nouns import Facts, StoreTools
from gateway.backups.shelf import MANIFEST, REPLACED, manifest_of, within


@dataclass(frozen=True, slots=True)
class Chosen:
    """A whole backup."""

    database: Path
    folder: Path | None
    """Of everything else; None: there is only the database."""
    made_at: float | None
    """None: nothing says when."""
    facts: Facts
    passed_over: tuple[str, ...] = ()
    """Newer ones that are not whole, and why."""

    @property
    def path(self) -> Path:
        """As people name it."""
        return self.folder or self.database


def choose(source: Path, tools: StoreTools) -> Chosen:
    """The backup at this path, or the newest whole one below it. Blocking.

    Raises:
        DatabaseTooNew: it was made by a newer version.
        PosthouseError: there is none that is whole; the text says why.
    """
    source = source.expanduser().absolute()
    if source.is_file():
        return Chosen(source, None, None, tools.facts(source))
    if not source.is_dir():
        raise PosthouseError(f"{source} is not there")
    if (source / MANIFEST).exists():
        return _whole(source, tools)
    if source.name.startswith(REPLACED) and (source / DATABASE).exists():
        # What a restore has put aside: how one takes a restore back.
        return Chosen(source / DATABASE, source, None, tools.facts(source / DATABASE))
    passed_over: list[str] = []
    for backup in within(source):
        try:
            found = _whole(backup.path, tools)
        except DatabaseTooNew:
            raise
        except StoreError as exc:
            passed_over.append(f"{backup.path.name}: {exc}")
            continue
        return Chosen(found.database, found.folder, found.made_at, found.facts, tuple(passed_over))
    if passed_over:
        raise PosthouseError(f"none of the backups in {source} is whole: {'; '.join(passed_over)}")
    if (source / DATABASE).exists():
        raise PosthouseError(
            f"{source} has no {MANIFEST}, so it is no whole backup; `posthouse restore "
            f"{source / DATABASE}` puts its database back alone, if that is whole"
        )
    raise PosthouseError(f"there is no backup in {source}")


def _whole(folder: Path, tools: StoreTools) -> Chosen:
    said = manifest_of(folder)
    if said is None:
        raise StoreError(f"{folder / MANIFEST} can not be read, or is of a newer version")
    facts = tools.facts(folder / DATABASE)
    if facts.sha256 != said.get("database_sha256"):
        raise StoreError(f"{folder / DATABASE} is not the one that the backup was made with")
    return Chosen(folder / DATABASE, folder, float(said["made_at"]), facts)
