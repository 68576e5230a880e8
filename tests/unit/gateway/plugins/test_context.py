"""What a plugin may register, what is refused, and that all of it is noted."""

from __future__ import annotations

from typing import Any

import pytest

from agent.context_engine import ContextEngine
from agent.memory_provider import MemoryProvider
from gateway.plugins.collected import Collected
from gateway.plugins.context import WITHOUT_EFFECT, PluginContext
from gateway.plugins.discovery import Found, Role, Source
from gateway.plugins.manifest import Manifest
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames


class Engine(ContextEngine):
    name = "eng"

    def update_from_response(self, usage: dict[str, Any]) -> None: ...

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: Any, *a: Any, **k: Any) -> Any:
        return messages


class Provider(MemoryProvider):
    name = "prov"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None: ...

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []


class Rig:
    """Contexts of several plugins over one set of names."""

    def __init__(self, **entries: Any) -> None:
        self.names = TakenNames(tools=["recall"], commands=["new"], platforms=["telegram"])
        self.settings = PluginSettings(entries=entries)
        self.collected: dict[str, Collected] = {}

    def ctx(self, key: str = "a") -> PluginContext:
        found = Found(key, Source.USER, Role.GENERAL, Manifest(key, key=key))
        self.collected[key] = Collected()
        return PluginContext(found, self.collected[key], self.settings, self.names)


