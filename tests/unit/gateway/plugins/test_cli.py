"""`posthouse plugins`: which there are, what becomes of one; and starts that load none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import ConfigError
from gateway.cli import exits
from gateway.cli.main import main
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config
from gateway.wiring import plugins as wiring
from gateway.wiring.assembling import build_daemon
from gateway.wiring.surroundings import Surroundings
from tests.fakes.plugins import NOTHING, clean_modules, engine, write_plugin

CONFIG = """
plugins:
  enabled: [good, bad, gone, mem]
  disabled: [away]
context: {engine: eng}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "config.yaml").write_text(CONFIG)
    plugins = tmp_path / "plugins"
    prints = "print('noise')\ndef register(ctx):\n    ctx.register_command('hi', print)\n"
    write_plugin(plugins, "good", prints, "name: good\nversion: 1.10\nrequires_env: [NO_SUCH_KEY]")
    write_plugin(plugins, "bad", "raise ValueError('a\\x1b[31m')")
    write_plugin(plugins, "away", NOTHING)
    write_plugin(plugins, "silent", NOTHING)
    write_plugin(plugins, "torn", NOTHING, "name: [")
    write_plugin(plugins, "mem", "# MemoryProvider\n" + NOTHING)
    write_plugin(plugins / "context_engine", "eng", engine("eng"), None)
    with clean_modules():
        yield tmp_path


def test_list_says_what_a_start_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--json"]) == exits.OK
    rows = json.loads(capsys.readouterr().out)
    users = {r["name"]: (r["state"], r["reason"]) for r in rows if r["source"] == "user"}
    assert {name: state for name, (state, _) in users.items()} == {
        "bad": "wanted",
        "context_engine/eng": "wanted",
        "good": "wanted",
        "mem": "not enabled",
        "away": "disabled",
        "silent": "not enabled",
        "torn": "unusable",
    }
    assert users["silent"][1] == "plugins.enabled: [silent]"
    assert users["mem"][1] == "memory.provider: mem"
    assert "plugin.yaml:1:8: not valid YAML" in users["torn"][1]
    assert main(["plugins", "list"]) == exits.OK
    text = capsys.readouterr().out
    assert "plugins.enabled names 'gone', but there is no such plugin" in text
    assert "plugins.enabled names mem, which is selected by memory.provider: mem instead" in text
    assert "noise" not in text
    assert "hermes_plugins.good" not in sys.modules


def test_check_loads_it_and_says_all(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["plugins", "check", "good"]) == exits.OK
    said = capsys.readouterr()
    assert said.out.startswith("good 1.10: loaded\n")
    assert "  gives: /hi\n" in said.out
    assert "environment variables are not set: NO_SUCH_KEY" in said.out
    assert ("noise" in said.out, "noise" in said.err) == (False, True)
    assert (home / "hermes" / "config.yaml").exists()


def test_check_of_one_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "bad"]) == exits.FAILED
    text = capsys.readouterr().out
    assert "bad: failed (ValueError: a" in text
    assert "raise ValueError" in text
    assert "\x1b" not in text
    assert main(["plugins", "check", "bad", "--json"]) == exits.FAILED
    row = json.loads(capsys.readouterr().out)
    assert (row["state"], row["running"]) == ("failed", None)
    assert row["trace"][-1].startswith("ValueError")


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("silent", exits.OK, "the gateway does not load it; in config.yaml: plugins.enabled:"),
        ("away", exits.OK, "disabled: plugins.disabled names it"),
        ("eng", exits.OK, "gives: context engine eng"),
        ("torn", exits.FAILED, "plugin.yaml:1:8: not valid YAML"),
        ("mem", exits.FAILED, "it registered no memory provider"),
    ],
)
def test_check_of_what_is_not_loaded_by_a_start(
    name: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "check", name]) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nope", "../good", "", "/", "a\x1b[31m"])
def test_check_of_what_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", name]) == exits.FAILED
    said = capsys.readouterr().err
    assert "there is no plugin" in said
    assert "\x1b" not in said


def test_with_hermes_agent_beside_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "is_installed", lambda name: True)
    assert main(["plugins", "list"]) == exits.OK
    assert "plugins are off: Hermes Agent itself" in capsys.readouterr().out
    assert main(["plugins", "check", "good"]) == exits.FAILED
    assert "plugins are off" in capsys.readouterr().err


