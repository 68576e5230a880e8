"""Owns the access gate: the one decision that every entry point asks (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.intake.command_rules import ANYONE, NO_COMMAND_RULES, CommandRules
from gateway.platforms.contract import InboundMessage


class Ground(StrEnum):
    """Why somebody is allowed in, or not."""

    LISTED = "listed"
    PAIRED = "paired"
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
class PlatformPolicy:
    """Who may talk on a platform, and how groups work there."""

    access: AccessRules
    require_mention: bool = True
    """In groups, only what is addressed to the bot is for it."""
    group_sessions_per_user: bool = True
    commands: CommandRules = NO_COMMAND_RULES
    """Who may give the commands of plugins."""
    pairing: bool = False
    """Strangers who write to the bot directly get a code, and count once it is approved."""

    @property
    def lets_nobody_in(self) -> bool:
        """And nobody can ask to be."""
        return self.access.lets_nobody_in and not self.pairing


@dataclass(frozen=True, slots=True)
class Learned:
    """What counts beside the configured rules of a bot, as it stands in the store."""

    paired: frozenset[str] = frozenset()
    """Users who were let in by a code: as if they were in ``allow_from``, but never admins."""
    moved_chats: Mapping[str, str] = field(default_factory=dict)
    """Old id → id of today, of chats that have got another one."""


NOTHING_LEARNED = Learned()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer."""

    allowed: bool
    ground: Ground
    admin: bool = False


def decide(
    message: InboundMessage, rules: AccessRules | None, learned: Learned = NOTHING_LEARNED
) -> Verdict:
    """May this sender talk to the bot here? By ids only; what is not allowed is refused."""
    if rules is None:
        return Verdict(False, Ground.NO_RULES)
    sender = message.sender_id.strip()
    if not sender:
        return Verdict(False, Ground.NO_SENDER)
    ground = _ground(message, sender, rules, learned)
    if ground is None:
        return Verdict(False, Ground.NOT_LISTED)
    return Verdict(True, ground, admin=sender != ANYONE and sender in rules.admins)


def allows_chat(chat_id: str, rules: AccessRules, moved_chats: Mapping[str, str]) -> bool:
    """Is this chat listed, under the id of today or one that it had before?"""
    listed = rules.allow_chats
    if chat_id in ("", ANYONE):
        return False
    return chat_id in listed or any(moved_chats.get(old) == chat_id for old in listed)


def _ground(
    message: InboundMessage, sender: str, rules: AccessRules, learned: Learned
) -> Ground | None:
    if sender != ANYONE and sender in rules.allow_from:
        return Ground.LISTED
    if sender != ANYONE and sender in learned.paired:
        return Ground.PAIRED
    if ANYONE in rules.allow_from:
        return Ground.OPEN
    if message.chat_kind != "group":
        return None
    # A thread is allowed through its channel. The thread's own number is not looked at: on some
    # platforms it is small and repeats from chat to chat.
    places = (message.chat_id, message.parent_chat_id or "")
    if any(allows_chat(place, rules, learned.moved_chats) for place in places):
        return Ground.CHAT
    if message.sender_role_ids & (rules.allow_roles - {"", ANYONE}):
        return Ground.ROLE
    return None
