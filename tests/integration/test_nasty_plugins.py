"""Ten plugins that do their worst while they are loaded: the start goes on, each is told of."""

from __future__ import annotations

import builtins
import io
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config, Context, Plugins
from gateway.plugins import loading
from gateway.plugins.discovery import Source
from gateway.plugins.manager import PluginState
from gateway.wiring import plugins as wiring
from gateway.wiring.plugins import load_plugins
from gateway.wiring.surroundings import Surroundings
from storage.sqlite import open_store
from tests.fakes.plugins import NOTHING, clean_modules, engine, write_plugin

NASTY = {
    "a-import-error": "import a_package_that_nobody_has",
    "b-hangs": "import sys\nsys.gate_of_nasty.wait(30)\n" + NOTHING,
    "c-sys-exit": "import sys\nsys.exit('bye')",
    "d-base-exception": "def register(ctx):\n    raise type('Odd', (BaseException,), {})('x')",
    "e-recursion": "def register(ctx):\n    register(ctx)",
    "f-threads": """
import threading, time
def forever():
    while not stop.wait(0.01): pass
import sys
stop = sys.gate_of_nasty
for n in range(20):
    threading.Thread(target=forever).start()
def register(ctx):
    ctx.register_command('threads', print)
""",
    "g-patches": """
import builtins, logging, os, socket, sys, time
def nothing(*a, **k): raise OSError('patched')
socket.getaddrinfo = builtins.open = time.sleep = nothing
logging.getLogger().handlers[:] = []
logging.disable(logging.CRITICAL)
os.chdir('/')
socket.setdefaulttimeout(0.001)
sys.setrecursionlimit(100000)
sys.stderr = None
def register(ctx):
    ctx.register_command('patches', print)
""",
    "h-prints": "print('x' * 1000)\ndef register(ctx):\n    ctx.register_command('prints', print)",
    "i-clashes": """
def register(ctx):
    ctx.register_command('new', print)
    ctx.register_command('threads', print)
    ctx.register_tool('recall', '', {}, print)
    ctx.register_context_engine(object())
    ctx.register_command('clashes', print)
""",
    "j-needs-hermes": "from hermes_cli.main import everything_there_is",
}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.chdir(tmp_path)
    gate = threading.Event()
    monkeypatch.setattr(sys, "gate_of_nasty", gate, raising=False)
    with clean_modules():
        yield
    gate.set()


async def loaded(tmp_path: Path, config: Config) -> wiring.Plugins:
    home = Home(tmp_path / "home", "of a test")
    clock = SystemClock()
    store = await open_store(home.database, clock=clock, ids=RandomIds())
    try:
        around = Surroundings(home, Secrets(anthropic_api_key="k3y-of-a-test"), {})
        return await load_plugins(config, around, clock, store)
    finally:
        await store.close()


async def test_ten_nasty_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ONE_SECONDS", 0.5)
    (tmp_path / "home").mkdir()
    for name, code in NASTY.items():
        write_plugin(tmp_path / "home" / "plugins", name, code)
    before = (builtins.open, socket.getaddrinfo, time.sleep, sys.stderr, sys.getrecursionlimit())
    handlers, folder = list(logging.getLogger().handlers), os.getcwd()
    config = Config(plugins=Plugins(enabled=[*NASTY, "k-good"]))
    write_plugin(
        tmp_path / "home" / "plugins",
        "k-good",
        "import os\nassert os.environ['HERMES_HOME'].endswith('/hermes')\n"
        "assert os.path.exists(os.environ['HERMES_HOME'] + '/state.db')\n"
        "assert 'ANTHROPIC_API_KEY' not in os.environ\n"
        "def register(ctx):\n    ctx.register_command('good', print)",
    )
    with redirect_stdout(io.StringIO()):
        plugins = await loaded(tmp_path, config)

    states = {
        r.key: (r.state.value, r.reason.split(":")[0])
        for r in plugins.manager.records
        if r.found.source is not Source.BUNDLED
    }
    assert states == {
        "a-import-error": ("failed", "ModuleNotFoundError"),
        "b-hangs": ("late", "did not finish within 0 s; what it still gives is not taken"),
        "c-sys-exit": ("failed", "SystemExit"),
        "d-base-exception": ("failed", "Odd"),
        "e-recursion": ("failed", "RecursionError"),
        "f-threads": ("loaded", ""),
        "g-patches": ("loaded", ""),
        "h-prints": ("loaded", ""),
        "i-clashes": ("loaded", ""),
        "j-needs-hermes": ("failed", "ModuleNotFoundError"),
        "k-good": ("loaded", ""),
    }
    commands = [c.name for c in plugins.manager.commands]
    assert commands == ["threads", "patches", "prints", "clashes", "good"]
    assert len(plugins.troubles()) == 6
    # What everybody shares is as it was, and the plugin that touched it is named.
    now = (builtins.open, socket.getaddrinfo, time.sleep, sys.stderr, sys.getrecursionlimit())
    assert now == before
    assert (list(logging.getLogger().handlers), os.getcwd()) == (handlers, folder)
    assert (socket.getdefaulttimeout(), logging.root.manager.disable) == (None, 0)
    patches = plugins.manager.record("g-patches")
    assert patches is not None
    assert "it changed, and it was put back: builtins.open" in patches.remarks[0]
    # Threads of a plugin do not keep the process from ending.
    assert all(t.daemon for t in threading.enumerate() if "forever" in t.name)


