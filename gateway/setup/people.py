"""Owns asking for numeric ids: names are not taken, everybody only after a second yes; admins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.setup.talk import Talk
from gateway.setup.wishes import read_ids

Finder = Callable[[], str | None]
ADMINS_MAY = "/restart, and what all in a group share (its jobs, /new)"
_TELEGRAM_DIGITS = 16
"""At most: its ids have 52 bits. Those of Discord have 17 digits and more."""


@dataclass(frozen=True, slots=True)
class LetIn:
    """Who may talk."""

    people: tuple[str, ...]
    groups: tuple[str, ...]
    own: str | None = None
    """Of the people: whoever sits here, as they have said."""


def ask_ids(
    talk: Talk,
    question: str,
    people: Sequence[str],
    groups: Sequence[str],
    *,
    finder: Finder | None,
    groups_allowed: bool,
) -> LetIn:
    """People and groups that may talk; ``people`` and ``groups`` hold now, and are the default.

    ``groups_allowed``: it is Telegram, where a group is an id with a minus.
    """
    default = ",".join([*people, *groups])
    talk.say(f"{question}\n   Enter: {'as in the brackets' if default else 'nobody yet'}.")
    found: list[str] = []
    while True:
        typed = talk.ask("   Ids", ",".join(found) or default)
        if typed.strip("`'\" ").lower() == "find":
            if finder is None:
                talk.say(
                    "   I can not look now: nobody can be asked, or the gateway runs and takes the "
                    "messages.\n   Its log at DEBUG names the ids of everybody who is turned away."
                )
            elif (sender := finder()) is not None:
                found.append(sender)
            continue
        ids = read_ids(typed)
        if ids.wrong:
            talk.say(
                f"   {ids.wrong[0][:40]} is no numeric id. Names change hands, ids do not: "
                f"{'type `find`, or ' if finder else ''}a number such as 123456789."
            )
        elif groups_allowed and (foreign := [i for i in ids.people if len(i) > _TELEGRAM_DIGITS]):
            talk.say(f"   {foreign[0][:40]} is too long for Telegram: that is an id of Discord's.")
        elif ids.groups and not groups_allowed:
            talk.say("   Ids of people have no minus sign.")
        elif ids.opens_to_all and not talk.sure(
            "   * lets in everybody who finds the bot, at your cost. Really?", default=False
        ):
            continue
        else:
            if not ids.people and not ids.groups:
                talk.say("   Nobody is let in yet; nobody gets an answer until you add an id.")
            own = next((one for one in found if one in ids.people), None)
            return LetIn(ids.people, ids.groups, own)


def ask_admins(talk: Talk, let_in: LetIn, admins: Sequence[str]) -> tuple[str, ...]:
    """Who may command as well; ``admins`` are those of now, and stay if there are any."""
    people = [one for one in let_in.people if one != "*"]
    if admins or not people:
        return tuple(admins)
    own = let_in.own or (people[0] if len(people) == 1 else None)
    if own is not None:
        yes = talk.sure(f"   Shall {own} be an admin: {ADMINS_MAY}?", default=True)
        return (own,) if yes else ()
    talk.say(f"   Which of them is you? That one can be an admin: {ADMINS_MAY}.")
    while typed := talk.ask("   Id, or Enter: nobody yet"):
        if typed in people:
            return (typed,)
        talk.say(f"   {typed[:40]} is not among those who may talk.")
    return ()