def test_all_that_can_be_registered() -> None:
    rig = Rig(a={"settings": {"deep": {"x": 1}}})
    ctx = rig.ctx()
    ctx.register_context_engine(Engine())
    ctx.register_memory_provider(Provider())
    ctx.register_tool("t", "set", {"name": "t", "description": "d"}, lambda a: "", is_async=True)
    wrapped = {"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}
    ctx.register_tool(name="w", toolset="set", schema=wrapped, handler=lambda a: "", new_thing=1)
    ctx.register_command("/Lcm", lambda raw: raw, description="d", args_hint="[x]")
    ctx.register_hook("pre_llm_call", lambda **k: None)
    ctx.register_skill("s", "/x/SKILL.md", description="d")
    ctx.register_platform("irc", "IRC", lambda **k: None, check_fn=lambda: True)
    given = rig.collected["a"]
    assert given.gives() == [
        "context engine eng",
        "memory provider prov",
        "tool t",
        "tool w",
        "/lcm",
        "hook pre_llm_call",
        "skill s (nothing reads it here)",
        "platform irc",
    ]
    assert given.tools[0].handler({}) == ""
    assert given.tools[0].schema["parameters"] == {"type": "object", "properties": {}}
    assert given.tools[1].schema == {
        "name": "w",
        "description": "",
        "parameters": {"type": "object"},
    }
    assert given.refused == []
    assert (ctx.get_config("deep.x"), ctx.get_config("no"), ctx.manifest.key) == (1, None, "a")


def test_a_second_engine_and_what_is_none() -> None:
    rig = Rig()
    ctx = rig.ctx()
    ctx.register_context_engine(Engine)  # the class itself
    ctx.register_context_engine(object())
    first = Engine()
    ctx.register_context_engine(first)
    ctx.register_context_engine(Engine())
    ctx.register_memory_provider(object())
    given = rig.collected["a"]
    assert given.engine is first
    assert [line.split(":")[0] for line in given.refused] == [
        "context engine 'Engine' is no agent.context_engine.ContextEngine",
        "context engine 'object' is no agent.context_engine.ContextEngine",
        "a second context engine",
        "memory provider 'object' is no agent.memory_provider.MemoryProvider",
    ]


@pytest.mark.parametrize("name", ["compressor", "../x", "", "A B", None, 3])
def test_an_engine_with_a_name_that_it_can_not_have(name: Any) -> None:
    class Odd(Engine):
        pass

    Odd.name = name
    rig = Rig()
    rig.ctx().register_context_engine(Odd())
    assert rig.collected["a"].engine is None
    assert len(rig.collected["a"].refused) == 1


def test_ours_keep_their_names() -> None:
    rig = Rig(b={"allow_tool_override": True}, c={"allow_tool_override": "yes"})
    for key in ("a", "b", "c"):
        ctx = rig.ctx(key)
        ctx.register_tool("recall", "x", {}, lambda a: "", override=True)
        ctx.register_command("new", lambda raw: "")
        ctx.register_platform("telegram", "T", lambda: None)
    assert [(k, [t.override for t in c.tools]) for k, c in rig.collected.items()] == [
        ("a", []),
        ("b", [True]),
        ("c", []),
    ]
    assert rig.collected["a"].refused == [
        "tool recall: that is one of ours; plugins.entries.a.allow_tool_override: true would let "
        "it replace it",
        "command /new: that is one of ours",
        "platform telegram: that is one of ours",
    ]


def test_the_first_plugin_has_a_name_until_it_fails() -> None:
    rig = Rig()
    for key in ("a", "b"):
        ctx = rig.ctx(key)
        ctx.register_tool("t", "x", {}, lambda a: "")
        ctx.register_tool("t", "x", {}, lambda a: "")
        ctx.register_command("c", lambda raw: "")
    assert rig.collected["a"].refused == ["tool t: it has registered one of this name already"]
    assert rig.collected["b"].refused == [
        "tool t: plugin a has that name already",
        "tool t: plugin a has that name already",
        "command /c: plugin a has that name already",
    ]
    # Registering anew, for another conversation, is no clash with itself.
    rig.ctx("a").register_tool("t", "x", {}, lambda a: "")
    assert rig.collected["a"].refused == []
    rig.names.release("a")
    rig.ctx("b").register_tool("t", "x", {}, lambda a: "")
    assert rig.collected["b"].refused == []


@pytest.mark.parametrize(
    ("member", "arguments"),
    [
        ("register_tool", ("a b", "", {}, print)),
        ("register_tool", (None, "", {}, print)),
        ("register_tool", ("t", "", {}, None)),
        ("register_tool", ("t", "", ["odd"], print)),
        ("register_tool", ("t", "", {"parameters": "odd"}, print)),
        ("register_command", ("../x", print)),
        ("register_command", ("c", None)),
        ("register_hook", (3, print)),
        ("register_hook", ("h", None)),
        ("register_skill", ("s", None)),
        ("register_platform", ("p", "P", None)),
    ],
)
def test_nonsense_is_refused_and_not_raised(member: str, arguments: tuple[Any, ...]) -> None:
    rig = Rig()
    getattr(rig.ctx(), member)(*arguments)
    assert len(rig.collected["a"].refused) == 1
    assert rig.collected["a"].gives() == []


def test_members_without_a_counterpart_do_nothing_and_are_noted_once() -> None:
    rig = Rig()
    ctx = rig.ctx()
    for name in sorted(WITHOUT_EFFECT):
        for _ in range(2):
            assert getattr(ctx, name)("x", y=1) is None
    assert rig.collected["a"].without_effect == sorted(WITHOUT_EFFECT)
    assert ctx.inject_message("hello") is False
    assert "error" in ctx.dispatch_tool("recall", {})
    # Engines ask for this one with `getattr`: it must not look as if it were there.
    assert not hasattr(ctx, "context_engine_tool_handlers_receive_messages")
    assert not hasattr(ctx, "something_of_a_later_version")


def test_nothing_is_taken_once_it_is_closed() -> None:
    rig = Rig()
    ctx = rig.ctx()
    rig.collected["a"].closed = True
    ctx.register_context_engine(Engine())
    ctx.register_memory_provider(Provider())
    ctx.register_tool("t", "x", {}, lambda a: "")
    ctx.register_command("c", lambda raw: "")
    ctx.register_hook("h", lambda: None)
    ctx.register_skill("s", "x")
    ctx.register_platform("p", "P", lambda: None)
    assert rig.collected["a"].gives() == []
    rig.ctx("b").register_tool("t", "x", {}, lambda a: "")
    assert rig.collected["b"].refused == []
