"""Owns the tests of what plugins ask: who may, which settings, a question to a memory."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent.auxiliary_client import install as install_model
from tests.fakes.side_model import ScriptedSideModel


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


@dataclass
class Source_:
    platform: str = "telegram"
    chat_type: str = "dm"
    extra: dict[str, Any] = field(default_factory=dict)


def test_who_may_give_which_command(home: Path) -> None:
    access = module("gateway.slash_access")
    extra = {"allow_admin_from": "1, 2", "user_allowed_commands": ["/Status"], "x": 3}
    private = access.policy_from_extra(extra, "dm")
    assert private.is_admin("2")
    assert private.can_run("1", "lcm")
    assert not private.is_admin(None)
    assert [private.can_run("9", c) for c in ("status", "help", "lcm", "")] == [
        *(True, True, False, False)
    ]
    group = access.policy_from_extra(extra, "group")
    assert not group.enabled
    assert group.can_run("9", "lcm")
    both = {
        "allow_admin_from": 5,
        "group_allow_admin_from": [6],
        "group_user_allowed_commands": "a",
    }
    assert access.policy_from_extra(both, "dm").can_run("9", "a")
    assert access.policy_from_extra(both, "group").admin_user_ids == {"6"}


def test_the_policy_of_where_a_message_is_from(home: Path) -> None:
    access = module("gateway.slash_access")
    (home / "config.yaml").write_text("telegram: {group_allow_admin_from: [7]}\n")
    config = module("gateway.config").load_gateway_config()
    source = SimpleNamespace(platform=SimpleNamespace(value="telegram"), chat_type="group")
    assert access.policy_for_source(config, source).admin_user_ids == {"7"}
    assert not access.policy_for_source(config, Source_()).enabled
    assert not access.policy_for_source(None, None).enabled


def test_settings_of_a_provider(home: Path) -> None:
    schema = module("plugins.memory.config_schema")
    mode = schema.ProviderField(
        key="mode",
        label="Mode",
        kind=schema.KIND_SELECT,
        options=(schema.ProviderFieldOption("cloud", "Cloud"),),
        inline=True,
    )
    key = schema.ProviderField("key", "Key", kind=schema.KIND_SECRET, env_key="KEY")
    whole = schema.ProviderConfigSchema("x", "X", fields=(mode, key))
    assert (mode.allowed_values(), mode.is_secret, key.is_secret) == ({"cloud"}, False, True)
    assert whole.inline_fields() == (mode,)


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("What does she like to drink?", "What does she like to drink?"),
        ('`"Where does Ada live?"`', "Where does Ada live?"),
        ("She drinks tea.", ""),
        ("Who? And why?", ""),
        ("First line\nWhat?", ""),
        ("", ""),
        (f"{'long ' * 80}?", ""),
    ],
)
def test_a_question_to_the_memory(home: Path, answer: str, question: str) -> None:
    model = ScriptedSideModel(answer)
    install_model(model)
    try:
        rewrite = module("plugins.memory.query_rewrite").rewrite_memory_query
        assert rewrite("  Same tea as always! ") == question
        assert rewrite("   ") == ""
    finally:
        install_model(None)
    assert [asked.prompt for asked in model.asked] == ['"Same tea as always!"']


def test_without_a_model_there_is_no_question(home: Path) -> None:
    assert module("plugins.memory.query_rewrite").rewrite_memory_query("hello") == ""