def test_no_plugins_at_all(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "plugins").rename(home / "elsewhere")
    (home / "config.yaml").write_text("")
    assert main(["plugins", "list", "--json"]) == exits.OK
    assert {r["source"] for r in json.loads(capsys.readouterr().out)} <= {"bundled"}


def test_a_start_without_plugins_imports_nothing_of_them(home: Path) -> None:
    (home / "config.yaml").write_text("")
    code = """
import asyncio, sys
from pathlib import Path
from gateway.cli import main, run
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config
from gateway.wiring.assembling import build_daemon
from gateway.wiring.surroundings import Surroundings
async def build():
    around = Surroundings(Home(Path(sys.argv[1]), "x"), Secrets(), {}, only_console=True)
    daemon = await build_daemon(Config(), around)
    await daemon._parts.store.close()
asyncio.run(build())
print([m for m in sys.modules if "plugins" in m.split(".")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_a_check_of_the_configuration_names_what_is_not_there(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    (home / "config.yaml").write_text("plugins: {enabled: [good, goood, torn, mem]}")
    assert main(["config", "check"]) == exits.OK
    text = capsys.readouterr().out
    assert "plugins.enabled names 'goood', but there is no such plugin; did you mean good?" in text
    assert "plugin torn failed: " in text
    assert "plugins.enabled names mem, which is selected by memory.provider: mem" in text
    assert "hermes_plugins.good" not in sys.modules


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("context: {engine: lossles}", "context.engine names 'lossles', but no plugin offers it"),
        ("context: {engine: lossles}", "did you mean lossless?"),
        ("context: {engine: eng}", ""),
        ("context: {engine: compressor}", ""),
        ("context: {engine: xyz}", "(there are: eng, lossless)"),
        ("context: {engine: xyz}\nplugins: {enabled: [good]}", ""),
        ("context: {engine: lossles}\nplugins: {enabled: [good]}", "did you mean lossless?"),
        ("context: {engine: eng}\nplugins: {disabled: [eng]}", "plugins.disabled names it as well"),
        ("memory: {provider: men}", "memory.provider names 'men', but no plugin offers it"),
        ("memory: {provider: mem}", ""),
    ],
)
def test_a_check_of_the_configuration_knows_engines_and_providers(
    capsys: pytest.CaptureFixture[str], home: Path, config: str, said: str
) -> None:
    (home / "config.yaml").write_text(config)
    assert main(["config", "check"]) == exits.OK
    text = capsys.readouterr().out
    assert said in text
    assert said or "names" not in text


def test_check_says_which_tools_and_hooks_are_of_no_use(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    code = """
def register(ctx):
    for name, check in (("fine", lambda: True), ("shy", lambda: False)):
        ctx.register_tool(name, "", {"description": "x"}, print, check_fn=check)
    ctx.register_hook("subagent_stop", print)
"""
    write_plugin(home / "plugins", "tools", code)
    assert main(["plugins", "check", "tools"]) == exits.OK
    said = capsys.readouterr().out
    assert "tool shy is not offered: its own check says that it can not work now" in said
    assert "tool fine is not offered" not in said
    assert "never called here: subagent_stop" in said


async def test_plugins_that_bring_no_platform_are_none(home: Path) -> None:
    """Enabled ones may bring one, so it is only known once they are loaded."""
    config = Config.model_validate({"plugins": {"enabled": ["good"]}})
    around = Surroundings(Home(home, "x"), Secrets(), {})
    with pytest.raises(ConfigError, match="no platform can run"):
        await build_daemon(config, around)
