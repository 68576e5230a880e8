"""The gate: deny by default, ids only, no way around it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import gateway
from agent.errors import ConfigError
from gateway.config.loading import parse_config
from gateway.config.models import Discord, Telegram, plain_id
from gateway.intake.access import AccessRules, Ground, Learned, PlatformPolicy, decide
from gateway.intake.who_may_talk import in_words, warnings_of
from tests.fakes.door import letting_in
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


DOORS = {
    # what is stored of people, and where alone that is called
    "accept": {"intake/intake.py"},
    "revise": {"intake/intake.py"},
    "move_chat": {"intake/intake.py"},
    "ask_pairing": {"intake/pairing.py"},
    "approve_pairing": {"intake/pairing_office.py"},
    "revoke_pairing": {"intake/pairing_office.py"},
    # a turn and what goes into it, of rows that have passed
    "begin_turn": {"turns/runner.py"},
    "steer": {"lanes/steering.py"},
    "fetch": {"turns/enclosures.py"},
}


def test_there_is_one_door() -> None:
    """Only the intake stores what people say, only turns take it up: nothing goes round it."""
    callers: dict[str, set[str]] = {name: set() for name in DOORS}
    root = Path(gateway.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in callers:
                callers[node.attr].add(path.relative_to(root).as_posix())
    # within a platform the word means its own client
    callers["fetch"] = {path for path in callers["fetch"] if not path.startswith("platforms/")}
    assert callers == DOORS


def test_the_decision_has_one_home() -> None:
    """Whoever wants to know asks the `Gate`, which knows what the store has learned."""
    root = Path(gateway.__file__).parent
    importers = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module != "gateway.intake.access":
                continue
            if {alias.name for alias in node.names} & {"decide", "allows_chat"}:
                importers.add(path.relative_to(root).as_posix())
    # What config.yaml alone lets in, before there is a store: doubts about its jobs.
    assert importers == {"intake/gate.py", "jobs/doubts.py"}


# --- by ids only --------------------------------------------------------------------------------

ids = st.from_regex(r"-?[1-9][0-9]{0,18}", fullmatch=True)
words = st.text(st.characters(), max_size=30)


@given(st.sets(ids, max_size=3), ids, words | ids, words, st.booleans())
def test_only_the_id_decides(
    known: set[str], sender: str, name: str, text: str, group: bool
) -> None:
    kind = "group" if group else "direct"
    message = inbound(text, sender_id=sender, sender_name=name, chat_id="5", chat_kind=kind)
    rules_ = AccessRules(allow_from=frozenset(known))
    assert decide(message, rules_).allowed == (sender in known)
    moved = dict.fromkeys(known, "5")
    for learned in (Learned(paired=frozenset(known)), Learned(moved_chats=moved)):
        allowed = decide(message, AccessRules(), learned).allowed
        assert allowed == (sender in known and bool(learned.paired))


@given(words.filter(lambda text: plain_id(text) is None and text.strip() != "*" and text != ""))
def test_what_is_no_id_is_refused_by_name(word: str) -> None:
    for key in ("allow_from", "allow_chats", "admins"):
        with pytest.raises(ValidationError, match="numeric id"):
            Telegram(**{key: [word]})


@given(ids)
def test_numbers_texts_and_texts_with_blanks_are_one_id(number: str) -> None:
    for written in (number, int(number), f" {number}\n", f"\t{number}"):
        assert Telegram(allow_from=[written]).allow_from == [number]
        assert Telegram(admins=[written]).admins == [number]


@pytest.mark.parametrize(
    "written",
    [
        "\u0661\u0661\u0661", "\uff11\uff11\uff11", "0111", "+111", "--111", "-", "1 1", "1_1",
        "111.0", 111.0, 1e3, "1e3", True, False, "0", 0, "-0", "@eve", "eve", "1" * 40,
        "\u221e", "-100\u2026", [111], {"id": 111},
        "111,222", "\u2212111", "111\u200b", "\u202e111",
    ],
)  # fmt: skip
def test_hostile_ids_are_told_and_open_nothing(written: Any) -> None:
    for section in (Telegram, Discord):
        for key in ("allow_from", "admins"):
            with pytest.raises(ValidationError, match="numeric id"):
                section(**{key: [written]})


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("0111", "another number in YAML"),
        ("0x6f", "another number in YAML"),
        ("0b101", "another number in YAML"),
        ("1:51", "another number in YAML"),
        ("1e2", "no numeric id"),
        ("eve", "no numeric id"),
        ("yes", "no numeric id"),
        ('"0111"', "no numeric id"),
    ],
)
def test_yaml_reads_no_id_as_another_persons(written: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"telegram:\n  allow_from:\n    - {written}\n", "c.yaml")
    (problem,) = caught.value.problems
    assert problem.startswith(("c.yaml:3:5: telegram.allow_from", "c.yaml:3:7: "))
    assert fault in problem


@pytest.mark.parametrize("key", ["allow_chats", "admins"])
def test_a_wildcard_elsewhere_is_an_error(key: str) -> None:
    with pytest.raises(ValidationError, match="only possible in allow_from"):
        Telegram(**{key: ["*"]})


# --- what the operator reads --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words", "warned"),
    [
        (letting_in(), "nobody", "nobody is allowed to talk to telegram"),
        (letting_in(pairing=True), "whoever is let in with `posthouse pair`", None),
        (letting_in("1"), "1 user", None),
        (letting_in("1", "2", chats=("-5", "-6")), "2 users, everyone in 2 chats", None),
        (letting_in("*"), "everybody", "at your cost"),
        (letting_in(chats=("5",)), "everyone in 1 chat", "begin with a minus sign"),
        (
            PlatformPolicy(AccessRules(listed("1"), admins=listed("2"))),
            "1 user",
            "telegram.admins has 2, who is not let in",
        ),
        (
            PlatformPolicy(AccessRules(allow_roles=listed("1"), admins=listed("2"))),
            "members with 1 role",
            None,
        ),
    ],
)
def test_who_may_talk_in_words(policy: PlatformPolicy, words: str, warned: str | None) -> None:
    assert in_words(policy) == words
    warnings = warnings_of("telegram", policy)
    assert len(warnings) == (0 if warned is None else 1)
    assert warned is None or warned in warnings[0]
