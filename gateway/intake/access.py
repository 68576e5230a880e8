"""Owns the access gate: the one decision that every entry point asks (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.platforms.contract import InboundMessage

ANYONE = "*"


class Ground(StrEnum):
    """Why somebody is allowed in, or not."""

    LISTED = "listed"
    OPEN = "open"
    CHAT = "chat"
    ROLE = "role"
    NO_RULES = "no rules for this platform"
    NO_SENDER = "no sender id"
    NOT_LISTED = "not listed"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may talk to a bot, by the ids of its platform; empty means nobody."""

    allow_from: frozenset[str] = frozenset()
    """Users, allowed everywhere; ``*`` allows everyone."""
    allow_chats: frozenset[str] = frozenset()
    """Groups or channels: everyone in them (and in their threads) is allowed there."""
    allow_roles: frozenset[str] = frozenset()
    """Roles: whoever has one is allowed in guilds, not in direct chats."""
    admins: frozenset[str] = frozenset()
    """Users who may do destructive things in shared conversations; this alone lets nobody in."""

    @property
    def lets_nobody_in(self) -> bool:
        """Worth a warning at start-up."""
        return not (self.allow_from or self.allow_chats or self.allow_roles)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer."""

    allowed: bool
    ground: Ground
    admin: bool = False


def decide(message: InboundMessage, rules: AccessRules | None) -> Verdict:
    """May this sender talk to the bot here? By ids only; what is not allowed is refused."""
    if rules is None:
        return Verdict(False, Ground.NO_RULES)
    sender = message.sender_id.strip()
    if not sender:
        return Verdict(False, Ground.NO_SENDER)
    ground = _ground(message, sender, rules)
    if ground is None:
        return Verdict(False, Ground.NOT_LISTED)
    return Verdict(True, ground, admin=sender != ANYONE and sender in rules.admins)


def _ground(message: InboundMessage, sender: str, rules: AccessRules) -> Ground | None:
    if sender != ANYONE and sender in rules.allow_from:
        return Ground.LISTED
    if ANYONE in rules.allow_from:
        return Ground.OPEN
    if message.chat_kind != "group":
        return None
    # A thread is allowed through its channel. The thread's own number is not looked at: on some
    # platforms it is small and repeats from chat to chat.
    places = {message.chat_id, message.parent_chat_id} - {None, "", ANYONE}
    if places & rules.allow_chats:
        return Ground.CHAT
    if message.sender_role_ids & (rules.allow_roles - {"", ANYONE}):
        return Ground.ROLE
    return None
