"""Owns asking for numeric ids: names are not taken, everybody only after a second yes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.setup.talk import Talk
from gateway.setup.wishes import read_ids

Finder = Callable[[], str | None]
_TELEGRAM_DIGITS = 16
"""At most: its ids have 52 bits. Those of Discord have 17 digits and more."""


def ask_ids(
    talk: Talk,
    question: str,
    people: Sequence[str],
    groups: Sequence[str],
    *,
    finder: Finder | None,
    groups_allowed: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """People and groups that may talk; ``people`` and ``groups`` hold now, and are the default.

    ``groups_allowed``: it is Telegram, where a group is an id with a minus.
    """
    talk.say(question)
    default = ",".join([*people, *groups])
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
            return ids.people, ids.groups
