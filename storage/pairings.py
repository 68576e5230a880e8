"""Owns `agent.pairings.Pairings` in SQL. Three small tables: each is read whole.

Plain functions over a transaction (or, for reads, a connection); `storage.store` runs them.
"""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from agent import pairings
from agent.pairings import Approval, Paired, PairingBook, PairingRequest
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.sessions import Reader

_REQUESTS = (
    "SELECT platform, user_id, shown_name, salt, digest, asked_at, expires_at"
    " FROM pairing_requests ORDER BY asked_at, platform, user_id"
)
_PAIRED = "SELECT platform, user_id, shown_name, approved_at FROM paired ORDER BY platform, user_id"
_FAILURES = "SELECT failed_at FROM pairing_failures ORDER BY id"


def ask_pairing(tx: Transaction, request: PairingRequest) -> bool:
    known = _requests(tx)
    if not pairings.may_ask(request, known, tx.now):
        return False
    expired = [r for r in known if not pairings.is_valid(r, tx.now)]
    for old in expired:
        _drop(tx, old.platform, old.user_id)
    faultpoint("pairing.expired_dropped")
    tx.execute(
        "INSERT INTO pairing_requests"
        " (platform, user_id, shown_name, salt, digest, asked_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET"
        " shown_name = excluded.shown_name, salt = excluded.salt, digest = excluded.digest,"
        " asked_at = excluded.asked_at, expires_at = excluded.expires_at",
        (
            request.platform, request.user_id, clean(request.shown_name), request.salt,
            request.digest, request.asked_at, request.expires_at,
        ),
    )  # fmt: skip
    faultpoint("pairing.asked")
    return True


def approve_pairing(tx: Transaction, code: str) -> Approval:
    failures = _failures(tx)
    until = pairings.locked_until(failures, tx.now)
    if until is not None:
        return Approval("locked", locked_until=until)
    found = pairings.with_code(_requests(tx), code, tx.now)
    if found is None:
        return _wrong(tx, failures)
    person = Paired(found.platform, found.user_id, found.shown_name, tx.now)
    _drop(tx, found.platform, found.user_id)
    faultpoint("pairing.request_taken")
    tx.execute(
        "INSERT INTO paired (platform, user_id, shown_name, approved_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (platform, user_id) DO UPDATE SET"
        " shown_name = excluded.shown_name, approved_at = excluded.approved_at",
        (person.platform, person.user_id, person.shown_name, person.approved_at),
    )
    faultpoint("pairing.approved")
    tx.execute("DELETE FROM pairing_failures")
    return Approval("approved", person)


def _wrong(tx: Transaction, failures: list[float]) -> Approval:
    kept = [*pairings.counted(failures, tx.now), tx.now]
    tx.execute("DELETE FROM pairing_failures")
    faultpoint("pairing.failures_dropped")
    tx.executemany("INSERT INTO pairing_failures (failed_at) VALUES (?)", [(at,) for at in kept])
    return Approval("wrong", locked_until=pairings.locked_until(kept, tx.now))


def revoke_pairing(tx: Transaction, platform: str, user_id: str) -> bool:
    asked = _drop(tx, platform, user_id)
    faultpoint("pairing.revoking")
    done = tx.execute("DELETE FROM paired WHERE platform = ? AND user_id = ?", (platform, user_id))
    return asked or done.rowcount > 0


def book(db: Reader) -> PairingBook:
    people = db.execute(_PAIRED)
    return PairingBook(
        tuple(_requests(db)), tuple(Paired(*row) for row in people), tuple(_failures(db))
    )


def _drop(tx: Transaction, platform: str, user_id: str) -> bool:
    done = tx.execute(
        "DELETE FROM pairing_requests WHERE platform = ? AND user_id = ?", (platform, user_id)
    )
    return done.rowcount > 0


def _requests(db: Reader) -> list[PairingRequest]:
    return [PairingRequest(*row) for row in db.execute(_REQUESTS)]


def _failures(db: Reader) -> list[float]:
    return [row[0] for row in db.execute(_FAILURES)]
