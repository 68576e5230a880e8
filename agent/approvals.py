"""Owns the nouns of an approval: what a tool wants to do, what a person says to it; its port."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

from agent.errors import ToolError


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that is done only if a person allows it."""

    tool: str
    deed: str
    """What it is, in the tool's own words, behind "May I": ``run this command``."""
    shown: tuple[tuple[str, str], ...]
    """What exactly: a heading of the tool's own, and a text that may be anything at all."""

    @property
    def digest(self) -> str:
        """What it is, for a log: the same only for exactly the same."""
        whole = json.dumps([self.tool, self.deed, self.shown])
        return hashlib.sha256(whole.encode("ascii")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What came of asking."""

    allowed: bool
    words: str
    """For the model: who decided and how, and what that means for it."""


class Approver(Protocol):
    """Asks the person for whom a turn runs. One question at a time, in the order of the calls."""

    async def ask(self, proposal: Proposal) -> Ruling:
        """Ask, and wait for the answer; no answer in time is a no.

        Raises:
            asyncio.CancelledError: the turn ends; nobody waits for an answer any more.
        """
        ...


async def require_approval(approver: Approver | None, proposal: Proposal) -> str:
    """Who allowed it, in words for the result.

    Raises:
        ToolError: nobody did; the text says why.
    """
    if approver is None:
        raise ToolError("nobody can be asked here, and without a person's approval it is not done")
    ruling = await approver.ask(proposal)
    if not ruling.allowed:
        raise ToolError(ruling.words)
    return ruling.words
