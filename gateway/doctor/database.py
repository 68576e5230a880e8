"""Owns the check of the session store: its form, whether it is sound, its size, its backups."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable

from agent.clock import SystemClock
from gateway.backups.shelf import kept
from gateway.doctor.database_file import bounded, bytes_of, form_of, looked_into
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground, readable

_MB = 1024 * 1024
LARGE_LOG_BYTES = 256 * _MB
CHECK_SECONDS = 3.0
_DAY = 86_400
OLD_BACKUP_DAYS = 8
"""The daemon makes one a day; a week without is no accident any more."""
_YOUNG_SECONDS = 2 * _DAY
_MADE_ANEW = "start the gateway, or restart it: it makes that anew (docs/backups.md)"
_RESTORE = "put the newest backup back: `posthouse restore` (docs/backups.md)"


def look(ground: Ground) -> Iterable[Finding]:
    """The file, beside a running daemon or without one."""
    said = Said("database")
    file = ground.home.database
    if not readable(ground.home.path):
        return said.findings  # said under "home"
    if not bytes_of(file):
        _nothing(said, ground)
        return said.findings
    begun = None
    try:
        if _of_ours(said, ground):
            begun = _sound(said, ground)
    except PermissionError:
        said.problem(f"{file} can not be read", "ask as the user that the gateway runs as, or root")
        return said.findings
    except (sqlite3.Error, OSError) as exc:
        said.problem(f"{file} can not be opened: {exc}", _RESTORE)
    _sizes(said, ground)
    _backups(said, ground, begun)
    return said.findings


def _nothing(said: Said, ground: Ground) -> None:
    """It is not there, or it is empty: as before the first start, or lost."""
    # Inside: it brings the store.
    from gateway.wiring.store_care import has_lived  # noqa: PLC0415

    file = ground.home.database
    if not has_lived(ground.home):
        said.note("there is none yet; the first start makes it")
    elif file.exists():
        said.problem(
            f"{file} is empty, and this home was used: the gateway does not start on it",
            f"{_RESTORE}; to begin anew, delete the empty file",
        )
    else:
        said.warning(
            f"{file} is gone, and this home was used: the next start begins with nothing", _RESTORE
        )


def _of_ours(said: Said, ground: Ground) -> bool:
    # Inside: it brings what knows the migrations.
    from gateway.wiring.stored_form import newest_form  # noqa: PLC0415

    form, newest = form_of(ground.home.database), newest_form()
    if form is None:
        said.problem(f"{ground.home.database} is no database", _RESTORE)
        return False
    if form > newest:
        said.problem(
            f"it was written by a newer version (form {form}; this one knows {newest})",
            "install the newer version again, or put a backup of before the update back",
        )
        return False
    if form < newest:
        said.note(
            f"it has form {form}; the next start brings it to {newest}, and there is no way back"
        )
    else:
        said.ok(f"its form is {newest}, as this version has it")
    return True


def _sound(said: Said, ground: Ground) -> float | None:
    """When it was made, as far as it can tell."""
    # Inside: as above.
    from gateway.wiring.stored_form import begun_at, damage, index_damage  # noqa: PLC0415

    begun, words_unread = None, False
    with looked_into(ground.home.database, daemon_runs=ground.runs) as connection:
        if connection is None:
            said.note("a crash left a log beside it; the next start takes that in, nothing is lost")
            return None
        with bounded(connection, CHECK_SECONDS) as over:
            lost, mendable = damage(connection)
            cut_off = over()
            if not (lost or mendable or cut_off):
                mendable = _of_search(index_damage, connection)
                words_unread = over()
        with contextlib.suppress(sqlite3.Error):  # where it is damaged
            begun = begun_at(connection)
    if cut_off:
        said.note(
            f"it is too large to be checked in {CHECK_SECONDS:g} seconds",
            "`posthouse backup` reads all of it",
        )
        return begun
    for line in lost:
        said.problem(f"it is damaged: {line}", _RESTORE)
    for line in mendable:
        said.warning(f"{line}; no message is lost by it", _MADE_ANEW)
    if words_unread:
        said.note(
            f"its pages are sound; search holds too many words to be read in {CHECK_SECONDS:g}"
            " seconds",
            "`posthouse backup` reads all of them",
        )
    elif not (lost or mendable):
        said.ok("it is sound")
    return begun


def _of_search(
    index_damage: Callable[[sqlite3.Connection], str | None], connection: sqlite3.Connection
) -> list[str]:
    try:
        damage = index_damage(connection)
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return []
    return [] if damage is None else [f"the search index is damaged: {damage}"]


def _sizes(said: Said, ground: Ground) -> None:
    file = ground.home.database
    log = bytes_of(file.with_name(f"{file.name}-wal"))
    said.ok(f"{bytes_of(file) / _MB:,.1f} MB, and {log / _MB:,.1f} MB of log")
    if log > LARGE_LOG_BYTES:
        said.warning(
            "its log has grown large: something reads the database without ever letting go",
            f"see who does: fuser -v {file}; a restart of the gateway empties it",
        )


def _backups(said: Said, ground: Ground, begun: float | None) -> None:
    now = SystemClock().now()
    whole = [backup for backup in kept(ground.home) if backup.kind != "replaced"]
    nightly = ground.config.backup.enabled
    if not whole and nightly and begun is not None and 0 <= now - begun < _YOUNG_SECONDS:
        said.note("there is no backup yet; the gateway makes one every night")
        return
    if not whole:
        said.warning("there is no backup", "posthouse backup /a/folder/on/another/disk")
        return
    days = max(0.0, now - whole[0].made_at) / _DAY  # a clock may have been set back
    text = f"the newest backup is {_age(days)} old: {whole[0].path}"
    if days > OLD_BACKUP_DAYS:
        said.warning(text, "posthouse backup /a/folder/on/another/disk; then see the log for why")
    elif not whole[0].path.exists():
        said.note(
            f"{text}, which is not there now", "unless its disk is kept elsewhere: posthouse backup"
        )
    else:
        said.ok(text)


def _age(days: float) -> str:
    if days < 1 / 12:
        return f"{days * 24 * 60:.0f} min"
    return f"{days * 24:.0f} hours" if days < 2 else f"{days:.0f} days"
