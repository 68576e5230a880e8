"""Owns the proof that suites of plugins run on nothing but our folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SUITE = """
import os, pathlib
import hermes_constants
from tools.registry import tool_error

AT_IMPORT = os.environ["HERMES_HOME"]

def test_home_is_its_own():
    assert hermes_constants.get_hermes_home() == pathlib.Path.home() / ".hermes"
    assert AT_IMPORT != {real!r} and os.environ["HOME"] != {real!r}
    assert not list(hermes_constants.get_hermes_home().iterdir())
    (hermes_constants.get_hermes_home() / "left.db").write_text("x")

test_home_is_fresh_each_time = test_home_is_its_own

def test_a_test_may_change_it(monkeypatch):
    monkeypatch.delenv("HERMES_HOME")
    assert hermes_constants.get_hermes_home() == pathlib.Path.home() / ".hermes"
    assert tool_error("no") == '{{"error": "no"}}'
"""


def test_a_suite_of_a_plugin_gets_names_and_homes(tmp_path: Path) -> None:
    suite, home = tmp_path / "suite", tmp_path / "home"
    suite.mkdir()
    home.mkdir()
    (suite / "conftest.py").write_text(
        "import hermes_cli.config\nfrom utils import env_var_enabled\n"
    )
    (suite / "test_it.py").write_text(SUITE.format(real=str(home)))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "plugins.hermes_compat_pytest",
            "-p",
            "no:cacheprovider",
        ],
        cwd=suite,
        env={"PYTHONPATH": str(ROOT), "HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert list(home.iterdir()) == []


CONFTEST = """
import importlib.util, sys
from pathlib import Path

folder = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location(
    "the_plugin", folder / "__init__.py", submodule_search_locations=[str(folder)]
)
package = importlib.util.module_from_spec(spec)
sys.modules["the_plugin"] = package
"""
ENGINE = """
import os
from agent.context_engine import ContextEngine
from .tools import ANSWER
from .store import Store

class Engine(ContextEngine):
    def __init__(self, home=None):  # no super().__init__()
        try:
            from hermes_cli.config import get_hermes_home
            self.home = get_hermes_home()
        except ImportError:
            self.home = os.environ["HERMES_HOME"]
        self.store = Store()

    @property
    def name(self): return "shaped"
    def update_from_response(self, usage): self.last_prompt_tokens = usage.get("prompt_tokens", 0)
    def should_compress(self, prompt_tokens=None): return True
    def compress(self, messages, current_tokens=None, focus_topic=None):
        from agent.auxiliary_client import call_llm
        try:
            text = call_llm(task="compression", messages=messages).choices[0].message.content
        except Exception as exc:
            text = f"{ANSWER} {type(exc).__name__}"
        self.compression_count += 1
        return [{"role": "assistant", "content": text}, messages[-1]]
    def on_session_reset(self):
        super().on_session_reset()
        self.store.clear()
    def get_status(self):
        return {**super().get_status(), "engine": "shaped"}
"""
TESTS = """
import tools, config, store, engine_names  # the plugin's own: its folder is first on the path
from the_plugin.engine import Engine

def test_engine(monkeypatch):
    engine = Engine()
    assert engine.home == "isolated"
    engine.update_model("m", 1000, provider="x", base_url="", api_key="", api_mode="chat")
    assert (engine.context_length, engine.threshold_tokens) == (1000, 750)
    engine.update_from_response({"prompt_tokens": 5000})
    assert engine.get_status() == {
        "last_prompt_tokens": 5000, "threshold_tokens": 750, "context_length": 1000,
        "usage_percent": 100.0, "compression_count": 0, "engine": "shaped",
    }
    listed = engine.compress([{"role": "user", "content": "a"}])
    assert listed[0]["content"] == "own ModelAuthError"
    engine.on_session_reset()
    assert (engine.compression_count, engine.last_prompt_tokens) == (0, 0)

def test_a_model_of_the_suite(monkeypatch):
    import types, sys
    answer = types.SimpleNamespace(message=types.SimpleNamespace(content="said"))
    fake = types.ModuleType("agent.auxiliary_client")
    fake.call_llm = lambda **keywords: types.SimpleNamespace(choices=[answer])
    monkeypatch.setitem(sys.modules, "agent.auxiliary_client", fake)
    assert Engine().compress([{"role": "user", "content": "a"}])[0]["content"] == "said"
"""


def test_a_suite_that_imports_contracts_needs_no_plugin_of_pytest(tmp_path: Path) -> None:
    """In the shape of hermes-lcm's: modules with everyday names, its folder first on the path."""
    folder = tmp_path / "shaped"
    (folder / "tests").mkdir(parents=True)
    for name, text in {
        "__init__": "def register(ctx):\n    raise AssertionError\n",
        "tools": "ANSWER = 'own'\n",
        "config": "",
        "store": "class Store(dict):\n    pass\n",
        "engine_names": "",
        "engine": ENGINE,
        "tests/conftest": CONFTEST,
        "tests/test_it": TESTS,
    }.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "HERMES_HOME": "isolated", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_suite_without_a_package_still_finds_its_own_tests(tmp_path: Path) -> None:
    """`tests` is a name of ours too; hermes-lcm's and lossless-hermes' import from theirs."""
    folder = tmp_path / "tests"
    (folder / "fixtures").mkdir(parents=True)
    (folder / "conftest.py").write_text("OWN = 'conftest'\n")
    (folder / "fixtures" / "corpus.py").write_text("OWN = 'corpus'\n")
    (folder / "test_it.py").write_text(
        "import agent.context_engine\n"
        "from tests import conftest\nfrom tests.fixtures import corpus\n"
        "def test_own(): assert (conftest.OWN, corpus.OWN) == ('conftest', 'corpus')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
