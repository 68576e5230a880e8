"""Owns pairing: strangers who asked to be let in, how a code is checked, and the port behind it.

A stranger gets a code and shows it to the operator, who approves it on the server. Of a code only a
salted hash is kept. What holds of a request or of a lock at a given time is decided here, for
every store alike.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""32 that nobody mistakes for one another: no 0, O, 1, I."""
CODE_LENGTH = 8
VALID_SECONDS = 3600.0
ASK_AGAIN_SECONDS = 600.0
"""One code per user in this time."""
MOST_PENDING = 3
"""Valid codes per platform."""
MOST_WRONG = 5
"""Wrong codes in `LOCK_SECONDS`; then none is taken for as long."""
LOCK_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stranger who has got a code. Times: Unix seconds."""

    platform: str
    user_id: str
    shown_name: str
    """As the platform says; only ever shown."""
    salt: bytes
    digest: bytes
    asked_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Paired:
    """Somebody who was let in."""

    platform: str
    user_id: str
    shown_name: str
    approved_at: float


@dataclass(frozen=True, slots=True)
class Approval:
    """What became of a code."""

    outcome: Literal["approved", "wrong", "locked"]
    person: Paired | None = None
    """Who was let in by it."""
    locked_until: float | None = None
    """Until then no code is taken, a right one neither."""


@dataclass(frozen=True, slots=True)
class PairingBook:
    """All that is kept, as it is in the store: what has expired may still be in it."""

    requests: tuple[PairingRequest, ...] = ()
    """The oldest first."""
    paired: tuple[Paired, ...] = ()
    """By platform and id."""
    failures: tuple[float, ...] = ()
    """When a wrong code was tried."""


class Pairings(Protocol):
    """Where pairing is kept. Each method is one transaction, as in `agent.store_ports`."""

    async def ask_pairing(self, request: PairingRequest) -> bool:
        """Keep a request in the place of an earlier one of the same user; drop what has expired.

        False: nothing is kept (see `may_ask`).
        """
        ...

    async def approve_pairing(self, code: str) -> Approval:
        """Let the user in whose code this is; the request is gone with that.

        Wrong ones are counted over all platforms; a right one begins the count anew.
        """
        ...

    async def revoke_pairing(self, platform: str, user_id: str) -> bool:
        """Take back what was asked or approved; False: there was nothing."""
        ...

    async def pairings(self) -> PairingBook:
        """All that is kept."""
        ...


# --- what holds at a given time (pure) ------------------------------------------------------------


def digest_of(salt: bytes, code: str) -> bytes:
    """What is kept of a code."""
    return hashlib.sha256(salt + code.encode("utf-8", "replace")).digest()


def typed(code: str) -> str:
    """A code as somebody typed it: small letters, spaces and dashes do not count."""
    return "".join(code.split()).replace("-", "").upper()


def is_valid(request: PairingRequest, now: float) -> bool:
    """Does its code still count?

    One that would for longer than any can was made before the clock was set back: it has expired.
    """
    return 0 < request.expires_at - now <= VALID_SECONDS


def may_ask(request: PairingRequest, known: Iterable[PairingRequest], now: float) -> bool:
    """Is there room for it beside the known ones, and is its user's last one not too fresh?"""
    valid = [r for r in known if r.platform == request.platform and is_valid(r, now)]
    own = [r for r in valid if r.user_id == request.user_id]
    if any(0 <= now - r.asked_at < ASK_AGAIN_SECONDS for r in own):
        return False
    return len(valid) - len(own) < MOST_PENDING


def with_code(requests: Iterable[PairingRequest], code: str, now: float) -> PairingRequest | None:
    """The valid request with this code. Every one is compared, in a time that tells nothing."""
    found = None
    for request in requests:
        same = hmac.compare_digest(digest_of(request.salt, typed(code)), request.digest)
        if same and is_valid(request, now):
            found = request
    return found


def counted(failures: Iterable[float], now: float) -> list[float]:
    """The wrong tries that still count; one of the future is of a clock set back since."""
    return [at for at in failures if 0 <= now - at < LOCK_SECONDS]


def locked_until(failures: Sequence[float], now: float) -> float | None:
    """Until when no code is taken, by the wrong tries that are kept; None: they are.

    No try is kept while it is locked: so the last one's hour is the lock's, whole.
    """
    if len(failures) < MOST_WRONG:
        return None
    until = max(failures) + LOCK_SECONDS
    return until if 0 < until - now <= LOCK_SECONDS else None
