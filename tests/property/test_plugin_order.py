"""Names and orders: of each key the last one counts; no name leads elsewhere."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.plugins.discovery import Found, Role, Source, in_force
from gateway.plugins.manifest import Manifest
from gateway.plugins.names import (
    command_name,
    is_engine_name,
    is_folder_name,
    is_plugin_name,
    may_be_chosen,
    module_slug,
)
from gateway.plugins.settings import PluginSettings

KEYS = st.sampled_from(["a", "b", "cat/a", "context_engine/a", "memory/a"])


@st.composite
def found(draw: st.DrawFn) -> list[Found]:
    plugins = [
        Found(
            key,
            draw(st.sampled_from(Source)),
            role := draw(st.sampled_from(Role)),
            Manifest(key.rsplit("/", 1)[-1], key=key),
            folder=Path("/x") / role.name / key,
        )
        for key in draw(st.lists(KEYS, max_size=12))
    ]
    order = list(Source)
    return sorted(plugins, key=lambda p: order.index(p.source))


@given(found())
def test_the_last_of_each_key_counts(plugins: list[Found]) -> None:
    counting, over = in_force(plugins)
    assert len(counting) + len(over) == len(plugins)
    assert [id(p) for p in plugins if any(p is c for c in counting)] == [id(c) for c in counting]
    general = [p.key for p in counting if p.role is Role.GENERAL]
    assert len(general) == len(set(general))
    for plugin in counting:
        behind = plugins[[id(p) for p in plugins].index(id(plugin)) + 1 :]
        same = [p for p in behind if p.key == plugin.key and p.role is plugin.role]
        assert not same or plugin.role is not Role.GENERAL
    for plugin, by in over:
        assert plugin.key == by.key
        assert any(by is c for c in counting)


@given(
    found(),
    st.lists(KEYS, max_size=3),
    st.lists(KEYS, max_size=3),
    st.sampled_from(["compressor", "a", "b"]),
    st.sampled_from([None, "a", "b"]),
)
def test_nothing_is_selected_that_is_not_named(
    plugins: list[Found],
    enabled: list[str],
    disabled: list[str],
    engine: str,
    provider: str | None,
) -> None:
    said = PluginSettings(tuple(enabled), tuple(disabled), engine, provider)
    for plugin in plugins:
        named = {
            Role.GENERAL: bool(set(plugin.names) & set(enabled)),
            Role.ENGINE: engine in plugin.names_of_provider,
            Role.MEMORY: provider in plugin.names_of_provider,
        }
        assert said.is_selected(plugin) is named[plugin.role]
        assert said.is_disabled(plugin) is bool(set(plugin.names) & set(disabled))


@given(st.text(max_size=70))
@example("..")
@example("a/../b")
@example("a\n")
@example("compressor")
@example("ａ")  # full width
def test_no_name_is_a_path(name: str) -> None:
    if may_be_chosen(name) or is_plugin_name(name) or is_folder_name(name):
        assert PurePosixPath(name).parts == (name,)
        assert name not in (".", "..")
        assert name.isprintable()
        assert name.isascii()
    assert not (is_engine_name(name) and not may_be_chosen(name))
    plain = command_name(name)
    assert plain is None or command_name(plain) == plain
    assert module_slug(name) == "" or f"_{module_slug(name)}".isidentifier()
