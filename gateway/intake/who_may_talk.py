"""Owns what an operator reads of who may talk: at start-up, and from `posthouse config check`."""

from __future__ import annotations

from gateway.intake.access import PlatformPolicy
from gateway.intake.command_rules import ANYONE

_TELEGRAM = "telegram"


def in_words(policy: PlatformPolicy) -> str:
    """Who may talk on a platform, in a few words."""
    rules = policy.access
    if ANYONE in rules.allow_from:
        return "everybody"
    found = [
        _counted(len(rules.allow_from), "{} user", "{} users"),
        _counted(len(rules.allow_chats), "everyone in {} chat", "everyone in {} chats"),
        _counted(len(rules.allow_roles), "members with {} role", "members with {} roles"),
        "whoever is let in with `posthouse pair`" if policy.pairing else "",
    ]
    return ", ".join(part for part in found if part) or "nobody"


def warnings_of(platform: str, policy: PlatformPolicy) -> list[str]:
    """What is most likely meant otherwise."""
    rules = policy.access
    if policy.lets_nobody_in:
        return [
            f"nobody is allowed to talk to {platform}: set {platform}.allow_from (numeric ids of "
            f"users), or {platform}.pairing: true"
        ]
    lines: list[str] = []
    if ANYONE in rules.allow_from:
        lines.append(
            f'{platform}.allow_from has "*": everybody who finds the bot may talk to it, at your '
            "cost (budget.usd_per_user_day limits what each may spend)"
        )
    if platform == _TELEGRAM:
        direct = sorted(chat for chat in rules.allow_chats if not chat.startswith("-"))
        lines += [
            f"telegram.allow_chats has {chat}, but ids of groups begin with a minus sign, so this "
            "lets nobody in"
            for chat in direct
        ]
    if ANYONE not in rules.allow_from and not (rules.allow_chats or rules.allow_roles):
        lines += [
            f"{platform}.admins has {user}, who is not let in: put that id into "
            f"{platform}.allow_from as well"
            for user in sorted(rules.admins - rules.allow_from)
        ]
    return lines


def _counted(number: int, one: str, many: str) -> str:
    return "" if number == 0 else (one if number == 1 else many).format(number)
