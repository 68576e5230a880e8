"""Owns the tests of how the host's names are found, and in whose environment."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins import hermes_compat
from plugins.hermes_compat.finder import SURFACE, SurfaceFinder, surface_files
from plugins.hermes_compat.host import current

ROOT = Path(__file__).resolve().parents[3]
CONTRACTS = (
    "agent.context_engine",
    "agent.memory_provider",
    "agent.context_compressor",
    "agent.auxiliary_client",
    "agent.redact",
    "agent.model_metadata",
)
IN_THE_WAY = ("tools", "config", "store", "engine", "utils", "schemas", "command", "dag", "tokens")
"""What plugins call modules of their own, with their folder first on the path."""
NAMES = {
    "agent.context_engine": ["ContextEngine", "sanitize_memory_context"],
    "agent.memory_provider": ["MemoryProvider"],
    "agent.auxiliary_client": ["call_llm"],
    "agent.context_compressor": ["ContextCompressor"],
    "agent.redact": ["redact_sensitive_text"],
    "agent.model_metadata": ["estimate_messages_tokens_rough"],
    "agent.memory_manager": ["sanitize_context"],
    "agent.message_content": ["flatten_message_text"],
    "agent.skill_commands": ["extract_user_instruction_from_skill_message"],
    "agent.file_safety": ["raise_if_read_blocked"],
    "agent.async_utils": ["safe_schedule_threadsafe"],
    "hermes_constants": ["get_hermes_home", "display_hermes_home"],
    "hermes_cli.config": [
        *("get_hermes_home", "cfg_get", "load_config", "load_config_readonly", "save_config"),
    ],
    "hermes_cli.plugins": ["PluginContext", "get_plugin_manager"],
    "hermes_cli.profiles": [
        *("_get_default_hermes_home", "get_active_profile_name", "list_profiles"),
    ],
    "hermes_cli.auth": ["PROVIDER_REGISTRY"],
    "hermes_cli.runtime_provider": ["_get_named_custom_provider"],
    "hermes_state": ["apply_wal_with_fallback"],
    "tools.registry": ["tool_error", "tool_result"],
    "tools.lazy_deps": ["ensure", "FeatureUnavailable"],
    "utils": ["atomic_json_write", "env_var_enabled"],
    "plugins.plugin_utils": ["SingletonSlot"],
    "plugins.plugin_storage": ["plugin_data_dir"],
    "plugins.memory.query_rewrite": ["rewrite_memory_query"],
    "plugins.memory.config_schema": [
        *("KIND_TEXT", "KIND_SELECT", "KIND_SECRET", "KIND_BOOL", "KIND_NUMBER", "KIND_JSON"),
        *("STORAGE_FLAT_JSON", "STORAGE_HONCHO_HOST_BLOCK"),
        *("ProviderField", "ProviderFieldOption", "ProviderConfigSchema"),
    ],
    "gateway.session_context": ["get_session_env"],
    "gateway.config": ["load_gateway_config"],
    "gateway.slash_access": ["SlashAccessPolicy", "policy_from_extra"],
}
"""Every name that plugins import from their host."""


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    hermes_compat.install()
    yield
    hermes_compat.uninstall()


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_there(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__name__ == module
    for name in NAMES[module]:
        assert hasattr(found, name)


def test_the_table_for_people_says_each_of_them() -> None:
    table = (SURFACE.parent / "README.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    packages = {"hermes_cli", "tools", "plugins.memory"}
    assert said == set(NAMES)
    assert set(surface_files()) - packages <= said
    for module, names in NAMES.items():
        line = next(line for line in table.splitlines() if line.startswith(f"| `{module}` |"))
        assert [n for n in names if not n.isupper() and f"`{n}" not in line] == []


def test_the_finder_is_last_and_there_once() -> None:
    first = hermes_compat.install()
    assert hermes_compat.install() is first
    assert sys.meta_path[-1] is first
    assert sum(isinstance(f, SurfaceFinder) for f in sys.meta_path) == 1


def test_a_module_beside_a_plugin_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "utils.py").write_text("whose = 'theirs'\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert importlib.import_module("utils").whose == "theirs"
    finally:
        sys.modules.pop("utils", None)


def test_nothing_is_found_by_a_name_that_is_not_in_the_table() -> None:
    finder = hermes_compat.install()
    for name in (
        "agent",
        "gateway",
        "plugins",
        "tools.shell",
        "utils.more",
        "../utils",
        "telegram",
    ):
        assert finder.find_spec(name) is None


def test_what_is_taken_out_is_gone() -> None:
    importlib.import_module("agent.memory_manager")
    importlib.import_module("hermes_cli.config")
    hermes_compat.uninstall()
    import agent
    import gateway.config

    assert not {"agent.memory_manager", "hermes_cli", "hermes_cli.config"} & set(sys.modules)
    assert not hasattr(agent, "memory_manager")
    assert not hasattr(gateway.config, "load_gateway_config")
    assert not current().is_daemon
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hermes_constants")


def _alone(folder: Path, code: str) -> None:
    """Run in a Python that has the standard library, a plugin's folder and ours, in this order."""
    start = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def in_the_way(tmp_path: Path) -> Path:
    for name in IN_THE_WAY:
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} of the plugin')\n")
    return tmp_path


def test_public_contracts_need_nothing_but_the_standard_library(in_the_way: Path) -> None:
    imports = "\n".join(f"import {name}" for name in CONTRACTS)
    _alone(
        in_the_way,
        f"{imports}\nagent.context_compressor.ContextCompressor(model='claude-opus-5')\n",
    )


def test_the_surface_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    imports = "\n".join(f"import {name}" for name in NAMES)
    _alone(
        tmp_path,
        f"import plugins.hermes_compat\nplugins.hermes_compat.install()\n{imports}\n"
        "assert hermes_cli.config.load_config() == {}\n",
    )


def test_names_of_modules_beside_a_plugin_are_not_ours_to_import(in_the_way: Path) -> None:
    """The surface itself is found by the names that it was asked for, and uses none of them."""
    others = [n for n in NAMES if n.split(".")[0] not in IN_THE_WAY]
    imports = "\n".join(f"import {name}" for name in others)
    _alone(
        in_the_way, f"import plugins.hermes_compat\nplugins.hermes_compat.install()\n{imports}\n"
    )
