"""Who may run which command: every one of them, under each of its names, in each kind of chat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from gateway import texts
from gateway.commands import registry
from gateway.intake.access import AccessRules, PlatformPolicy
from tests.fakes.clock import FakeClock
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

Who = Literal["anyone", "admins if shared", "admins if shared, to set it", "admins"]
WHO: dict[str, Who] = {
    "stop": "anyone",
    "retry": "admins if shared",
    # Of a question: whom it is for decides that, at the question itself.
    "approve": "anyone",
    "deny": "anyone",
    "new": "admins if shared",
    "status": "anyone",
    "context": "anyone",
    "compress": "admins if shared",
    "micro": "admins if shared, to set it",
    "lineage": "anyone",
    "title": "admins if shared, to set it",
    "undo": "admins if shared",
    "uncompress": "admins if shared",
    "branch": "admins if shared",
    "sessions": "anyone",
    "resume": "admins if shared",
    "remind": "anyone",
    # Of a job: whose it is decides that, at the job itself.
    "jobs": "anyone",
    "whoami": "anyone",
    "usage": "anyone",
    "memory": "anyone",
    # Of a note: whose it is decides that, at the note itself.
    "forget": "anyone",
    "help": "anyone",
    "restart": "admins",
}
ARGUMENT = {"micro": "off", "title": "Our trip", "resume": "1", "undo": "1"}
NAMES = {**{name: name for name in registry.COMMANDS}, **registry.ALIASES}
REFUSALS = (texts.ADMIN_ONLY, texts.ADMINS_ONLY)

SHARED = PlatformPolicy(
    AccessRules(
        allow_from=frozenset({"111", "222"}),
        allow_chats=frozenset({"-100"}),
        admins=frozenset({"111"}),
    ),
    group_sessions_per_user=False,
)
PERSONAL = replace(SHARED, group_sessions_per_user=True)
GROUP = {"chat_kind": "group", "chat_id": "-100"}
PLACES: dict[str, tuple[PlatformPolicy, dict[str, Any]]] = {
    "a group that shares a conversation": (SHARED, GROUP),
    "a thread of one": (SHARED, {**GROUP, "thread_id": "5"}),
    "a group of personal ones": (PERSONAL, GROUP),
    "alone with the bot": (SHARED, {}),
}
SHARED_PLACES = ("a group that shares a conversation", "a thread of one")


def test_every_command_is_in_the_table() -> None:
    assert set(WHO) == set(registry.COMMANDS)
    assert set(registry.ALIASES.values()) <= set(WHO)
    assert not set(registry.ALIASES) & set(WHO)


def is_refused(name: str, place: str, sender: str, *, argument: bool) -> bool:
    """What the table says."""
    if sender == "111":
        return False
    shared = place in SHARED_PLACES
    match WHO[NAMES[name]]:
        case "anyone":
            return False
        case "admins":
            return True
        case "admins if shared":
            return shared
        case "admins if shared, to set it":
            return shared and argument


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sender", ["111", "222"])
async def test_who_may_run_what(clock: FakeClock, sender: str, place: str) -> None:
    policy, where = PLACES[place]
    rig = Rig(clock, policy=policy)
    chat = {"chat_id": sender, **where, "sender_id": sender}
    number = 0
    for name in NAMES:
        for words in (f"/{name}", f"/{name.upper()} {ARGUMENT.get(NAMES[name], '')}".rstrip()):
            # something to work on, whatever the one before has done
            for text in ("hello", words):
                before = len(rig.platform.texts())
                number += 1
                await rig.intake.receive(inbound(text, message_id=f"m{number}", **chat))
                await rig.settle()
                await clock.advance(2)
            answers = "\n".join(rig.platform.texts()[before:])
            assert answers, words
            refused = any(refusal in answers for refusal in REFUSALS)
            expected = is_refused(name, place, sender, argument=" " in words)
            assert refused == expected, (words, place, sender, answers)


async def test_an_admin_of_elsewhere_is_none_here(clock: FakeClock) -> None:
    """The id alone counts: not a name, not another platform's list."""
    rig = Rig(clock, policy=SHARED)
    rig.policies["other"] = replace(
        SHARED, access=replace(SHARED.access, admins=frozenset({"222"}))
    )
    for n, name in enumerate(["111", "admin", "0111", " 111"]):
        said = inbound("/new", sender_id="222", sender_name=name, message_id=f"m{n}", **GROUP)
        await rig.intake.receive(said)
        await rig.settle()
        await clock.advance(2)
        assert rig.platform.texts()[-1] == texts.ADMIN_ONLY
