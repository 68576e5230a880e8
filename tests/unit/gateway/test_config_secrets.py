"""Secrets in files, who may read them, and that `config show` shows none."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.errors import ConfigError
from gateway.cli.main import main
from gateway.cli.settings import Settings
from gateway.config.environment import Home, read_secrets, unguarded, values_to_hide
from gateway.config.loading import parse, parse_config
from gateway.config.models import Config
from gateway.config.showing import HIDDEN, origins, redacted
from gateway.control import send_line
from gateway.control_server import ControlServer

NAME = "ANTHROPIC_API_KEY"


def read(path: Path) -> str | None:
    return read_secrets({f"{NAME}_FILE": str(path)}).anthropic_api_key


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"sk-1\n", "sk-1"),
        (b"\xef\xbb\xbfsk-1\r\n", "sk-1"),
        (b"  sk-1\t\n\n", "sk-1"),
        (b"", None),
        (b"\r\n", None),
    ],
)
def test_what_editors_leave_around_a_secret_is_none_of_it(
    data: bytes, found: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    assert read(path) == found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe\x00hush", "it is no UTF-8 text"),
        (b"hush\x00hush", "characters in it that no secret has"),
        (b"\x7fELF\x02hush", "characters in it that no secret has"),
        (b"hush" * 20_000, "more than 64 KiB"),
    ],
)
def test_what_can_be_no_secret_is_an_error_that_names_the_variable(
    data: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read(path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{NAME}_FILE: {path} can not be read: ")
    assert said in problem
    assert "hush" not in problem


def test_a_folder_a_pipe_and_nothing(tmp_path: Path) -> None:
    """A pipe would be waited for, for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, said in ((tmp_path, "a folder"), (pipe, "a pipe"), (tmp_path / "x", "no such file")):
        with pytest.raises(ConfigError, match=f"{NAME}_FILE: .*{said}"):
            read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_one_that_we_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("hush")
    path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        read(path)


def test_a_secret_that_others_can_read_is_told_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("hush")
    env = {f"{NAME}_FILE": str(path)}
    for mode, can in ((0o644, "read"), (0o640, "read"), (0o620, "write"), (0o600, None)):
        path.chmod(mode)
        lines = unguarded(Config(), env, None)
        if can is None:
            assert not lines
            continue
        (line,) = lines
        assert f"others can {can} {path} (mode {mode:04o})" in line
        assert f"chmod 600 {path}" in line
    path.chmod(0o644)
    assert not unguarded(Config(), {**env, NAME: "this one counts"}, None)
    # The service manager sees to its own folder.
    path.rename(tmp_path / NAME)
    assert not unguarded(Config(), {"CREDENTIALS_DIRECTORY": str(tmp_path)}, None)


