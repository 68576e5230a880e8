"""The gate: deny by default, ids only, no way around it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import gateway
from gateway.config.models import Discord, Telegram
from gateway.intake.access import AccessRules, Ground, decide
from tests.fakes.platform import inbound


def rules(**lists: Any) -> AccessRules:
    """As the configuration makes them, for ids of any shape that YAML can hold."""
    config = Telegram(**{n: v for n, v in lists.items() if n != "allow_roles"})
    roles = Discord(allow_roles=lists.get("allow_roles", []))
    return AccessRules(
        allow_from=frozenset(config.allow_from),
        allow_chats=frozenset(config.allow_chats),
        allow_roles=frozenset(roles.allow_roles),
        admins=frozenset(config.admins),
    )


def listed(*ids: str) -> frozenset[str]:
    return frozenset(ids)


@pytest.mark.parametrize("values", [None, "", [], [None], ["", None], ["  "]])
def test_empty_lists_let_nobody_in(values: Any) -> None:
    try:
        junk = rules(allow_from=values, allow_chats=values, allow_roles=values)
    except ValidationError:
        return  # told at start-up, which opens nothing either
    for sender in ("222", "", " ", "None", "True", "1"):
        for kind in ("direct", "group"):
            assert not decide(inbound(sender_id=sender, chat_kind=kind), junk).allowed


def test_a_missing_list_lets_nobody_in() -> None:
    assert AccessRules().lets_nobody_in
    assert not decide(inbound(), AccessRules()).allowed
    assert not decide(inbound(sender_id="None"), AccessRules(listed(""), listed(""))).allowed


def test_numbers_and_texts_are_the_same_id() -> None:
    for values in ([111], ["111"], [" 111 "]):
        assert decide(inbound(), rules(allow_from=values)).ground is Ground.LISTED
    assert not decide(inbound(sender_id="222"), rules(allow_from=[111])).allowed


def test_only_a_wildcard_in_allow_from_opens() -> None:
    stranger = inbound(sender_id="222", chat_kind="group", chat_id="-5")
    assert decide(stranger, rules(allow_from=["*"])).ground is Ground.OPEN
    for closed in (
        AccessRules(allow_chats=listed("*")),
        AccessRules(allow_roles=listed("*")),
        AccessRules(admins=listed("*")),
    ):
        assert not decide(stranger, closed).allowed
        odd = inbound(
            sender_id="*",
            chat_id="*",
            chat_kind="group",
            parent_chat_id="*",
            sender_role_ids=frozenset({"*"}),
        )
        assert not decide(odd, closed).allowed


def test_nobody_is_let_in_without_an_id_or_rules() -> None:
    assert decide(inbound(sender_id=""), rules(allow_from=["*"])).ground is Ground.NO_SENDER
    assert decide(inbound(), None).ground is Ground.NO_RULES


def test_a_group_lets_in_its_members_and_threads_there_only() -> None:
    group = rules(allow_chats=[-100])
    assert decide(inbound(sender_id="222", chat_kind="group", chat_id="-100"), group).allowed
    thread = inbound(sender_id="222", chat_kind="group", chat_id="7", parent_chat_id="-100")
    assert decide(thread, group).ground is Ground.CHAT
    assert not decide(inbound(sender_id="222", chat_kind="group", chat_id="-200"), group).allowed
    # a direct chat whose id happens to be listed, and a thread number that looks like a chat
    assert not decide(inbound(sender_id="-100", chat_id="-100"), group).allowed
    topic = inbound(sender_id="222", chat_kind="group", chat_id="-200", thread_id="-100")
    assert not decide(topic, group).allowed


def test_a_role_counts_in_guilds_only() -> None:
    role = rules(allow_roles=[77])
    member = {"sender_id": "222", "sender_role_ids": frozenset({"77", "78"})}
    assert decide(inbound(chat_kind="group", **member), role).ground is Ground.ROLE
    assert not decide(inbound(chat_kind="direct", **member), role).allowed


def test_names_are_never_looked_at() -> None:
    one = rules(allow_from=["111"])
    assert not decide(inbound(sender_id="222", sender_name="111"), one).allowed


def test_an_admin_is_one_only_when_let_in() -> None:
    assert decide(inbound(), rules(allow_from=[111], admins=[111])).admin
    assert not decide(inbound(), rules(admins=[111])).allowed
    assert not decide(inbound(sender_id="222"), rules(allow_from=["*"], admins=[111])).admin


def test_there_is_one_door() -> None:
    """Only the intake stores a message, and only a turn begins one: nothing goes round the gate."""
    callers: dict[str, set[str]] = {"accept": set(), "begin_turn": set()}
    root = Path(gateway.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in callers:
                callers[node.attr].add(path.relative_to(root).as_posix())
    assert callers == {"accept": {"intake/intake.py"}, "begin_turn": {"turns/runner.py"}}
