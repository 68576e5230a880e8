"""Owns the tests of the home, the configuration and the manager that plugins see."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from gateway.plugins.collected import Collected
from gateway.plugins.context import PluginContext
from gateway.plugins.discovery import Found, Role, Source
from gateway.plugins.manager import PluginManager, PluginRecord, PluginState
from gateway.plugins.manifest import Manifest
from gateway.plugins.settings import PluginSettings
from gateway.plugins.taken import TakenNames
from plugins import hermes_compat


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_the_home_is_the_facade(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants, config = module("hermes_constants"), module("hermes_cli.config")
    assert constants.get_hermes_home() == config.get_hermes_home() == home
    assert module("hermes_cli.profiles")._get_default_hermes_home() == home
    monkeypatch.setenv("HERMES_HOME", "/somewhere")
    assert constants.display_hermes_home() == "/somewhere"
    monkeypatch.setenv("HOME", "/some")
    monkeypatch.setenv("HERMES_HOME", "/some/where")
    assert constants.display_hermes_home() == "~/where"
    monkeypatch.delenv("HERMES_HOME")
    assert constants.get_hermes_home() == home


def test_without_a_daemon_the_home_is_the_one_that_plugins_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    hermes_compat.install()
    try:
        assert module("hermes_constants").get_hermes_home() == tmp_path / ".hermes"
        assert module("hermes_cli.plugins").get_plugin_manager()._hooks == {}
        assert module("hermes_cli.profiles").list_profiles()[0].gateway_running is False
    finally:
        hermes_compat.uninstall()


def test_the_configuration_is_the_facades_copy_whatever_the_environment_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = home.parent / "config.yaml"
    ours.write_text("model: {name: ours}\n")
    (home / "config.yaml").write_text("model: {name: copy}\nlcm: {x: 1}\n")
    monkeypatch.setenv("HERMES_HOME", str(home.parent))  # a plugin did that
    config = module("hermes_cli.config")
    assert config.load_config() == config.load_config_readonly()
    assert config.cfg_get(config.load_config(), "model", "name") == "copy"
    config.save_config({"model": {"name": "changed"}, "ü": ["ß"]})
    assert yaml.safe_load((home / "config.yaml").read_text()) == {
        "model": {"name": "changed"},
        "ü": ["ß"],
    }
    assert ours.read_text() == "model: {name: ours}\n"
    assert sorted(f.name for f in home.iterdir()) == ["config.yaml"]


def test_a_configuration_that_can_not_be_written_leaves_the_old_one(home: Path) -> None:
    (home / "config.yaml").write_text("a: 1\n")
    config = module("hermes_cli.config")
    with pytest.raises(yaml.YAMLError):
        config.save_config({"a": object()})
    assert config.load_config() == {"a": 1}


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "\xff\xfe\x00"])
def test_a_configuration_that_is_none_is_empty(home: Path, text: str) -> None:
    (home / "config.yaml").write_bytes(text.encode("latin-1"))
    assert module("hermes_cli.config").load_config() == {}


def test_what_a_plugin_has_written_itself_is_read_the_next_time(home: Path) -> None:
    config, file = module("hermes_cli.config"), home / "config.yaml"
    for text, found in (("a: 1\n", 1), ("a: 2\n", 2), ("a: 33\n", 33)):
        new = home / "new"  # as many do: beside it, then into its place
        new.write_text(text)
        new.replace(file)
        assert config.load_config() == {"a": found}
    config.save_config({"a": 4})
    assert config.load_config() == {"a": 4}
    file.unlink()
    assert config.load_config() == {}


def test_what_was_loaded_may_be_changed(home: Path) -> None:
    (home / "config.yaml").write_text("a: {b: 1}\n")
    config = module("hermes_cli.config")
    config.load_config_readonly()["a"]["b"] = 2
    assert config.load_config() == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("config", "keys", "found"),
    [
        ({"a": {"b": 1}}, ("a", "b"), 1),
        ({"a": {"b": None}}, ("a", "b"), None),
        ({"a": "text"}, ("a", "b"), "else"),
        ({"a": {}}, ("a", "b"), "else"),
        (None, ("a",), "else"),
        ({"a": 1}, (), {"a": 1}),
    ],
)
def test_cfg_get(home: Path, config: Any, keys: tuple[str, ...], found: object) -> None:
    assert module("hermes_cli.config").cfg_get(config, *keys, default="else") == found


def test_platforms_are_read_from_the_copy(home: Path) -> None:
    (home / "config.yaml").write_text(
        "telegram: {allow_admin_from: [1], x: 2}\ndiscord: {enabled: false}\nother: {}\n"
    )
    found = module("gateway.config").load_gateway_config()
    assert found.platforms["telegram"].extra == {"allow_admin_from": [1], "x": 2}
    assert [p.value for p in found.get_connected_platforms()] == ["telegram"]


def test_a_folder_for_files_stays_in_the_home(home: Path) -> None:
    folder = module("plugins.plugin_storage").plugin_data_dir
    made = folder("snap-compact.v1")
    assert made.is_dir()
    assert made.parent.parent == home
    for name in ("../up", "", "a/b", ".hidden", "x" * 101, "a\n"):
        with pytest.raises(ValueError, match="is no plugin's name"):
            folder(name)


def test_the_manager_is_ours_and_its_hooks_are_the_live_ones(home: Path) -> None:
    manager = PluginManager()
    hermes_compat.install(home, manager)
    found = module("hermes_cli.plugins").get_plugin_manager()
    found._hooks["post_llm_call"] = [print]
    assert manager.hooks == {"post_llm_call": [print]}


def test_our_context_is_what_plugins_take_it_for(home: Path) -> None:
    found = Found("x", Source.USER, Role.GENERAL, Manifest("x", key="x"))
    names = TakenNames(tools=[], commands=[], platforms=[])
    ctx = PluginContext(found, Collected(), PluginSettings(), names)
    assert isinstance(ctx, module("hermes_cli.plugins").PluginContext)
    assert not isinstance(object(), module("hermes_cli.plugins").PluginContext)


def test_missing_packages_of_a_plugin_are_named_and_not_installed(home: Path) -> None:
    manifest = Manifest("mem0", key="mem0", pip_dependencies=("mem0ai>=2,<3", "pytest>=1"))
    found = Found("mem0", Source.USER, Role.MEMORY, manifest)
    hermes_compat.install(home, PluginManager([PluginRecord(found, PluginState.LOADED)]))
    lazy = module("tools.lazy_deps")
    with pytest.raises(lazy.FeatureUnavailable, match=r"pip install 'mem0ai>=2,<3'$") as caught:
        lazy.ensure("memory.mem0", prompt=False)
    assert caught.value.missing == ("mem0ai>=2,<3",)
    assert not lazy.is_available("memory.mem0")
    lazy.ensure("memory.unknown")
    assert isinstance(caught.value, RuntimeError)