async def test_what_servers_of_tools_get_is_no_plugins_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KEY_OF_A_SERVER", "KEY_FILE_OF_A_SERVER_FILE", "PATH_OF_NOBODY"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "home").mkdir()
    code = "import os\nseen = [n for n in os.environ if 'OF_A_SERVER' in n]\n"
    code += "assert 'HOME' in os.environ and not seen, seen\n" + NOTHING
    write_plugin(tmp_path / "home" / "plugins", "a", code)
    env = {"A": "${KEY_OF_A_SERVER}", "B": "${HOME}", "C": "${KEY_FILE_OF_A_SERVER}"}
    (tmp_path / "key").write_text("x")
    monkeypatch.setenv("KEY_FILE_OF_A_SERVER_FILE", str(tmp_path / "key"))
    config = Config.model_validate(
        {
            "plugins": {"enabled": ["a"]},
            "agent": {"tools": {"mcp": {"s": {"command": "x", "env": env}}}},
        }
    )
    plugins = await loaded(tmp_path, config)
    assert plugins.troubles() == []
    assert os.environ["PATH_OF_NOBODY"] == "x"


async def test_an_installed_hermes_agent_switches_plugins_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    write_plugin(tmp_path / "home" / "plugins", "a")
    monkeypatch.setattr(wiring, "is_installed", lambda name: name == "hermes-agent")
    plugins = await loaded(tmp_path, Config(plugins=Plugins(enabled=["a"])))
    assert plugins.manager.commands == []
    (trouble,) = plugins.troubles()
    assert "Hermes Agent itself is installed" in trouble
    assert plugins.summary() == "off"
    assert os.environ["HERMES_HOME"] == "x"
    assert not (tmp_path / "home" / "hermes").exists()


def test_no_hermes_agent_is_beside_us() -> None:
    """Else every other test here would pass with plugins off."""
    with pytest.raises(PackageNotFoundError):
        __import__("importlib.metadata").metadata.version("hermes-agent")


async def test_a_home_that_can_not_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    write_plugin(tmp_path / "home" / "plugins", "a")
    (tmp_path / "home" / "hermes").write_text("in the way")
    plugins = await loaded(tmp_path, Config(plugins=Plugins(enabled=["a", "z"])))
    assert [r.state for r in plugins.manager.records if r.key == "a"] == [PluginState.LOADED]
    assert "can not be made for plugins" in plugins.troubles()[0]
    assert "plugins.enabled names 'z', but there is no such plugin" in plugins.troubles()[1]


async def test_an_engine_by_name(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write_plugin(tmp_path / "home" / "plugins" / "context_engine", "eng", engine("eng"), None)
    plugins = await loaded(tmp_path, Config(context=Context(engine="eng")))
    assert plugins.manager.engine("eng") is not None
    assert plugins.troubles() == []
    assert plugins.summary() == "1 loaded (context_engine/eng)"