def test_secrets_for_servers_of_tools_are_looked_at_as_well(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hush")
    path.chmod(0o644)
    config, _ = parse_config(
        "agent: {tools: {mcp: {a: {url: 'https://x.org', headers: {A: '${TRACKER}'}}}}}", "c"
    )
    (line,) = unguarded(config, {"TRACKER_FILE": str(path)}, None)
    assert line.startswith("TRACKER_FILE: ")


def test_a_configuration_that_others_can_write(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("")
    path.chmod(0o644)
    assert not unguarded(Config(), {}, path)
    path.chmod(0o666)
    (line,) = unguarded(Config(), {}, path)
    assert "everybody can write it (mode 0666)" in line
    if os.geteuid() == 0:
        path.chmod(0o644)
        os.chown(path, 12345, -1)
        (line,) = unguarded(Config(), {}, path)
        assert "belongs to another user (id 12345)" in line
        # The service has a user of its own, and root asks about what is that one's.
        os.chown(tmp_path, 12345, -1)
        services = Home(tmp_path, "the installed unit posthouse.service")
        assert not unguarded(Config(), {}, path, services)
        assert unguarded(Config(), {}, path, Home(tmp_path, "POSTHOUSE_HOME"))


# --- what is shown

SECRETS = """\
telegram: {webhook: {secret: hush-1}, base_url: 'https://me:hush-2@api.example/bot'}
model: {base_url: 'https://proxy.example/?api_key=hush-3&x=1', max_tokens: 77}
agent:
  tools:
    mcp:
      a:
        command: run
        args: [--token=hush-4, --api-key, hush-5, --port, '80', --key, '${NAMED}', --auth, -v]
        env: {PLAIN: hush-6, TOKEN: '${NAMED}'}
      b: {url: 'https://x.org/mcp?token=hush-7', headers: {X-Any: hush-8}}
context: {engine: lcm}
lcm: {apiKey: hush-9, nested: [{password: 471147}, {Authorization: hush-10}], max_tokens: 3}
plugins: {entries: {p: {settings: {pin: 471148, access_key: hush-11, keyboard: qwerty}}}}
auxiliary: {x: {api_key: hush-12, monkey: see}}
"""


def shown(text: str) -> Any:
    config, sections = parse_config(text, "c.yaml")
    return redacted({**config.model_dump(mode="json"), **sections})


def test_no_secret_is_shown_and_all_else_is() -> None:
    found = shown(SECRETS)
    text = yaml.safe_dump(found)
    assert "hush" not in text
    assert "47114" not in text
    assert found["model"]["base_url"] == f"https://proxy.example/?api_key={HIDDEN}&x=1"
    assert found["telegram"]["base_url"] == f"https://{HIDDEN}@api.example/bot"
    assert found["model"]["max_tokens"] == 77
    assert found["lcm"]["max_tokens"] == 3
    server = found["agent"]["tools"]["mcp"]["a"]
    assert server["args"][3:5] == ["--port", "80"]
    assert server["args"][-3:] == ["${NAMED}", "--auth", "-v"]
    assert server["env"]["TOKEN"] == "${NAMED}"
    assert found["plugins"]["entries"]["p"]["settings"]["keyboard"] == "qwerty"
    assert found["auxiliary"]["x"]["monkey"] == "see"


def test_the_defaults_hide_nothing() -> None:
    plain = Config().model_dump(mode="json")
    assert redacted(plain) == plain


def test_the_secret_of_a_webhook_is_in_no_log() -> None:
    config, _ = parse_config("telegram: {webhook: {secret: hush-hush}}", "c")
    assert "hush-hush" in values_to_hide(config, {})


def test_where_each_value_is_from() -> None:
    text = "model:\n  name: other\n  fallback: [a]\nagent: {max_turns: 3}\nconsole: {enabled: auto}"
    env = {"POSTHOUSE__MODEL__FALLBACK": "[b]", "POSTHOUSE__TIMEZONE": "UTC"}
    assert origins(parse(text, "c.yaml", env)) == {
        "model.name": "c.yaml:2:3",
        "model.fallback": "POSTHOUSE__MODEL__FALLBACK",
        "agent.max_iterations": "c.yaml:4:9",
        "timezone": "POSTHOUSE__TIMEZONE",
    }


# --- the commands


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    return tmp_path


def test_show_in_both_forms(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE__MODEL__NAME", "from-the-environment")
    (home / "config.yaml").write_text("gateway: {queue_limit: 9}\n")
    assert main(["config", "show"]) == 0
    text = capsys.readouterr().out
    assert "#   model.name: POSTHOUSE__MODEL__NAME" in text
    assert f"#   gateway.queue_limit: {home}/config.yaml:1:11" in text
    assert yaml.safe_load(text)["model"]["name"] == "from-the-environment"
    assert main(["config", "show", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["origins"]["model.name"] == "POSTHOUSE__MODEL__NAME"
    assert found["gateway"]["queue_limit"] == 9


def test_check_tells_old_names_and_wrong_variables(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("agent: {max_turns: 9}\nmodel: {provider: anthropic}\n")
    monkeypatch.setenv("POSTHOUSE_LOGGING_LEVEL", "DEBUG")
    monkeypatch.delenv(NAME, raising=False)
    assert main(["config", "check"]) == 0
    text = capsys.readouterr().out
    assert "note: " in text
    assert "agent.max_turns is Hermes Agent's name of agent.max_iterations" in text
    assert "call it POSTHOUSE__LOGGING__LEVEL" in text
    assert "nor a base_url: put it alone into secrets/ANTHROPIC_API_KEY in the home" in text
    monkeypatch.setenv("POSTHOUSE__MODEL__NAM", "x")
    assert main(["config", "check"]) == 78
    assert "did you mean POSTHOUSE__MODEL__NAME?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "model: {base_url: 'ftp://ada:hunter2@example.org'}",
        "model: {base_url: 'ftp://example.org/?api_key=hunter2'}",
        "agent: {tools: {mcp: {x: {url: 'ftp://ada:hunter2@example.org'}}}}",
        "agent: {tools: {mcp: {x: {command: a, args: [--pat, 0.2222]}}}}",
        "agent: {tools: {mcp: {x: {command: a, env: {PAT: [hunter2]}}}}}",
        "telegram: {webhook: {secret: hunter2 2222}}",
        "telegram: {token: hunter2}",
        "telegram: hunter2",
    ],
)
def test_what_is_wrong_is_said_without_what_may_be_secret(text: str) -> None:
    """Of a file that is refused the log knows no secret yet."""
    with pytest.raises(ConfigError) as refused:
        parse_config(text, "config.yaml")
    assert "config.yaml:1:" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "2222" not in str(refused.value)


def test_reload_of_what_does_not_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reload"]) == 1
    assert "not running" in capsys.readouterr().out
    (home / "config.yaml").write_text("modle: {}\n")
    assert main(["config", "reload"]) == 78
    assert "did you mean model?" in capsys.readouterr().err


async def test_a_socket_that_is_moved_with_the_next_start(home: Path) -> None:
    """Until then the daemon is where it was."""
    (home / "config.yaml").write_text(f"gateway: {{control_socket: {home / 'new.sock'}}}\n")

    async def status(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, {"ready": True})

    server = ControlServer(home / "control.sock", {"status": status})
    await server.start()
    try:
        settings = Settings(None, Home(home, ""), {})
        answer = await asyncio.to_thread(settings.ask, {"op": "status"})
    finally:
        await server.close()
    assert answer == {"ready": True}
    assert settings.ask({"op": "status"}) is None


async def test_a_job_is_paused_whatever_the_file_says(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("gateway: [")
    asked: list[dict[str, Any]] = []

    async def jobs(request: dict[str, Any], reader: Any, writer: Any) -> None:
        asked.append(request)
        await send_line(writer, {"job": {"name": "tea", "state": "paused", "id": "j_1"}})

    server = ControlServer(home / "control.sock", {"jobs": jobs})
    await server.start()
    try:
        assert await asyncio.to_thread(main, ["jobs", "pause", "j_1"]) == 0
    finally:
        await server.close()
    assert asked == [{"op": "jobs", "action": "pause", "id": "j_1"}]
    assert "paused: tea" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["jobs", "pause", "j_1"]) == 1
