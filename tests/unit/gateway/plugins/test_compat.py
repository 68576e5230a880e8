"""Owns the tests of plugins that use the names of their host while they are loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from agent.clock import SystemClock
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config, Plugins
from gateway.plugins.compat import lend_names
from gateway.plugins.manager import PluginManager
from gateway.wiring.plugins import load_plugins
from gateway.wiring.surroundings import Surroundings
from storage.memory import MemoryStore
from tests.fakes.clock import SequentialIds
from tests.fakes.plugins import clean_modules, write_plugin

USES_ITS_HOST = """
from hermes_constants import get_hermes_home
from hermes_cli.config import cfg_get, load_config, save_config
from hermes_cli.plugins import PluginContext, get_plugin_manager
from gateway.session_context import get_session_env
from agent.memory_manager import sanitize_context
from tools.registry import tool_error
from utils import atomic_json_write

def register(ctx):
    assert isinstance(ctx, PluginContext)
    config = load_config()
    assert cfg_get(config, "plugins", "enabled") == ["uses"], config
    save_config({**config, "changed": True})
    atomic_json_write(get_hermes_home() / "mine.json", {"session": get_session_env("X", "none")})
    get_plugin_manager()._hooks.setdefault("post_llm_call", []).append(tool_error)
    ctx.register_hook("pre_llm_call", sanitize_context)
"""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "x")
    with clean_modules():
        yield


async def test_a_plugin_finds_its_host_while_it_is_loaded(tmp_path: Path) -> None:
    home = Home(tmp_path, "of a test")
    write_plugin(home.plugins, "uses", USES_ITS_HOST)
    config = Config(plugins=Plugins(enabled=["uses"]))
    clock = SystemClock()
    store = MemoryStore(clock=clock, ids=SequentialIds())
    found = await load_plugins(config, Surroundings(home, Secrets(), {}), clock, store)
    assert found.troubles() == []
    assert {name: len(calls) for name, calls in found.manager.hooks.items()} == {
        "post_llm_call": 1,
        "pre_llm_call": 1,
    }
    assert yaml.safe_load((home.hermes / "config.yaml").read_text())["changed"] is True
    assert (home.hermes / "mine.json").read_text() == '{\n  "session": "none"\n}'
    assert not (home.path / "config.yaml").exists()


def test_a_package_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in sys.modules if n.startswith("plugins.hermes_compat")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plugins", ModuleType("plugins"))
    (remark,) = lend_names(tmp_path, PluginManager())
    assert "another installed package is called `plugins`" in remark
